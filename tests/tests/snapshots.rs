//! Snapshots: what they have, what the object's writers notice, and what becomes of either when the other goes
//! (`docs/SNAPSHOTS.md`).

use commonhold::{Access, CreateOptions, ErrorKind, MapOptions, Object, SnapshotOptions, SyncMode};
use commonhold_tests::{MIB, PAGE, TestHost};

const PAGES: u64 = 64;
const SIZE: u64 = PAGES * PAGE as u64;

fn freezable() -> CreateOptions {
    CreateOptions { size_bytes: SIZE, freezable: true, ..CreateOptions::default() }
}

fn fill(object: &Object, pages: std::ops::Range<u64>, value: u8) {
    for page in pages {
        object.write_at(&[value; PAGE], page * PAGE as u64).expect("it is written");
    }
}

/// What each page is filled with; none: with several things.
fn pages(object: &Object) -> Vec<Option<u8>> {
    let mut bytes = vec![0; object.size_bytes() as usize];
    object.read_at(&mut bytes, 0).expect("it is read");
    let one = |page: &[u8]| page.iter().all(|byte| *byte == page[0]).then_some(page[0]);
    bytes.chunks(PAGE).map(one).collect()
}

fn are(object: &Object, values: &[(std::ops::Range<u64>, u8)]) {
    let found = pages(object);
    for (range, value) in values {
        for page in range.clone() {
            assert_eq!(found[page as usize], Some(*value), "page {page}");
        }
    }
}

#[test]
fn a_snapshot_has_what_was_there() {
    let host = TestHost::start();
    let client = host.connect();
    let object = client.create("/a", &freezable(), None).expect("it is made");
    fill(&object, 0..32, 1);
    let monday = object.snapshot("/a@monday", &SnapshotOptions::default()).expect("a snapshot");
    fill(&object, 16..48, 2);
    are(&object, &[(0..16, 1), (16..48, 2), (48..64, 0)]);
    are(&monday, &[(0..32, 1), (32..64, 0)]);
    fill(&object, 0..64, 3);
    are(&monday, &[(0..32, 1), (32..64, 0)]);
    let again = client.open("/a@monday", Access::Read).expect("it has a name");
    are(&again, &[(0..32, 1), (32..64, 0)]);
    assert_eq!(client.open("/a@monday", Access::ReadWrite).unwrap_err().kind, ErrorKind::Permission);
}
