//! Quotas: what is reserved counts from the first step of a creation, and only growth is refused.

mod common;

use common::{create, name, options, user};
use commonhold_object::ErrorKind;
use commonhold_registry::{Prepared, Quotas, Registry};

#[test]
fn objects_and_bytes_of_each_user_are_limited() {
    let state = tempfile::tempdir().unwrap();
    let mut registry = Registry::open(state.path(), Quotas::same(10_000, 3)).unwrap();
    create(&mut registry, "/a", &user(1), 0o600, 1, 6_000).unwrap();
    let error = create(&mut registry, "/b", &user(1), 0o600, 2, 4_001).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Quota);
    assert!(error.message.contains("6000 of 10000") && error.message.contains("4001"), "{error}");
    create(&mut registry, "/b", &user(1), 0o600, 2, 4_000).unwrap();
    create(&mut registry, "/c", &user(2), 0o600, 3, 10_000).unwrap();
    create(&mut registry, "/d", &user(1), 0o600, 4, 0).unwrap();
    let error = create(&mut registry, "/e", &user(1), 0o600, 5, 0).unwrap_err();
    assert!(error.kind == ErrorKind::Quota && error.message.contains("3 objects"), "{error}");
    assert_eq!((registry.usage(1), registry.usage(2)), ((3, 10_000), (1, 10_000)));
}

#[test]
fn creations_under_way_and_removed_objects_in_use_count() {
    let state = tempfile::tempdir().unwrap();
    let mut registry = Registry::open(state.path(), Quotas::same(10_000, 9)).unwrap();
    let prepared = registry.prepare_create(&name("/a"), &user(1), options(0o600), None, 1, 9_000).unwrap();
    let Prepared::New(object) = prepared else { panic!() };
    assert_eq!(create(&mut registry, "/b", &user(1), 0o600, 2, 2_000).unwrap_err().kind, ErrorKind::Quota);
    let record = registry.commit_create(object).unwrap();
    assert_eq!(registry.usage(1), (1, 9_000));
    registry.remove(&name("/a"), &user(1), false).unwrap();
    assert_eq!(registry.usage(1), (1, 9_000), "the memory is there until the last mapping goes");
    registry.forget(record.id).unwrap();
    assert_eq!(registry.usage(1), (0, 0));
    create(&mut registry, "/b", &user(1), 0o600, 2, 2_000).unwrap();
}

#[test]
fn past_a_lowered_quota_one_may_shrink_and_create_what_reserves_nothing() {
    let state = tempfile::tempdir().unwrap();
    let id = {
        let mut registry = Registry::open(state.path(), Quotas::same(10_000, 9)).unwrap();
        create(&mut registry, "/b", &user(1), 0o600, 2, 0).unwrap();
        create(&mut registry, "/a", &user(1), 0o600, 1, 9_000).unwrap().id
    };
    let mut registry = Registry::open(state.path(), Quotas::same(1_000, 1)).unwrap();
    assert_eq!(registry.check_size(id, 9_001).unwrap_err().kind, ErrorKind::Quota);
    registry.check_size(id, 5_000).unwrap();
    let record = registry.set_size(id, 5_000, 5_000).unwrap();
    assert_eq!((record.options.size_bytes, registry.usage(1)), (5_000, (2, 5_000)));
    drop(registry);
    let mut registry = Registry::open(state.path(), Quotas::same(1_000, 9)).unwrap();
    create(&mut registry, "/c", &user(1), 0o600, 3, 0).unwrap();
    assert_eq!(create(&mut registry, "/d", &user(1), 0o600, 4, 1).unwrap_err().kind, ErrorKind::Quota);
}
