//! Damage that is not a torn tail is refused, and the error says where.

mod common;

use common::{A, B, Host, OPTIONS, UUID, new_disk, page};
use commonhold_journal::testing::{MemoryStorage, reseal};
use commonhold_journal::{
    Damage, Error, FileId, HeaderFault, Journal, Options, PAGE_BYTES, RecordBuffer, Recovery, Uuid,
};

type Files = [Vec<u8>; 2];

fn open_as(uuid: Uuid, files: &Files) -> Result<Recovery, Error> {
    Journal::open(uuid, files.clone().map(MemoryStorage), OPTIONS).map(|(_, recovery)| recovery)
}

fn open(files: &Files) -> Result<Recovery, Error> {
    open_as(UUID, files)
}

/// Records 1 to 3 in file A (2 in three parts), 4 to 6 in file B; both headers of both files written.
fn sample() -> Files {
    let disk = new_disk();
    for _ in 0..2 {
        drop(Host::start(&disk, 2).unwrap());
    }
    let (mut host, _) = Host::start(&disk, 2).unwrap();
    host.sync(&[0]).unwrap();
    host.sync(&[0, 1, 2, 3, 4]).unwrap();
    host.sync(&[5, 1]).unwrap();
    let _ticket = host.begin_checkpoint();
    for page in 0..3 {
        host.sync(&[page, page + 1]).unwrap();
    }
    let files = [disk.contents(A), disk.contents(B)];
    assert_eq!(open(&files).unwrap().records, 6);
    files
}

/// Offsets of the part headers in a file.
fn parts(file: &[u8]) -> Vec<usize> {
    (0..file.len()).step_by(PAGE_BYTES).filter(|&at| file[at..].starts_with(b"CmnhPart")).collect()
}

const FIELDS: [(&str, usize); 13] = [
    ("magic", 0),
    ("header crc", 8),
    ("payload crc", 12),
    ("uuid", 16),
    ("salt", 32),
    ("epoch", 40),
    ("sequence", 48),
    ("attempt", 56),
    ("part number", 64),
    ("pages", 68),
    ("flags", 72),
    ("record pages", 80),
    ("record bytes", 88),
];

fn expect_corrupt(files: &Files, file: FileId, offset: usize, what: &str) {
    match open(files) {
        Err(Error::Corrupt { file: found, offset: at, .. }) => {
            assert_eq!((found, at), (file, offset as u64), "{what}")
        }
        other => panic!("{what} in {file} at {offset}: {other:?}"),
    }
}

#[test]
fn every_field_of_every_part_but_the_last_record() {
    let files = sample();
    for (index, id) in [(0, FileId::A), (1, FileId::B)] {
        let offsets = parts(&files[index]);
        assert_eq!(offsets.len(), [5, 3][index]);
        // The newest file's last record is the one whose damage looks like a torn tail.
        let checked = if id == FileId::A { &offsets[..] } else { &offsets[..2] };
        for &at in checked {
            let others = [("offset", 96), ("spare", 110), ("page list", 128), ("unused page list", 4000)];
            for (what, field) in FIELDS.into_iter().chain(others).chain([("payload", PAGE_BYTES + 700)]) {
                let mut damaged = files.clone();
                damaged[index][at + field] ^= 1;
                expect_corrupt(&damaged, id, at, what);
            }
        }
    }
}

#[test]
fn fields_that_are_wrong_under_a_right_checksum() {
    let files = sample();
    for (index, at) in
        [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1)].map(|(index, part)| (index, parts(&files[index])[part]))
    {
        for (what, field) in FIELDS.into_iter().chain([("offset", 96)]) {
            // An attempt number means something only between the parts of one record.
            if matches!(what, "magic" | "header crc") || (what == "attempt" && index == 1) {
                continue;
            }
            let mut damaged = files.clone();
            damaged[index][at + field] ^= 2;
            assert!(reseal(&mut damaged[index][at..at + PAGE_BYTES]));
            let error = open(&damaged).expect_err(what);
            // A part of a later epoch than the header's is not the part's fault.
            let later = matches!(error, Error::DamagedHeader { fault: HeaderFault::Outdated { .. }, .. });
            assert!(matches!(error, Error::Corrupt { .. }) || what == "epoch" && later, "{what}: {error}");
        }
    }
}

/// Both headers say an earlier epoch than a part of the file, one that will be given again: that
/// part would count then.
#[test]
fn a_part_of_an_epoch_that_comes() {
    let mut files = sample();
    let at = parts(&files[0])[0];
    let epoch = |bytes: &[u8]| u64::from_le_bytes(bytes[40..48].try_into().unwrap());
    let newest =
        [0, PAGE_BYTES].into_iter().flat_map(|slot| files.iter().map(move |file| epoch(&file[slot..])));
    let next = newest.max().unwrap() + 1;
    files[0][at + 40..at + 48].copy_from_slice(&next.to_le_bytes());
    assert!(reseal(&mut files[0][at..at + PAGE_BYTES]));
    let error = open(&files).unwrap_err();
    assert!(
        matches!(error, Error::DamagedHeader { fault: HeaderFault::Outdated { found, .. }, .. } if found == next),
        "{error}"
    );
}

