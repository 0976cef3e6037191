//! For the fuzz targets, and the golden files: what a host finds that was written by the one before, with the keeper and
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
            for client in clients::read_bytes(rest, "clients".as_ref()).unwrap_or_default() {
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
        Ok([&clients::FORMAT.begin()[..], &clients::encode(&lines)].concat()),
    ];
    (0..)
        .zip(encoded)
        .map(|(kind, bytes)| [&[kind], &bytes.expect("it can be encoded")[..]].concat())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::golden_of_the_state;
    use crate::golden;
    use commonhold_keeper::marks::{Marks, Others};

    #[test]
    fn blobs_are_those_of_their_version() {
        let mut samples = sample_blobs();
        // The list of clients has a version of its own.
        let clients = samples.pop().unwrap();
        let path = env!("CARGO_MANIFEST_DIR");
        let kept = golden::check(path, "clients", clients::FORMAT.version.into(), &clients[1..]);
        let listed = clients::read_bytes(&kept, "clients".as_ref()).unwrap();
        let objects = listed.iter().map(|one| (one.session, one.objects.iter().map(|id| id.0).collect()));
        assert_eq!(objects.collect::<Vec<(u64, Vec<u64>)>>(), [(1, vec![2])]);
        let kept = golden_of_the_state("blobs", &golden::together(&samples));
        golden::apart(&kept).iter().for_each(|sample| blobs(sample));
        let session: SavedSession = postcard::from_bytes(&golden::apart(&kept)[0][1..]).unwrap();
        assert_eq!(
            (session.pid, session.opened, session.returned_by),
            (5, vec![(ObjectId(7), Access::ReadWrite)], 8)
        );
    }

    #[test]
    fn what_the_keeper_reads_is_that_of_its_version() {
        let marks = Marks {
            file: "live/7".into(),
            inode_at: 128,
            inode: 9,
            bitmaps: vec![65536, 1 << 29],
            others: Others::StayMapped,
        };
        assert_eq!(Marks::decode(&golden_of_the_state("marks", &marks.encode())), Some(marks));
    }
}
