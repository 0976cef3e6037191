//! Objects with one address, as a host says it that may lie: nothing that is there is touched.

mod common;

use common::{FakeHost, plain};
use commonhold::{CreateOptions, ErrorKind, Fixed, Host, MapFlags, MapOptions, PAGE_SIZE_BYTES};
use commonhold_sys::memory;
use std::ptr::NonNull;

const ROOM: u64 = 2 << 20;

/// An object that the host says to be there.
fn said_to_be_at(host: &Host, name: &str, address: u64, room_bytes: u64) -> commonhold::Object {
    let fixed = Some(Fixed { address, room_bytes });
    let options = CreateOptions { fixed, ..plain(4 * PAGE_SIZE_BYTES) };
    host.create(name, &options, None).unwrap()
}

#[test]
fn what_no_host_gives_is_not_mapped() {
    let fake = FakeHost::start();
    let host = Host::connect_to(&fake.directory).unwrap();
    let own = Box::new([7u8; 3 * PAGE_SIZE_BYTES as usize]);
    let heap = (own.as_ptr() as u64).next_multiple_of(PAGE_SIZE_BYTES);
    let local = 0x2000_0000_0000;
    for (number, (address, room)) in [
        (heap, ROOM),
        (0, ROOM),
        (PAGE_SIZE_BYTES, ROOM),
        (local + PAGE_SIZE_BYTES, ROOM),
        (local - ROOM, 2 * ROOM),
        (0x2800_0000_0000, ROOM), // of objects that hosts share
        (local, 4 * PAGE_SIZE_BYTES),
        (local, 0),
        (u64::MAX - ROOM + 1, ROOM),
    ]
    .into_iter()
    .enumerate()
    {
        let object = said_to_be_at(&host, &format!("/{number}"), address, room);
        let why = object.map(&MapOptions::default()).unwrap_err();
        assert_eq!(why.kind, ErrorKind::Protocol, "{address:#x}: {why}");
        // Elsewhere it can be had.
        let flags = MapFlags { anywhere: true, ..MapFlags::default() };
        object.map(&MapOptions { flags, ..MapOptions::default() }).unwrap();
    }
    assert!(own.iter().all(|byte| *byte == 7));
}

#[test]
fn what_lies_where_a_host_says_stays() {
    let fake = FakeHost::start();
    let host = Host::connect_to(&fake.directory).unwrap();
    let at = 0x2345_6780_0000u64;
    let object = said_to_be_at(&host, "/object", at, ROOM);
    let place = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>((at + PAGE_SIZE_BYTES) as usize));
    memory::reserve_exactly(place.unwrap(), PAGE_SIZE_BYTES as usize).unwrap();
    let why = object.map(&MapOptions::default()).unwrap_err();
    assert!(why.kind == ErrorKind::Busy && why.message.contains("memory without a name"), "{why}");
    // What is free of it is mapped where it belongs, once.
    let page = MapOptions { length: Some(PAGE_SIZE_BYTES), ..MapOptions::default() };
    let mapping = object.map(&page).unwrap();
    assert_eq!(mapping.as_ptr() as u64, at);
    let why = object.map(&page).unwrap_err();
    assert!(why.kind == ErrorKind::Busy && why.message.contains("there already"), "{why}");
    let last = object.map(&MapOptions { offset: 3 * PAGE_SIZE_BYTES, ..page.clone() }).unwrap();
    assert_eq!(last.as_ptr() as u64, at + 3 * PAGE_SIZE_BYTES);
    drop(mapping);
    object.map(&page).unwrap();
    // All or none.
    let both = [page.clone(), MapOptions { offset: PAGE_SIZE_BYTES, ..page.clone() }];
    assert_eq!(object.map_many(&both).unwrap_err().kind, ErrorKind::Busy);
    object.map(&page).unwrap();
}