/// The older header of a file, written over the newer one, would make its records look like those of an earlier life.
#[test]
fn an_outdated_header_in_both_slots() {
    for (index, file) in [(0, FileId::A), (1, FileId::B)] {
        let files = sample();
        let epoch = |at: usize| u64::from_le_bytes(files[index][at + 40..at + 48].try_into().unwrap());
        let (older, newer) = if epoch(0) < epoch(PAGE_BYTES) { (0, PAGE_BYTES) } else { (PAGE_BYTES, 0) };
        let mut damaged = files.clone();
        damaged[index].copy_within(older..older + PAGE_BYTES, newer);
        // No record of the other file betrays it.
        for at in parts(&damaged[1 - index]) {
            damaged[1 - index][at + 8] ^= 1;
        }
        let error = open(&damaged).unwrap_err();
        let Error::DamagedHeader { file: found, fault: HeaderFault::Outdated { .. }, .. } = error else {
            panic!("{file}: {error}");
        };
        assert_eq!(found, file);
    }
}

#[test]
fn the_last_record_is_a_torn_tail() {
    let files = sample();
    let last = parts(&files[1])[2];
    for (what, field) in FIELDS.into_iter().chain([("payload", 2 * PAGE_BYTES)]) {
        let mut damaged = files.clone();
        damaged[1][last + field] ^= 1;
        let recovery = open(&damaged).unwrap();
        assert_eq!((recovery.records, recovery.next_sequence), (5, 6), "{what}");
        if what != "magic" {
            let torn = recovery.torn.unwrap();
            assert_eq!((torn.file, torn.offset, torn.sequence), (FileId::B, last as u64, 6), "{what}");
        }
    }
}

#[test]
fn a_cut_or_missing_file() {
    let files = sample();
    for (index, id) in [(0, FileId::A), (1, FileId::B)] {
        for len in [0, 100, 4096, 8192, 12288, 30000, files[index].len() - 1] {
            let mut cut = files.clone();
            cut[index].truncate(len);
            let error = open(&cut).expect_err("a file is cut");
            assert!(
                matches!(error, Error::DamagedHeader { file, .. } if file == id),
                "{index} {len}: {error}"
            );
        }
    }
}

#[test]
fn a_grown_file_cut_inside_its_records() {
    let disk = new_disk();
    let (mut host, _) = Host::start(&disk, 6).unwrap();
    for _ in 0..4 {
        host.sync(&[0, 1, 2, 3, 4]).unwrap();
    }
    let _ticket = host.begin_checkpoint();
    host.sync(&[5]).unwrap();
    let mut files = [disk.contents(A), disk.contents(B)];
    let last = parts(&files[0])[3];
    files[0].truncate(last + 2 * PAGE_BYTES);
    assert!(matches!(
        open(&files),
        Err(Error::Corrupt { file: FileId::A, sequence: 4, damage: Damage::Truncated { .. }, .. })
    ));
}

