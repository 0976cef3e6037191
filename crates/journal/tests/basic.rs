//! The ordinary life of a journal: appending, streaming, checkpoints, opening again, a real file.

mod common;

use common::{Host, OPTIONS, UUID, new_disk, page};
use commonhold_journal::testing::MemoryStorage;
use commonhold_journal::{
    CheckpointRefused, Error, FileStorage, Journal, Options, PAGE_BYTES, RecordBuffer, Storage,
};
use std::convert::Infallible;

fn replayed<S: Storage>(journal: &mut Journal<S>) -> Vec<(u32, u8)> {
    let mut pages = Vec::new();
    journal
        .replay(|number, bytes| {
            pages.push((number, bytes[0]));
            Ok::<(), Infallible>(())
        })
        .unwrap();
    pages
}

fn memory() -> [MemoryStorage; 2] {
    Default::default()
}

fn opened(storages: [MemoryStorage; 2]) -> Journal<MemoryStorage> {
    let (mut journal, _) = Journal::open(UUID, storages, OPTIONS).unwrap();
    journal.finish_recovery().unwrap();
    journal
}

#[test]
fn nothing_is_allowed_before_the_recovery_is_finished() {
    let (mut journal, recovery) = Journal::open(UUID, memory(), OPTIONS).unwrap();
    assert!(recovery.created && recovery.records == 0 && recovery.torn.is_none());
    let mut buffer = RecordBuffer::with_capacity(1);
    buffer.push_run(0, 1).unwrap().fill(1);
    assert!(matches!(journal.append(&mut buffer), Err(Error::RecoveryPending)));
    assert_eq!(journal.begin_checkpoint(), Err(CheckpointRefused::Recovering));
    journal.finish_recovery().unwrap();
    let _ = journal.append(&mut buffer).unwrap();
}

#[test]
fn records_come_back_in_order_and_then_are_gone() {
    let mut journal = opened(memory());
    let mut buffer = RecordBuffer::with_capacity(4);
    for round in 1..=3u8 {
        buffer.begin();
        buffer.push_run(10, 2).unwrap().fill(round);
        buffer.push_run(3, 1).unwrap().fill(round + 10);
        assert_eq!(journal.append(&mut buffer).unwrap().sequence, u64::from(round));
    }
    let stats = journal.stats();
    assert_eq!((stats.records, stats.pages, stats.bytes_appended), (3, 9, 3 * 4 * 4096));
    let (mut journal, recovery) = Journal::open(UUID, journal.into_storages(), OPTIONS).unwrap();
    assert_eq!((recovery.records, recovery.pages, recovery.next_sequence), (3, 9, 4));
    let expected: Vec<_> = (1..=3).flat_map(|round| [(10, round), (11, round), (3, round + 10)]).collect();
    assert_eq!(replayed(&mut journal), expected);
    journal.finish_recovery().unwrap();
    let (mut journal, recovery) = Journal::open(UUID, journal.into_storages(), OPTIONS).unwrap();
    assert_eq!((recovery.created, recovery.records, recovery.next_sequence), (false, 0, 4));
    assert!(replayed(&mut journal).is_empty());
}

#[test]
fn one_append_costs_one_flush_however_many_parts() {
    let mut journal = opened(memory());
    let before = journal.stats().flushes;
    let mut buffer = RecordBuffer::with_capacity(2);
    let mut appender = journal.begin_append().unwrap();
    for part in 0..5u32 {
        buffer.begin();
        buffer.push_run(part * 2, 2).unwrap().fill(part as u8);
        appender = appender.write(&mut buffer).unwrap();
    }
    buffer.begin();
    let record = appender.commit(&mut buffer).unwrap();
    assert_eq!((record.pages, record.bytes), (10, 16 * 4096));
    assert_eq!(journal.stats().flushes, before + 1);
    let mut runs = Vec::new();
    journal
        .replay_record(&record, |first, run| {
            runs.push((first, run.len() / PAGE_BYTES, run[0]));
            Ok::<(), Infallible>(())
        })
        .unwrap();
    assert_eq!(runs, [(0, 2, 0), (2, 2, 1), (4, 2, 2), (6, 2, 3), (8, 2, 4)]);
}

#[test]
fn a_dropped_record_leaves_nothing() {
    let mut journal = opened(memory());
    let mut buffer = RecordBuffer::with_capacity(2);
    buffer.push_run(0, 2).unwrap().fill(1);
    drop(journal.begin_append().unwrap().write(&mut buffer).unwrap());
    buffer.begin();
    assert!(matches!(journal.append(&mut buffer), Err(Error::EmptyRecord)));
    buffer.push_run(7, 1).unwrap().fill(2);
    let _ = journal.append(&mut buffer).unwrap();
    assert_eq!(journal.stats().failed_appends, 2);
    let (mut journal, recovery) = Journal::open(UUID, journal.into_storages(), OPTIONS).unwrap();
    assert_eq!(recovery.records, 1);
    assert_eq!(replayed(&mut journal), [(7, 2)]);
}

