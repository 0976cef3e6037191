//! Code images where data is asked for.

mod common;

use common::{Made, Place};
use commonhold_image::{Kind, RootKind};
use commonhold_images::Error;
use commonhold_images::include::{include_from, included};

#[test]
fn code_is_not_included_as_data_and_leaves_its_addresses_free() {
    let place = Place::new();
    let published = place
        .publish(&Made {
            kind: Kind::Code,
            roots: vec![("a".into(), RootKind::Function, 0, 0)],
            ..Made::data("lib", "1.2.3")
        })
        .unwrap();
    let error = include_from(std::slice::from_ref(&place.store), "lib@1", false).unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("lib@1.2.3 is code") && said.contains("image stub lib@1`"), "{said}");
    assert!(said.lines().count() == 1 && included().is_empty(), "{said}");
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains(&published.id.to_string()), "{maps}");
}
