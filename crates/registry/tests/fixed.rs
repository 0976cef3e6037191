//! Fixed addresses: given with the record, to nobody else, and late again.

mod common;

use common::{name, open, options, user};
use commonhold_object::{Coherence, CreateOptions, ErrorKind, Fixed, OnLoss, Part, Result};
use commonhold_registry::{NewObject, ObjectRecord, Prepared, Registry};

const ROOM: u64 = 4 << 20;

fn wanted() -> CreateOptions {
    CreateOptions { fixed: Some(Fixed::asked(ROOM)), ..options(0o600) }
}

fn prepare(registry: &mut Registry, text: &str, options: CreateOptions, nonce: u128) -> Result<NewObject> {
    prepare_by(1, registry, text, options, nonce)
}

fn prepare_by(
    uid: u32,
    registry: &mut Registry,
    text: &str,
    options: CreateOptions,
    nonce: u128,
) -> Result<NewObject> {
    match registry.prepare_create(&name(text), &user(uid), options, None, nonce, 0)? {
        Prepared::New(object) => Ok(object),
        Prepared::Exists(_) => panic!("{text} is there"),
    }
}

fn create(registry: &mut Registry, text: &str) -> ObjectRecord {
    let object = prepare(registry, text, wanted(), 1).unwrap();
    registry.commit_create(object).unwrap()
}

fn fixed(record: &ObjectRecord) -> Fixed {
    record.options.fixed.expect("it was asked for")
}

#[test]
fn addresses_are_of_one_object_until_it_is_forgotten_and_come_again_late() {
    let state = tempfile::tempdir().unwrap();
    let mut registry = open(state.path());
    let (a, b) = (create(&mut registry, "/a"), create(&mut registry, "/b"));
    assert!(fixed(&a).is_of(Part::Local) && fixed(&a).room_bytes == ROOM);
    assert_eq!(fixed(&b).address, fixed(&a).end());
    // Another name, size and mode is no other address.
    registry.rename(&name("/b"), &name("/c"), &user(1), Default::default(), false).unwrap();
    let larger = registry.set_size(b.id, ROOM, 0).unwrap();
    assert_eq!(fixed(&larger), fixed(&b));
    // The next process knows what is given, and where it looked last, though that is free again.
    registry.remove(&name("/c"), &user(1), false).unwrap();
    registry.forget(b.id).unwrap();
    let c = create(&mut registry, "/d");
    assert_eq!(fixed(&c).address, fixed(&b).end());
    registry.remove(&name("/d"), &user(1), false).unwrap();
    registry.forget(c.id).unwrap();
    drop(registry);
    let mut registry = open(state.path());
    assert_eq!(fixed(&registry.records().unwrap()[0]), fixed(&a));
    assert_eq!(fixed(&create(&mut registry, "/e")).address, fixed(&c).end());
}

#[test]
fn creations_under_way_have_theirs_and_those_that_are_given_up_have_none() {
    let state = tempfile::tempdir().unwrap();
    let mut registry = open(state.path());
    let begun = prepare(&mut registry, "/a", wanted(), 1).unwrap();
    let address = fixed(begun.record()).address;
    let other = create(&mut registry, "/b");
    assert_eq!(fixed(&other).address, address + ROOM);
    // Somebody was faster: the second of that name is refused at the end.
    let late = prepare(&mut registry, "/a", wanted(), 2).unwrap();
    assert_eq!(fixed(&registry.commit_create(begun).unwrap()).address, address);
    assert_eq!(registry.commit_create(late).unwrap_err().kind, ErrorKind::Exists);
    let given_up = prepare(&mut registry, "/c", wanted(), 3).unwrap();
    registry.abandon_create(given_up);
    // What those two had is free: of all that there is, two are taken.
    let rest = Part::Local.addresses().end - fixed(&other).end();
    let all = CreateOptions { fixed: Some(Fixed::asked(rest)), ..options(0o600) };
    let all = prepare_by(0, &mut registry, "/rest", all, 4).unwrap();
    assert_eq!(fixed(all.record()).address, fixed(&other).end());
    let full = CreateOptions { fixed: Some(Fixed::asked(rest)), ..options(0o600) };
    assert_eq!(prepare(&mut registry, "/full", full.clone(), 5).err().unwrap().kind, ErrorKind::Quota);
    assert_eq!(prepare_by(0, &mut registry, "/full", full, 5).err().unwrap().kind, ErrorKind::NoSpace);
}

#[test]
fn who_asks_does_not_choose_and_what_hosts_share_gets_none_here() {
    let state = tempfile::tempdir().unwrap();
    let mut registry = open(state.path());
    let first = Part::Local.addresses().start;
    let chosen = Some(Fixed { address: first, room_bytes: ROOM });
    let chosen = CreateOptions { fixed: chosen, ..options(0o600) };
    assert_eq!(prepare(&mut registry, "/a", chosen, 1).err().unwrap().kind, ErrorKind::Invalid);
    let shared = CreateOptions { coherence: Coherence::strict(OnLoss::Error), ..wanted() };
    let mut shared = prepare(&mut registry, "/shared", shared, 2).unwrap();
    assert_eq!(fixed(shared.record()), Fixed { address: 0, room_bytes: ROOM });
    let given = Part::Shared.addresses().start;
    shared.is_at(given);
    assert_eq!(fixed(&registry.commit_create(shared).unwrap()).address, given);
    drop(registry);
    let registry = open(state.path());
    assert_eq!(fixed(&registry.records().unwrap()[0]).address, given);
}
