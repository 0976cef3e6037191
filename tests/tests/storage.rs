//! Full disks, files that change underneath, journals that are torn or corrupted, state of a newer version.

use commonhold_tests::scratch::SmallDisk;
use commonhold_tests::{MIB, PAGE, Scratch, TestHost, left_out, page, wait};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A disk of that size, or none with the printed reason.
fn small_disk(megabytes: u64) -> Option<SmallDisk> {
    SmallDisk::new(megabytes).inspect_err(|why| left_out(&why.to_string())).ok()
}

#[test]
fn disk_full_at_creation_changes_nothing() {
    let Some(disk) = small_disk(64) else { return };
    let host = TestHost::at(Scratch::new(), disk.path().join("state"), &[]);
    let worker = host.worker();
    let file = disk.path().join("file");
    std::fs::write(&file, b"small").unwrap();
    let ballast = disk.use_up(4 * MIB);
    let refused = worker.refused("create o /spills size=67108864 controlled", "NoSpace");
    assert!(refused.contains("spill"), "{refused}");
    worker.refused(&format!("create o /o file={} size=67108864 reserve=yes", file.display()), "NoSpace");
    assert_eq!(std::fs::read(&file).unwrap(), b"small");
    assert_eq!(worker.ok("list /"), "");
    assert_eq!(std::fs::read_dir(host.state().join("spill")).unwrap().count(), 0, "a spill file was left");
    std::fs::remove_file(ballast).unwrap();
    worker.ok("create o /spills size=33554432 controlled");
    worker.all("map m o rw shared 0 0\nfill m 0 8192 1\ncheck m 0 8192 1");
}

/// Everything stays in memory, and the next try after space was freed succeeds.
#[test]
fn disk_full_at_sync() {
    for sync in ["atomic", "ordered"] {
        for reserve in ["", " reserve=yes"] {
            let Some(disk) = small_disk(128) else { return };
            let host = TestHost::at(Scratch::new(), disk.path().join("state"), &[]);
            let worker = host.worker();
            let file = disk.path().join("file");
            std::fs::File::create(&file).unwrap().set_len(16 * MIB).unwrap();
            worker.ok(&format!("create o /o file={} sync={sync}{reserve}", file.display()));
            worker.all("map m o rw shared 0 0\nfill m 0 8 1\nsync o 0 32768\nfill m 0 4096 2");
            let stored = std::fs::read(&file).unwrap();
            let ballast = disk.use_up(256 << 10);
            let outcome = worker.ask("sync o 0 16777216");
            if let Err(refused) = &outcome {
                assert_eq!(refused.kind, "NoSpace", "{refused:?}");
                if sync == "atomic" {
                    assert_eq!(std::fs::read(&file).unwrap(), stored, "a part of a sync is stored");
                }
                let dirty: u64 = worker.ok("info o dirty").parse().unwrap();
                assert_eq!(dirty, 16 * MIB, "{sync}{reserve}");
            } else {
                // With the space of the file taken (and of the journal, at its first sync) none is needed.
                assert_eq!(reserve, " reserve=yes", "{sync}");
            }
            worker.all("check m 0 4096 2\nfill m 0 4 3\ncheck m 4 4092 2");
            // Faults and other clients go on.
            let other = host.worker();
            other.all("open o /o rw\nmap m o rw shared 0 0\ncheck m 0 4 3\ncheck m 4 4092 2");
            std::fs::remove_file(ballast).unwrap();
            worker.ok("sync o 0 16777216");
            let now = std::fs::read(&file).unwrap();
            assert!(now[..4 * PAGE] == page::bytes(0, 4, 3) && now[4 * PAGE..] == page::bytes(4, 4092, 2));
        }
    }
}

#[test]
fn a_full_disk_does_not_lose_what_is_evicted() {
    let Some(disk) = small_disk(64) else { return };
    let host = TestHost::at(Scratch::new(), disk.path().join("state"), &[]);
    let worker = host.worker();
    worker.ok("create o /o size=33554432 budget=2097152 reserve=yes");
    worker.ok("map m o rw shared 0 0");
    let ballast = disk.use_up(128 << 10);
    // The spill space was taken at creation: nothing can fail.
    worker.all("fill m 0 8192 1\ncheck m 0 8192 1");
    assert!(worker.ok("info o spilled").parse::<u64>().unwrap() > 16 * MIB);
    std::fs::remove_file(ballast).unwrap();
}

