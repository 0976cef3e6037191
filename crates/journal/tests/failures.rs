//! Disks that fill up and fail: a failed operation changes nothing, and a retry succeeds.

mod common;

use common::{A, B, Host, OBJECT, OPTIONS, UUID, new_disk};
use commonhold_journal::testing::{Fault, FaultOp, SimDisk};
use commonhold_journal::{Error, IoOp, Journal, RecordBuffer, Storage};
use std::io::ErrorKind;

#[test]
fn no_space_while_growing_then_space() {
    let disk = new_disk();
    let (mut host, _) = Host::start(&disk, 2).unwrap();
    let full: u64 = (0..3).map(|file| disk.file(file).len().unwrap()).sum();
    disk.set_capacity(Some(full + 12 * 1024));
    let mut acknowledged = 0;
    // The reserve takes syncs of two pages; then the disk is full.
    let error = loop {
        match host.sync(&[0, 1]) {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    assert!(error.is_no_space(), "{error}");
    assert!(matches!(error, Error::Io { op: IoOp::Reserve, .. }));
    // 56 KiB of records, and the 12 KiB that were left when the step of 16 KiB did not fit.
    assert_eq!(acknowledged, (56 + 12) / 12);
    for _ in 0..3 {
        assert!(host.sync(&[0, 1, 2]).unwrap_err().is_no_space());
    }
    disk.set_capacity(Some(full + 64 * 1024));
    host.sync(&[0, 1, 2]).unwrap();
    let expected = host.states[host.acknowledged].clone();
    let (_, recovery) = Host::start(&disk, 2).unwrap();
    assert_eq!(recovery.records, acknowledged + 1);
    assert!(disk.contents(OBJECT) == expected);
}

#[test]
fn a_long_record_that_runs_out_of_space_gives_the_space_back() {
    let disk = new_disk();
    let (mut host, _) = Host::start(&disk, 2).unwrap();
    host.sync(&[3]).unwrap();
    let full: u64 = (0..3).map(|file| disk.file(file).len().unwrap()).sum();
    disk.set_capacity(Some(full + 100_000));
    let mut buffer = RecordBuffer::with_capacity(4);
    let mut appender = host.journal.begin_append().unwrap();
    let error = loop {
        buffer.begin();
        buffer.push_run(0, 4).unwrap().fill(7);
        match appender.write(&mut buffer) {
            Ok(next) => appender = next,
            Err(error) => break error,
        }
    };
    assert!(error.is_no_space());
    assert_eq!(disk.file(A).len().unwrap(), OPTIONS.reserve_bytes);
    // The buffer still holds the pages: a small enough record can be tried again at once.
    assert_eq!(host.journal.append(&mut buffer).unwrap().sequence, 2);
}

#[test]
fn reserved_space_is_enough_on_a_full_disk() {
    let disk = new_disk();
    let (mut host, _) = Host::start(&disk, 2).unwrap();
    disk.set_capacity(Some(0));
    for _ in 0..20 {
        host.sync(&[0, 1, 2]).unwrap();
        if host.journal.needs_checkpoint() {
            let ticket = host.begin_checkpoint();
            host.finish_checkpoint(ticket).unwrap();
        }
    }
}

#[test]
fn creation_on_a_full_disk_fails_cleanly_and_works_later() {
    let disk = new_disk();
    for extra in [0, 5_000, 66_000, 100_000] {
        disk.set_capacity(Some(6 * 4096 + extra));
        let error = Host::start(&disk, 2).err().expect("no room for two reserves");
        assert!(error.is_no_space(), "{error}");
    }
    disk.set_capacity(None);
    let (mut host, recovery) = Host::start(&disk, 2).unwrap();
    assert!(recovery.created);
    host.sync(&[1]).unwrap();
}

/// Runs a fixed life, retrying whatever fails, and returns the host.
fn live_through(disk: &SimDisk) -> Host {
    let (mut host, _) = (0..10).find_map(|_| Host::start(disk, 2).ok()).expect("one fault only");
    for round in 0..4u32 {
        for pages in [&[round, 5][..], &[0, 1, 2, 3, 4], &[round]] {
            (0..10).find_map(|_| host.sync(pages).ok()).expect("a retry succeeds");
        }
        let ticket = host.begin_checkpoint();
        (0..10).find_map(|_| host.sync(&[round + 1]).ok()).expect("a retry succeeds");
        (0..10).find_map(|_| host.finish_checkpoint(ticket).ok()).expect("a retry succeeds");
    }
    host
}

#[test]
fn whatever_write_or_flush_fails_a_retry_succeeds() {
    for op in [FaultOp::Write, FaultOp::Flush] {
        for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
            for after in 0..60 {
                for file in [A, B] {
                    let disk = new_disk();
                    let keep_bytes = (after as usize * 1500) % 9000;
                    disk.plan(Fault { op, after, times: 1 + after % 3, kind, keep_bytes, file: Some(file) });
                    let host = live_through(&disk);
                    let expected = host.states[host.acknowledged].clone();
                    assert!(disk.contents(OBJECT) == expected, "{op:?} {after} {file}");
                    disk.heal();
                    Host::start(&disk, 2).unwrap();
                    assert!(disk.contents(OBJECT) == expected, "{op:?} {after} {file} after recovery");
                }
            }
        }
    }
}

#[test]
fn a_failing_recovery_can_be_repeated() {
    let disk = new_disk();
    let (mut host, _) = Host::start(&disk, 2).unwrap();
    host.sync(&[0, 1, 2]).unwrap();
    let _ticket = host.begin_checkpoint();
    host.sync(&[3]).unwrap();
    let expected = host.states[host.acknowledged].clone();
    let files = [A, B, OBJECT].map(|file| disk.contents(file));
    let mut failed = 0;
    for op in [FaultOp::Write, FaultOp::Flush] {
        for after in 0..8 {
            for file in [A, B] {
                let disk = SimDisk::new(files.to_vec());
                disk.plan(Fault { op, after, file: Some(file), ..Fault::no_space(0) });
                failed += u64::from(Host::start(&disk, 2).is_err());
                disk.heal();
                Host::start(&disk, 2).unwrap();
                assert!(disk.contents(OBJECT) == expected);
            }
        }
    }
    // Of each file: its header twice, the last record (in B), and two flushes.
    assert_eq!(failed, 2 + 3 + 2 + 2);
}

#[test]
fn finish_recovery_can_be_called_again_after_an_error() {
    let disk = new_disk();
    let (mut host, _) = Host::start(&disk, 2).unwrap();
    host.sync(&[0]).unwrap();
    let _ticket = host.begin_checkpoint();
    host.sync(&[1]).unwrap();
    let storages = [disk.file(A), disk.file(B)];
    let (mut journal, recovery) = Journal::open(UUID, storages, OPTIONS).unwrap();
    assert_eq!(recovery.records, 2);
    for after in [0, 1] {
        disk.plan(Fault::flush(after));
        assert!(journal.finish_recovery().is_err());
    }
    journal.finish_recovery().unwrap();
    journal.finish_recovery().unwrap();
    let (_, recovery) = Host::start(&disk, 2).unwrap();
    assert_eq!((recovery.records, recovery.next_sequence), (0, 3));
}
