//! The entry for fuzzing: any bytes as the two files; `open` must never panic, hang or take memory at will.

use super::memory::MemoryStorage;
use super::reseal;
use crate::buffer::RecordBuffer;
use crate::error::Result;
use crate::format::{NUMBER_LIMIT, PAGE_BYTES, Uuid};
use crate::journal::{Journal, Options};
use std::convert::Infallible;
use std::sync::OnceLock;

const UUID: Uuid = Uuid(*b"fuzz fuzz fuzz!!");
const OPTIONS: Options =
    Options { reserve_bytes: 48 << 10, grow_bytes: 16 << 10, checkpoint_bytes: 16 << 10, salt: Some(7) };

/// Treats `bytes` as the contents of the two files, recovers, and uses the journal if it opens.
///
/// The first byte chooses: even, the rest *is* the two files (split by the next two bytes, in units of
/// 512); odd, the rest is a list of edits, six bytes each, to two intact files; with bit 1 set, all
/// checksums of headers are made right afterwards, so that the checks behind them are reached.
pub fn fuzz_recover(bytes: &[u8]) {
    let Some((&mode, rest)) = bytes.split_first() else {
        return;
    };
    let mut files = if mode & 1 == 0 { split(rest) } else { edited(rest) };
    if mode & 2 != 0 {
        for block in files.iter_mut().flat_map(|file| file.chunks_exact_mut(PAGE_BYTES)) {
            reseal(block);
        }
    }
    let [a, b] = files;
    exercise([MemoryStorage(a), MemoryStorage(b)]);
}

/// Two intact files with records in both, one of them in several parts, and a torn tail. Their object is
/// that of [`fuzz_recover`].
pub fn sample_files() -> [Vec<u8>; 2] {
    static FILES: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    FILES.get_or_init(|| build_sample().unwrap_or_default()).clone()
}

fn build_sample() -> Result<[Vec<u8>; 2]> {
    let storages = [MemoryStorage::default(), MemoryStorage::default()];
    let (mut journal, _) = Journal::open(UUID, storages, OPTIONS)?;
    journal.finish_recovery()?;
    let mut buffer = RecordBuffer::with_capacity(2);
    for round in 0..6u8 {
        let pages: Vec<_> = (0..=u32::from(round % 3)).map(|page| (page, [round; PAGE_BYTES])).collect();
        let record = journal.append_pages(pages.iter().map(|(page, bytes)| (*page, bytes)), &mut buffer)?;
        journal.applied(&record)?;
        if let 1 | 3 = round
            && let Ok(ticket) = journal.begin_checkpoint()
            && round == 1
        {
            journal.finish_checkpoint(ticket)?;
        }
    }
    let mut torn = journal.begin_append()?;
    buffer.begin();
    if let Ok(page) = buffer.push_run(9, 1) {
        page.fill(0xee);
    }
    torn = torn.write(&mut buffer)?;
    drop(torn);
    Ok(journal.into_storages().map(|storage| storage.0))
}

fn split(rest: &[u8]) -> [Vec<u8>; 2] {
    let Some((at, rest)) = rest.split_at_checked(2) else {
        return Default::default();
    };
    let at = usize::from(u16::from_le_bytes([at[0], at[1]])) * 512;
    let (a, b) = rest.split_at(at.min(rest.len()));
    [a.to_vec(), b.to_vec()]
}

fn edited(edits: &[u8]) -> [Vec<u8>; 2] {
    let mut files = sample_files();
    for edit in edits.chunks_exact(6) {
        let file = &mut files[usize::from(edit[0] & 1)];
        let offset = usize::from(u16::from_le_bytes([edit[1], edit[2]]));
        // Half of the edits aim at a header field, where all the decisions are.
        let at = if edit[0] & 2 == 0 { offset * 2 } else { (offset / 128) * PAGE_BYTES + offset % 128 };
        match edit[0] >> 2 & 3 {
            0 => file.truncate(at.max(1)),
            1 => {
                let from = usize::from(u16::from_le_bytes([edit[4], edit[5]])) % 32 * PAGE_BYTES;
                let to = at / PAGE_BYTES * PAGE_BYTES;
                if file.len() >= from.max(to) + PAGE_BYTES {
                    file.copy_within(from..from + PAGE_BYTES, to);
                }
            }
            _ => {
                if let Some(byte) = file.get_mut(at) {
                    *byte = byte.wrapping_add(edit[3]);
                }
            }
        }
    }
    files
}

fn exercise(storages: [MemoryStorage; 2]) {
    let Ok((mut journal, recovery)) = Journal::open(UUID, storages, OPTIONS) else {
        return;
    };
    let replayed = journal.replay(|_, _| Ok::<(), Infallible>(()));
    let Ok(replayed) = replayed else {
        panic!("open accepted a log that replay refuses: {recovery:?}");
    };
    assert_eq!((replayed.records, replayed.pages), (recovery.records, recovery.pages));
    // Numbers at the end of their range cannot be counted up; no real journal gets there.
    if journal.last_epoch.max(journal.next_sequence) > NUMBER_LIMIT / 2 {
        return;
    }
    let again = use_once(&mut journal).and_then(|()| Journal::open(UUID, journal.into_storages(), OPTIONS));
    match again {
        Ok((_, recovery)) => assert_eq!(recovery.records, 1),
        Err(error) => panic!("a journal that was recovered and used does not open: {error}"),
    }
}

fn use_once(journal: &mut Journal<MemoryStorage>) -> Result<()> {
    journal.finish_recovery()?;
    let mut buffer = RecordBuffer::with_capacity(1);
    let record = journal.append_pages([(1, &[1; PAGE_BYTES])], &mut buffer)?;
    journal.applied(&record)
}