#[test]
fn a_file_truncated_underneath() {
    let host = TestHost::start();
    for sync in ["atomic", "ordered"] {
        let file = host.scratch().file_of(sync, &page::bytes(0, 256, 1));
        let worker = host.worker();
        worker.ok(&format!("create o /{sync} file={} sync={sync}", file.display()));
        worker.all("map m o rw shared 0 0\nfill m 0 8 2\nfill m 100 8 2");
        let handle = std::fs::File::options().write(true).open(&file).unwrap();
        handle.set_len(10 * PAGE as u64).unwrap();
        let refused = worker.refused("sync o 0 1048576", "Lost");
        assert!(refused.contains("truncated") && refused.contains("40960"), "{refused}");
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 10 * PAGE as u64, "nothing was changed");
        worker.all("check m 0 8 2\ncheck m 100 8 2");
        // A page that is in the file no more is SIGBUS for who touches it, and for nobody else.
        let other = host.worker();
        other.ok(&format!("open o /{sync} rw"));
        other.all("map m o rw shared 0 0\ncheck m 100 8 2");
        other.dies("check m 200 1 1", libc::SIGBUS);
        handle.set_len(256 * PAGE as u64).unwrap();
        worker.all("check m 100 8 2\nsync o 0 1048576");
        let now = std::fs::read(&file).unwrap();
        assert_eq!(now[100 * PAGE..108 * PAGE], page::bytes(100, 8, 2));
        assert_eq!(now[..8 * PAGE], page::bytes(0, 8, 2));
    }
}

#[test]
fn a_file_replaced_underneath() {
    let host = TestHost::start();
    let file = host.scratch().file_of("file", &page::bytes(0, 16, 1));
    let worker = host.worker();
    worker.ok(&format!("create o /o file={} sync=atomic", file.display()));
    worker.all("map m o rw shared 0 0\nfill m 0 8 2");
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, page::bytes(0, 16, 7)).unwrap();
    let refused = worker.refused("sync o 0 65536", "Lost");
    assert!(refused.contains("replaced"), "{refused}");
    worker.all("check m 0 8 2\ncheck m 8 8 1");
    // After host and keeper ended, nobody has the old file any more: the new one is not taken for it.
    worker.kill();
    host.kill_both();
    host.start_again().unwrap();
    let next = host.worker();
    let refused = next.refused("open o /o r", "Lost");
    assert!(refused.contains("is not the file"), "{refused}");
    assert!(next.ok("stat /o warning").contains("is not the file"));
    assert_eq!(std::fs::read(&file).unwrap(), page::bytes(0, 16, 7), "the new file is untouched");
    next.ok("remove /o");
}

/// An object with some synced versions, whose host and clients are gone; gives its file and its journal.
fn left_behind(host: &TestHost, name: &str) -> (PathBuf, [PathBuf; 2]) {
    let file = host.scratch().file(name, 64 * PAGE as u64);
    let worker = host.worker();
    worker.ok(&format!("create o /{name} file={} sync=atomic", file.display()));
    worker.ok("map m o rw shared 0 0");
    for version in 1..=5 {
        // Few enough that all records lie in one file.
        worker.ok(&format!("fill m 0 8 {version}"));
        worker.ok("sync o 0 262144");
    }
    let id = worker.ok("info o id");
    worker.kill();
    let journal = ["a", "b"].map(|side| host.state().join("journal").join(format!("{id}.{side}")));
    (file, journal)
}

/// Where the written part of a file ends.
fn written_end(path: &Path) -> u64 {
    let content = std::fs::read(path).unwrap();
    content.iter().rposition(|byte| *byte != 0).map_or(0, |at| at as u64 + 1)
}

#[test]
fn a_torn_tail_of_the_journal_is_dropped() {
    let host = TestHost::start();
    let (file, journal) = left_behind(&host, "torn");
    host.kill_both();
    // What a power failure leaves: the stored object old or new page by page, the last record in part.
    let longest = journal.iter().max_by_key(|path| written_end(path)).unwrap();
    let end = written_end(longest);
    let handle = std::fs::File::options().write(true).open(longest).unwrap();
    handle.write_all_at(&vec![0xa5; 20_000], end - 20_000).unwrap();
    std::fs::File::options().write(true).open(&file).unwrap().write_all_at(&page::bytes(0, 4, 5), 0).unwrap();
    host.start_again().unwrap();
    let next = host.worker();
    next.all("open o /torn rw\nmap m o rw shared 0 0\ncheck m 0 8 4\ncheck m 8 56 0");
    assert_eq!(std::fs::read(&file).unwrap()[..8 * PAGE], page::bytes(0, 8, 4), "the last whole sync");
    next.all("fill m 0 64 6\nsync o 0 262144");
    assert_eq!(std::fs::read(&file).unwrap(), page::bytes(0, 64, 6));
}

