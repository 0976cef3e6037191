//! Code images that come from another machine as files.

mod common;

use common::Place;
use commonhold_code::format::{HEADER_AT, Header, PAGE_BYTES};
use commonhold_images::format::{self, Fields, encode};
use commonhold_images::store::Rest;

#[test]
fn code_that_was_damaged_on_its_way_is_not_added() {
    let (place, other) = (Place::new(), Place::new());
    let published = place.image("lib", "1.0.0", "int b(void) { return 2; }");
    let whole = std::fs::read(&published.path).unwrap();
    let add = |bytes: &[u8]| {
        std::fs::write(other.path("copied.img"), bytes).unwrap();
        other.store.publish(other.store.draft_of(&other.path("copied.img")).unwrap())
    };
    // In the header of code, an entry, the library, the names.
    for at in [4096 + 200, 8192 + 3, whole.len() / 2, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        let error = add(&bytes).unwrap_err().to_string();
        assert!(error.contains("what follows its first page is not what was written"), "byte {at}: {error}");
    }
    add(&whole).unwrap();
    // With all the room that its major version has where it was made.
    let range = other.store.ranges().unwrap().list().unwrap().remove(0);
    assert_eq!(range.bytes, other.find("lib@1").header.reserved);
}

/// The image with another header, and all the sums that it then has to have.
fn with(whole: &[u8], change: impl FnOnce(&mut Header)) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    let place = HEADER_AT as usize..HEADER_AT as usize + size_of::<Header>();
    // SAFETY: so many bytes, and every pattern of bits is a header.
    let mut header = unsafe { bytes[place.clone()].as_ptr().cast::<Header>().read_unaligned() };
    change(&mut header);
    header.sum = header.right_sum();
    bytes[place].copy_from_slice(header.bytes());
    let mut rest = Rest::default();
    rest.add(&bytes[PAGE_BYTES as usize..]);
    let page = format::Header::new(whole).unwrap();
    let (segments, imports): (Vec<_>, Vec<_>) = (page.segments().collect(), page.imports().collect());
    let page = encode(&Fields {
        kind: page.kind(),
        architecture: page.architecture(),
        name: page.name(),
        version: page.version(),
        base: page.base(),
        bytes: page.bytes(),
        file_bytes: page.file_bytes(),
        layout: page.layout(),
        roots_at: page.roots_at(),
        root_count: page.root_count() as u32,
        detail_at: page.detail_at(),
        reserved: page.reserved(),
        rest: rest.sum(),
        segments: &segments,
        group: page.group(),
        imports: &imports,
    });
    bytes[..PAGE_BYTES as usize].copy_from_slice(&page.unwrap());
    bytes
}

#[test]
fn code_whose_header_says_another_thing_than_its_first_page_is_not_added() {
    let (place, other) = (Place::new(), Place::new());
    let published = place.image("lib", "1.0.0", "int b(void) { return 2; }");
    let whole = std::fs::read(&published.path).unwrap();
    assert!(with(&whole, |_| ()) == whole, "else this says nothing");
    let add = |bytes: &[u8]| {
        std::fs::write(other.path("copied.img"), bytes).unwrap();
        commonhold_code::add(&other.store, &other.path("copied.img"))
    };
    let changes: [fn(&mut Header); 7] = [
        |header| header.base += 1 << 21,
        |header| header.extent += PAGE_BYTES,
        |header| header.reserved *= 2,
        |header| header.version[1] += 1,
        |header| header.name[0] = b'x',
        |header| header.slots = 0,
        |header| header.protect_at = u64::MAX, // no program would believe it
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let error = add(&with(&whole, change)).unwrap_err().to_string();
        assert!(error.contains("copied.img") && error.contains("do not say the same"), "{number}: {error}");
    }
    assert!(other.store.names().unwrap().is_empty());
    add(&whole).unwrap();
}
