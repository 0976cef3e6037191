//! For the fuzz targets: what a host finds that was written by the one before, with the keeper and
//! in files of its own.

use super::clients::{self, Line};
use super::kept::SavedRegion;
use super::returning::Memory;
use super::session::SavedSession;
use commonhold_object::{Access, Credentials, MapFlags, MappingId, ObjectId, PageRange, Protection, Sharing};
use serde::{Deserialize, Serialize};

/// A blob that the keeper held, or a file below `live`. The first byte says which.
pub fn blobs(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    match kind % 5 {
        0 => same::<SavedSession>(rest),
        1 => same::<SavedRegion>(rest),
        2 => same::<Vec<PageRange>>(rest),
        3 => same::<Memory>(rest),
        _ => {
            for client in clients::read_bytes(rest) {
                assert!(!client.objects.is_empty(), "who has nothing is not waited for");
            }
        }
    }
}

fn same<T: Serialize + for<'a> Deserialize<'a>>(bytes: &[u8]) {
    let Ok(value) = postcard::from_bytes::<T>(bytes) else { return };
    let again = postcard::to_stdvec(&value).expect("what was read can be written");
    let same = postcard::from_bytes::<T>(&again).expect("and read again");
    assert_eq!(postcard::to_stdvec(&same).expect("and written again"), again);
}

/// Samples of those.
pub fn sample_blobs() -> Vec<Vec<u8>> {
    let session = SavedSession {
        credentials: Credentials { uid: 1, gid: 2, groups: vec![3, 4] },
        pid: 5,
        start_ticks: 6,
        program: "a".into(),
        opened: vec![(ObjectId(7), Access::ReadWrite)],
        bringing: true,
        returned_by: 8,
    };
    let region = SavedRegion {
        mapping: MappingId(1),
        object: ObjectId(2),
        address: 0x7f00_0000_0000,
        length: 8192,
        offset: 4096,
        protection: Protection::ReadWrite,
        sharing: Sharing::Shared,
        flags: MapFlags::default(),
        claims_address: 0x7f00_0000_0000,
        claims_first: 1,
        claims_pages: 2,
    };
    let holds = vec![PageRange::new(3, 4), PageRange::new(9, 1)];
    let has = |session, object| Line::Has { session, pid: 7, start_ticks: 8, object: ObjectId(object) };
    let lines = [
        has(1, 2),
        has(1, 3),
        has(4, 2),
        Line::LetGo { session: 1, object: ObjectId(3) },
        Line::Gone { session: 4 },
    ];
    let encoded = [
        postcard::to_stdvec(&session),
        postcard::to_stdvec(&region),
        postcard::to_stdvec(&holds),
        postcard::to_stdvec(&Memory { boot_id: "boot".into(), inode: 9 }),
        Ok([&clients::MAGIC[..], &clients::encode(&lines)].concat()),
    ];
    (0..)
        .zip(encoded)
        .map(|(kind, bytes)| [&[kind], &bytes.expect("it can be encoded")[..]].concat())
        .collect()
}
