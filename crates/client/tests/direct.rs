//! Direct objects against a pretended host: open, map, count, unmap in parts, bad arguments.

mod common;

use common::{FakeHost, plain, word};
use commonhold::{Access, ErrorKind, Host, MapFlags, MapOptions, PageState, Protection, Sharing, classical};
use commonhold_object::wire::Request;
use std::sync::atomic::Ordering;

const PAGE: usize = 4096;

#[test]
fn a_direct_object_is_opened_mapped_counted_and_closed() {
    let fake = FakeHost::start();
    let host = Host::connect_to(&fake.directory).unwrap();
    let object = host.create("/a", &plain(5000), None).unwrap();
    assert_eq!(
        (object.size_bytes(), object.is_controlled(), object.access()),
        (5000, false, Access::ReadWrite)
    );
    let mapping = object.map(&MapOptions::default()).unwrap();
    assert_eq!(mapping.len(), 2 * PAGE);
    word(mapping.as_ptr(), 4992).store(7, Ordering::SeqCst);
    let reader = host.open("/a", Access::Read).unwrap();
    let seen = reader.map(&MapOptions { protection: Protection::Read, ..MapOptions::default() }).unwrap();
    assert_eq!(word(seen.as_ptr(), 4992).load(Ordering::SeqCst), 7);
    let mut bytes = [0; 8];
    reader.read_at(&mut bytes, 4992).unwrap();
    assert_eq!(u64::from_ne_bytes(bytes), 7);
    drop((mapping, seen, reader));
    assert_eq!(fake.count(|r| matches!(r, Request::Close { .. })), 0, "one handle is left");
    drop(object);
    fake.wait_for(1, |r| matches!(r, Request::Close { .. }));
    assert_eq!(fake.count(|r| matches!(r, Request::Map(_))), 0);
    assert_eq!(fake.connections(), 1);
}

#[test]
fn opening_costs_one_request_and_the_connection_is_closed_at_the_end() {
    let fake = FakeHost::start();
    {
        let host = Host::connect_to(&fake.directory).unwrap();
        let again = Host::connect_to(&fake.directory).unwrap();
        let object = again.create("/a", &plain(4096), None).unwrap();
        let mapping = object.map(&MapOptions::default()).unwrap();
        drop((host, again, object));
        word(mapping.as_ptr(), 0).store(1, Ordering::SeqCst);
    }
    fake.wait_for(1, |r| matches!(r, Request::Close { .. }));
    let kinds = fake.seen().into_iter().map(|(_, r)| format!("{r:?}"));
    let kinds: Vec<String> = kinds.map(|r| r.split([' ', '(']).next().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["Hello", "Create", "Close"]);
    let host = Host::connect_to(&fake.directory).unwrap();
    host.open("/a", Access::Read).unwrap();
    assert_eq!(fake.connections(), 2, "the first was closed with its last user");
}

#[test]
fn unmapping_parts_shrinks_and_splits() {
    if !common::in_own_process("unmapping_parts_shrinks_and_splits") {
        return;
    }
    let fake = FakeHost::start();
    let host = Host::connect_to(&fake.directory).unwrap();
    let object = host.create("/a", &plain(8 * PAGE as u64), None).unwrap();
    let mapping = object.map(&MapOptions::default()).unwrap();
    let start = mapping.as_ptr();
    let at = |page: usize| start.wrapping_add(page * PAGE);
    mapping.unmap(2 * PAGE, PAGE).unwrap();
    classical::unmap(at(7), PAGE).unwrap();
    for page in 0..8 {
        assert_eq!(common::is_mapped(at(page)), page != 2 && page != 7, "page {page}");
    }
    word(at(3), 0).store(9, Ordering::SeqCst);
    assert_eq!(classical::sync(at(3), 4 * PAGE).unwrap(), 0, "an anonymous object promises nothing");
    let gap = classical::sync(at(0), 4 * PAGE).unwrap_err();
    assert_eq!(gap.kind, ErrorKind::NotFound);
    assert!(gap.message.contains(&format!("{:#x}", at(2) as usize)), "{gap}");
    assert_eq!(classical::unmap(at(1), 2 * PAGE).unwrap_err().kind, ErrorKind::NotFound);
    assert!(common::is_mapped(at(1)), "a refused unmap changed nothing");
    // Another mapping takes the freed addresses; dropping the first must not touch it.
    let options = MapOptions {
        hint: at(2) as usize,
        length: Some(PAGE as u64),
        flags: MapFlags { fixed: true, ..MapFlags::default() },
        ..MapOptions::default()
    };
    let other = object.map(&options).unwrap();
    assert_eq!(other.as_ptr(), at(2));
    let taken = object.map(&MapOptions { hint: at(1) as usize, ..options }).unwrap_err();
    assert_eq!(taken.kind, ErrorKind::Busy);
    drop(mapping);
    assert!(common::is_mapped(at(2)) && !common::is_mapped(at(3)) && !common::is_mapped(at(1)));
    drop(other);
    assert!(!common::is_mapped(at(2)));
}