#[test]
fn a_corrupted_journal_is_refused_with_the_place_and_others_are_not() {
    let host = TestHost::start();
    let (file, journal) = left_behind(&host, "corrupt");
    let (other, _) = left_behind(&host, "other");
    host.kill_both();
    let longest = journal.iter().max_by_key(|path| written_end(path)).unwrap();
    let handle = std::fs::File::options().read(true).write(true).open(longest).unwrap();
    // In the second of five records.
    let at = written_end(longest) * 3 / 10;
    let mut byte = [0];
    handle.read_exact_at(&mut byte, at).unwrap();
    handle.write_all_at(&[!byte[0]], at).unwrap();
    let stored = std::fs::read(&file).unwrap();
    host.start_again().unwrap();
    let next = host.worker();
    let refused = next.refused("open o /corrupt r", "Corrupt");
    assert!(refused.contains("byte") && refused.chars().any(|c| c.is_ascii_digit()), "{refused}");
    assert_eq!(std::fs::read(&file).unwrap(), stored, "nothing was changed");
    next.all("open p /other rw\nmap m p rw shared 0 0\ncheck m 0 8 5\nfill m 0 64 6\nsync p 0 262144");
    assert_eq!(std::fs::read(&other).unwrap(), page::bytes(0, 64, 6));
    assert!(next.ok("stat /corrupt size") == "262144", "it is known still");
    // Put right again, it is whole.
    handle.write_all_at(&byte, at).unwrap();
    wait::until("it opens again", || next.ask("open o /corrupt rw").ok());
    next.all("map k o r shared 0 0\ncheck k 0 8 5");
}

#[test]
fn a_state_directory_of_a_newer_version_is_left_alone() {
    let host = TestHost::start();
    let worker = host.worker();
    let file = host.scratch().file_of("file", &page::bytes(0, 16, 1));
    worker.ok(&format!("create o /o file={}", file.display()));
    drop(worker);
    host.kill_both();
    let meta = host.state().join("meta.redb");
    let set = |version: u64| {
        let table = redb::TableDefinition::<&str, u64>::new("format");
        let database = redb::Database::open(&meta).unwrap();
        let change = database.begin_write().unwrap();
        change.open_table(table).unwrap().insert("version", version).unwrap();
        change.commit().unwrap();
    };
    set(99);
    let before = std::fs::read(&meta).unwrap();
    let refused = host.start_again().unwrap_err();
    assert!(refused.contains("99") && refused.contains("upgrade this program"), "{refused}");
    wait::until("host and keeper are gone", || host.processes().is_empty().then_some(()));
    assert!(std::fs::read(&meta).unwrap() == before, "the state was changed");
    // The same is said to whoever asks before an upgrade; and of an older version.
    let check = || {
        host.command(&["check-state", "--state"], |command| {
            command.arg(host.state());
        })
    };
    for (version, way_out) in [(99, "upgrade this program"), (0, "use the program that wrote it")] {
        set(version);
        let before = std::fs::read(&meta).unwrap();
        for refused in [check().unwrap_err(), host.start_again().unwrap_err()] {
            assert!(refused.contains(way_out) && refused.contains("nothing was changed"), "{refused}");
        }
        wait::until("host and keeper are gone", || host.processes().is_empty().then_some(()));
        assert!(std::fs::read(&meta).unwrap() == before, "the state was changed");
    }
    set(1);
    check().unwrap();
    host.start_again().unwrap();
    host.worker().all("open o /o r\nmap m o r shared 0 0\ncheck m 0 16 1");
}

#[test]
fn a_second_host_on_the_same_directory_is_refused() {
    let host = TestHost::start();
    let before = host.status();
    let refused = host.command(&["host", "start", "--state"], |command| {
        command.arg(host.state());
    });
    let says = refused.unwrap_err();
    assert!(says.contains("running") && says.contains(&before.host_pid.to_string()), "{says}");
    // Who asks quietly is content with the one there is.
    host.start_again().unwrap();
    let after = host.status();
    assert_eq!((after.host_pid, after.keeper_pid), (before.host_pid, before.keeper_pid));
    assert_eq!(host.processes().len(), 2);
}

#[test]
fn what_others_write_to_the_file_is_seen_when_nobody_maps_the_object() {
    let host = TestHost::start();
    let file = host.scratch().file_of("file", &page::bytes(0, 16, 1));
    let worker = host.worker();
    worker.ok(&format!("create o /o file={} sync=ordered", file.display()));
    worker.all("map m o rw shared 0 0\ncheck m 0 16 1\ndrop m");
    std::fs::File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .write_all_at(&page::bytes(0, 16, 2), 0)
        .unwrap();
    worker.all("map m o rw shared 0 0\ncheck m 0 16 2");
}