#[test]
fn appends_go_on_during_a_checkpoint_and_files_grow_without_one() {
    let (mut host, _) = Host::start(&new_disk(), 4).unwrap();
    assert_eq!(host.journal.begin_checkpoint(), Err(CheckpointRefused::Nothing));
    assert!(!host.journal.needs_checkpoint());
    for _ in 0..3 {
        host.sync(&[0, 1, 2]).unwrap();
    }
    assert!(host.journal.needs_checkpoint());
    let ticket = host.begin_checkpoint();
    assert_eq!(host.journal.begin_checkpoint(), Err(CheckpointRefused::Busy(ticket)));
    for _ in 0..10 {
        host.sync(&[1, 2, 3]).unwrap();
    }
    assert!(host.journal.stats().grows > 0);
    assert_eq!(host.journal.live_bytes(), 13 * 16384);
    host.finish_checkpoint(ticket).unwrap();
    assert_eq!(host.journal.live_bytes(), 10 * 16384);
    assert!(matches!(host.journal.finish_checkpoint(ticket), Err(Error::StaleTicket { .. })));
    // The grown file shrinks to its reserve when it is reset.
    let ticket = host.begin_checkpoint();
    host.finish_checkpoint(ticket).unwrap();
    assert_eq!(host.disk.file(common::A).len().unwrap(), OPTIONS.reserve_bytes);
    assert_eq!(host.disk.file(common::B).len().unwrap(), OPTIONS.reserve_bytes);
    assert_eq!(host.journal.stats().checkpoints, 2);
}

#[test]
fn a_checkpoint_waits_until_records_are_applied_in_order() {
    let (mut host, _) = Host::start(&new_disk(), 4).unwrap();
    let first = host.append(&[0]).unwrap();
    let second = host.append(&[1]).unwrap();
    assert_eq!(
        host.journal.begin_checkpoint(),
        Err(CheckpointRefused::Unapplied { sequence: first.sequence })
    );
    assert!(matches!(host.journal.applied(&second), Err(Error::AppliedOutOfOrder { expected: 1, found: 2 })));
    host.apply(&first).unwrap();
    host.apply(&second).unwrap();
    let ticket = host.begin_checkpoint();
    host.finish_checkpoint(ticket).unwrap();
}

#[test]
fn a_record_of_a_reset_file_cannot_be_replayed_by_its_token() {
    let (mut host, _) = Host::start(&new_disk(), 4).unwrap();
    let record = host.append(&[0]).unwrap();
    host.apply(&record).unwrap();
    let ticket = host.begin_checkpoint();
    host.finish_checkpoint(ticket).unwrap();
    assert!(host.journal.replay_record(&record, |_, _| Ok::<(), Infallible>(())).is_err());
}

#[test]
fn a_real_file_of_more_than_one_full_part() {
    let directory = std::env::temp_dir().join(format!("commonhold-journal-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let storage = |name: &str| {
        let path = directory.join(name);
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .unwrap();
        FileStorage::new(file)
    };
    let options = Options { reserve_bytes: 1 << 20, ..Options::default() };
    let (mut journal, _) = Journal::open(UUID, [storage("a"), storage("b")], options).unwrap();
    journal.finish_recovery().unwrap();
    let pages: Vec<_> = (0..1000).map(|number| (number, page(1, number))).collect();
    let mut buffer = RecordBuffer::new();
    let record =
        journal.append_pages(pages.iter().map(|(number, bytes)| (*number, bytes)), &mut buffer).unwrap();
    assert_eq!((record.pages, record.bytes), (1000, 1002 * 4096));
    drop(journal);
    let (mut journal, recovery) = Journal::open(UUID, [storage("a"), storage("b")], options).unwrap();
    assert_eq!((recovery.records, recovery.pages), (1, 1000));
    let mut next = 0;
    journal
        .replay(|number, bytes| {
            assert_eq!(number, next);
            assert_eq!(bytes, &page(1, number));
            next += 1;
            Ok::<(), Infallible>(())
        })
        .unwrap();
    assert_eq!(next, 1000);
    journal.finish_recovery().unwrap();
    for name in ["a", "b"] {
        assert_eq!(std::fs::metadata(directory.join(name)).unwrap().len(), 1 << 20);
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn blocks_that_were_asked_for_are_zeros_behind_what_is_there() {
    let path = std::env::temp_dir().join(format!("commonhold-journal-blocks-{}", std::process::id()));
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    let mut storage = FileStorage::new(file);
    storage.write_at(0, b"kept").unwrap();
    storage.allocate(8192).unwrap();
    storage.begin_flush(0, 8192);
    storage.allocate(4096).unwrap(); // never shorter
    assert_eq!(storage.len().unwrap(), 8192);
    let mut bytes = [1; 8];
    storage.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"kept\0\0\0\0");
}