#[test]
fn a_damaged_header_over_live_records() {
    let files = sample();
    for (index, id) in [(0, FileId::A), (1, FileId::B)] {
        let valid = |slot: usize| files[index][slot * PAGE_BYTES..].starts_with(b"CmnhJrnl");
        assert!(valid(0) && valid(1));
        let mut refused = 0;
        for slot in 0..2 {
            for field in [0, 8, 12, 16, 32, 40, 48, 56, 64, 72, 2000, 4092] {
                let mut damaged = files.clone();
                damaged[index][slot * PAGE_BYTES + field] ^= 1;
                match open(&damaged) {
                    // The other slot was the current one.
                    Ok(recovery) => assert_eq!(recovery.records, 6),
                    Err(Error::DamagedHeader { file, offset, fault: HeaderFault::Outdated { .. } }) => {
                        assert_eq!((file, offset), (id, (slot * PAGE_BYTES) as u64));
                        refused += 1;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
        assert_eq!(refused, 12);
        let mut damaged = files.clone();
        damaged[index][40] ^= 1;
        damaged[index][PAGE_BYTES + 40] ^= 1;
        assert!(matches!(
            open(&damaged),
            Err(Error::DamagedHeader { file, offset: 0, fault: HeaderFault::Unreadable }) if file == id
        ));
        damaged[index][..2 * PAGE_BYTES].fill(0);
        assert!(matches!(
            open(&damaged),
            Err(Error::DamagedHeader { file, offset: 0, fault: HeaderFault::Unreadable }) if file == id
        ));
    }
}

#[test]
fn files_of_something_else() {
    let files = sample();
    let other = Uuid([9; 16]);
    let error = open_as(other, &files).unwrap_err();
    assert!(
        matches!(error, Error::WrongObject { file: FileId::A, expected, found } if (expected, found) == (other, UUID))
    );
    assert!(error.to_string().contains("give the files of this object"));

    let [a, b] = files.clone();
    let fault = |files: &Files| match open(files) {
        Err(Error::DamagedHeader { fault, .. }) => fault,
        other => panic!("{other:?}"),
    };
    assert_eq!(fault(&[b.clone(), a.clone()]), HeaderFault::WrongFile { found: FileId::B });
    assert_eq!(fault(&[a.clone(), a.clone()]), HeaderFault::WrongFile { found: FileId::A });
    let foreign = [vec![1; 20000], Vec::new()];
    assert_eq!(fault(&foreign), HeaderFault::Unreadable);

    let options = Options { salt: Some(43), ..OPTIONS };
    let stranger = Journal::open(UUID, [MemoryStorage::default(), MemoryStorage::default()], options);
    let [_, stranger] = stranger.unwrap().0.into_storages();
    assert_eq!(fault(&[a, stranger.0]), HeaderFault::DifferentJournals);
}

#[test]
fn a_newer_format_is_named() {
    let mut files = sample();
    files[1][PAGE_BYTES + 8] = 7;
    reseal(&mut files[1][PAGE_BYTES..2 * PAGE_BYTES]);
    let error = open(&files).unwrap_err();
    assert!(matches!(error, Error::UnsupportedVersion { file: FileId::B, found: 7, supported: 1 }));
    assert!(error.to_string().contains("open the object with the version that wrote it"));
}

#[test]
fn an_old_copy_of_one_file_is_refused() {
    let disk = new_disk();
    let (mut host, _) = Host::start(&disk, 2).unwrap();
    host.sync(&[0]).unwrap();
    host.sync(&[1]).unwrap();
    let ticket = host.begin_checkpoint();
    host.sync(&[2]).unwrap();
    let old = disk.contents(A);
    host.finish_checkpoint(ticket).unwrap();
    host.sync(&[3]).unwrap();
    let ticket = host.begin_checkpoint();
    host.finish_checkpoint(ticket).unwrap();
    host.sync(&[4]).unwrap();
    let now = [disk.contents(A), disk.contents(B)];
    assert_eq!(open(&now).unwrap().records, 1);
    let mixed = [old, now[1].clone()];
    assert!(matches!(open(&mixed), Err(Error::Corrupt { file: FileId::A, .. })));
}

/// The only record of a file is damaged. It looks like a torn tail, but the other file was reset after it
/// and its header remembers.
#[test]
fn a_header_demands_the_only_record_of_the_other_file() {
    let disk = new_disk();
    let (mut host, _) = Host::start(&disk, 2).unwrap();
    host.sync(&[0]).unwrap();
    host.sync(&[1]).unwrap();
    let ticket = host.begin_checkpoint();
    host.sync(&[2]).unwrap();
    host.finish_checkpoint(ticket).unwrap();
    let mut files = [disk.contents(A), disk.contents(B)];
    assert_eq!(open(&files).unwrap().records, 1);
    for at in [8192, 8192 + PAGE_BYTES] {
        files[1][at] ^= 1;
        let error = open(&files).unwrap_err();
        let Error::Corrupt { file: FileId::B, offset: 8192, sequence: 3, .. } = error else {
            panic!("{error}")
        };
        files[1][at] ^= 1;
    }
}

/// Users choose the contents of pages, and pages lie in the files where parts are looked for.
#[test]
fn page_contents_cannot_pose_as_parts() {
    let files = sample();
    let part = parts(&files[1])[2];
    let mut forged = [0; PAGE_BYTES];
    forged.copy_from_slice(&files[1][part..part + PAGE_BYTES]);
    forged[32] ^= 1; // the salt is what a user does not know
    let disk = new_disk();
    let (mut host, _) = Host::start(&disk, 8).unwrap();
    host.sync(&[0]).unwrap();
    // The forged page lies exactly where a betraying part of record 8 would have to lie.
    let place = 8192 + 2 * 4096 + 2 * 4096;
    forged[40..48].copy_from_slice(&1u64.to_le_bytes());
    forged[48..56].copy_from_slice(&8u64.to_le_bytes());
    forged[96..104].copy_from_slice(&(place as u64).to_le_bytes());
    reseal(&mut forged);
    let mut buffer = RecordBuffer::with_capacity(3);
    buffer.push_page(1, &page(2, 1)).unwrap();
    buffer.push_page(2, &forged).unwrap();
    let _ = host.journal.append(&mut buffer).unwrap();
    let mut files = [disk.contents(A), disk.contents(B)];
    assert_eq!(files[0][place..place + PAGE_BYTES], forged);
    assert_eq!(open(&files).unwrap().records, 2);
    // The record is torn: the forged page is met by the search and must not count.
    files[0][8192 + 2 * 4096 + 20] ^= 1;
    assert_eq!(open(&files).unwrap().records, 1);
    // With the salt it would have counted: the test aims at the right place.
    forged[32] = 42;
    reseal(&mut forged);
    files[0][place..place + PAGE_BYTES].copy_from_slice(&forged);
    assert!(open(&files).is_err());
}
