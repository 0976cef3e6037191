//! Images that come from another machine as files.

mod common;

use common::{Made, Place};
use commonhold_image::{Fault, Kind, RootKind};
use commonhold_images::Error;

#[test]
fn what_was_damaged_on_its_way_is_not_published() {
    let (place, other) = (Place::new(), Place::new());
    let made =
        Made { fill: 3, roots: vec![("list".into(), RootKind::Data, 0, 7)], ..Made::data("words", "1.0.0") };
    let whole = place.bytes(&made);
    for at in [4096, 5000, 8191, 8192, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x20;
        let error = other.publish_bytes(&bytes).unwrap_err();
        assert!(matches!(error, Error::Unfit { fault: Fault::DamagedBehind, .. }), "byte {at}: {error}");
        assert!(error.to_string().contains("copy or build the image again"), "{error}");
    }
    assert!(other.store.names().unwrap().is_empty(), "nothing of it is there");
    other.publish_bytes(&whole).unwrap();
}

#[test]
fn code_from_another_machine_has_the_room_that_it_has_there() {
    let place = Place::new();
    let code = |version: &str, base, reserved| Made {
        kind: Kind::Code,
        base: Some(base),
        reserved: Some(reserved),
        ..Made::data("lib", version)
    };
    let base = 0x3100_0000_0000;
    place.publish(&code("1.0.0", base, 1 << 24)).unwrap();
    let range = |place: &Place| place.store.ranges().unwrap().list().unwrap()[0].clone();
    assert_eq!((range(&place).first, range(&place).bytes), (base, 1 << 24));
    // Another image has a part of that room, behind the first pages.
    let full = Place::new();
    full.publish(&Made { base: Some(base + (1 << 23)), ..Made::data("other", "1.0.0") }).unwrap();
    let error = full.publish(&code("1.0.0", base, 1 << 24)).unwrap_err();
    assert!(matches!(&error, Error::Taken { holder, .. } if holder == "image:other@1.0.0"), "{error}");
    let mut small = code("1.0.0", base, 4096);
    assert!(matches!(place.try_bytes(&small), Err(Fault::Unsound("its room"))), "less than it takes");
    small = Made { kind: Kind::Data, ..code("1.0.0", base, 1 << 24) };
    assert!(matches!(place.try_bytes(&small), Err(Fault::Unsound("its room"))), "data does not grow");
}