#[test]
fn bad_arguments_never_reach_the_host() {
    let fake = FakeHost::start();
    let host = Host::connect_to(&fake.directory).unwrap();
    let object = host.create("/a", &plain(10_000), None).unwrap();
    let reader = host.open("/a", Access::Read).unwrap();
    let mapping = object.map(&MapOptions::default()).unwrap();
    let before = fake.seen().len();
    let kind = |result: commonhold::Result<commonhold::Mapping>| result.unwrap_err().kind;
    let default = MapOptions::default;
    assert_eq!(kind(object.map(&MapOptions { offset: 100, ..default() })), ErrorKind::Invalid);
    assert_eq!(kind(object.map(&MapOptions { hint: 0x1001, ..default() })), ErrorKind::Invalid);
    assert_eq!(kind(object.map(&MapOptions { length: Some(0), ..default() })), ErrorKind::Invalid);
    assert_eq!(kind(object.map(&MapOptions { length: Some(u64::MAX), ..default() })), ErrorKind::Invalid);
    assert_eq!(kind(reader.map(&default())), ErrorKind::Permission);
    let fixed = MapFlags { fixed: true, ..MapFlags::default() };
    assert_eq!(kind(object.map(&MapOptions { flags: fixed, ..default() })), ErrorKind::Invalid);
    let lock = MapFlags { lock: true, ..MapFlags::default() };
    assert_eq!(kind(object.map(&MapOptions { flags: lock, ..default() })), ErrorKind::Unsupported);
    let part = mapping.as_ptr().wrapping_add(100);
    for address in [part, std::ptr::null_mut(), std::ptr::dangling_mut()] {
        assert!(classical::sync(address, 4096).is_err());
        assert!(classical::unmap(address, 4096).is_err());
    }
    for length in [0, 100, 4097, usize::MAX] {
        assert_eq!(
            classical::unmap(mapping.as_ptr(), length).unwrap_err().kind,
            ErrorKind::Invalid,
            "{length}"
        );
        assert_eq!(
            classical::sync(mapping.as_ptr(), length).unwrap_err().kind,
            ErrorKind::Invalid,
            "{length}"
        );
    }
    assert_eq!(object.lock(0, 4096).unwrap_err().kind, ErrorKind::Unsupported);
    assert_eq!(object.sync(0, 0).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(object.sync_frozen(0, 4096).unwrap_err().kind, ErrorKind::Unsupported);
    assert_eq!(reader.write_at(&[1], 0).unwrap_err().kind, ErrorKind::Permission);
    for name in ["a", "/", "/a/../b", "/a\0b", ""] {
        assert_eq!(host.open(name, Access::Read).unwrap_err().kind, ErrorKind::Invalid, "{name:?}");
        assert_eq!(host.create(name, &plain(1), None).unwrap_err().kind, ErrorKind::Invalid, "{name:?}");
        assert_eq!(host.remove(name).unwrap_err().kind, ErrorKind::Invalid, "{name:?}");
        assert_eq!(host.rename("/a", name).unwrap_err().kind, ErrorKind::Invalid, "{name:?}");
    }
    assert_eq!(host.create("/b", &plain(0), None).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(host.resize("/a", u64::MAX).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(host.set_mode("/a", 0o1777).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(fake.seen().len(), before, "{:?}", &fake.seen()[before..]);
}

#[test]
fn a_size_that_another_process_changed_is_asked_for() {
    let fake = FakeHost::start();
    let host = Host::connect_to(&fake.directory).unwrap();
    let object = host.create("/a", &plain(4096), None).unwrap();
    host.resize("/a", 8192).unwrap();
    assert_eq!(object.size_bytes(), 4096, "as known");
    let mapping = object.map(&MapOptions { length: Some(8192), ..MapOptions::default() }).unwrap();
    assert_eq!((mapping.len(), object.size_bytes()), (8192, 8192));
    object.resize(4096).unwrap();
    assert_eq!(mapping.sync().unwrap(), 0, "what is left of it");
    let states: Vec<PageState> = mapping.incore().unwrap().into_iter().map(|(state, _)| state).collect();
    assert_eq!(states[1], PageState::Invalid);
    let past = object.map(&MapOptions { offset: 4096, ..MapOptions::default() }).unwrap_err();
    assert_eq!(past.kind, ErrorKind::Invalid);
}

#[test]
fn a_mapping_without_a_length_has_the_size_of_now() {
    let fake = FakeHost::start();
    let host = Host::connect_to(&fake.directory).unwrap();
    for (name, options) in [("/direct", plain(4096)), ("/controlled", common::ordered(4096))] {
        let object = host.create(name, &options, None).unwrap();
        let whole = MapOptions::default();
        assert_eq!(object.map(&whole).unwrap().len(), 4096);
        host.resize(name, 3 * 4096).unwrap();
        assert_eq!(object.size_bytes(), 4096, "as known");
        assert_eq!(object.map(&whole).unwrap().len(), 3 * 4096);
        assert_eq!(object.map(&MapOptions { offset: 4096, ..whole.clone() }).unwrap().len(), 2 * 4096);
        host.resize(name, 4096).unwrap();
        let both = object.map_many(&[whole.clone(), whole]).unwrap();
        assert_eq!((both[0].len(), both[1].len(), object.size_bytes()), (4096, 4096, 4096));
    }
}

#[test]
fn a_direct_object_that_another_process_shrank_is_not_mapped_past_its_end() {
    let fake = FakeHost::start();
    let host = Host::connect_to(&fake.directory).unwrap();
    let object = host.create("/a", &plain(3 * 4096), None).unwrap();
    host.resize("/a", 4096).unwrap();
    let past = object.map(&MapOptions { length: Some(3 * 4096), ..MapOptions::default() }).unwrap_err();
    assert_eq!(past.kind, ErrorKind::Invalid);
    assert!(past.message.contains("4096"), "{past}");
}

#[test]
fn page_states_of_a_direct_object_are_the_kernels() {
    let fake = FakeHost::start();
    let host = Host::connect_to(&fake.directory).unwrap();
    let object = host.create("/a", &plain(64 * PAGE as u64), None).unwrap();
    for page in [3u64, 4, 40] {
        object.write_at(b"x", page * PAGE as u64 + 5).unwrap();
    }
    let states = object.incore(0, 66 * PAGE as u64).unwrap();
    for (page, (state, locked)) in states.into_iter().enumerate() {
        let touched = [3, 4, 40].contains(&page);
        assert!(!locked);
        match state {
            PageState::Invalid => assert!(page >= 64, "page {page}"),
            PageState::Lost => panic!("page {page}: only what hosts share can be lost"),
            PageState::Absent => assert!(!touched && page < 64, "page {page}"),
            PageState::Clean | PageState::Dirty => assert!(touched, "page {page}"),
        }
    }
}

#[test]
fn private_writes_stay_private() {
    let fake = FakeHost::start();
    let host = Host::connect_to(&fake.directory).unwrap();
    host.create("/a", &plain(4096), None).unwrap();
    let reader = host.open("/a", Access::Read).unwrap();
    let own = reader.map(&MapOptions { sharing: Sharing::Private, ..MapOptions::default() }).unwrap();
    word(own.as_ptr(), 0).store(1, Ordering::SeqCst);
    let mut bytes = [9; 8];
    reader.read_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [0; 8]);
}

#[test]
fn several_regions_come_together_or_not_at_all() {
    let fake = FakeHost::start();
    let host = Host::connect_to(&fake.directory).unwrap();
    let object = host.create("/a", &plain(8 * PAGE as u64), None).unwrap();
    let part = |page: u64| MapOptions {
        offset: page * PAGE as u64,
        length: Some(PAGE as u64),
        ..MapOptions::default()
    };
    let both = object.map_many(&[part(1), part(5)]).unwrap();
    assert_eq!(both.len(), 2);
    assert!(object.map_many(&[part(1), part(9)]).is_err());
    // The second fails only when it is tried: its address is taken.
    let fixed = MapFlags { fixed: true, ..MapFlags::default() };
    let taken = MapOptions { hint: both[0].as_ptr() as usize, flags: fixed, ..part(2) };
    assert_eq!(object.map_many(&[part(1), taken]).unwrap_err().kind, ErrorKind::Busy);
}
