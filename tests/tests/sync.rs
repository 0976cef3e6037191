//! What a file holds before and after a sync, by mode; what a sync covers; locks; a true instant.

use commonhold_sys::inspect::is_in_memory;
use commonhold_tests::{MIB, PAGE, TestHost, page, wait};
use std::path::Path;
use std::time::{Duration, Instant};

fn content(file: &Path) -> Vec<u8> {
    std::fs::read(file).unwrap()
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

#[test]
fn nothing_reaches_the_file_before_a_sync_and_all_of_it_after() {
    let host = TestHost::start();
    for (sync, more) in [("atomic", ""), ("ordered", ""), ("atomic", " freezable"), ("plain", " controlled")]
    {
        let file = host.scratch().file(&format!("file-{sync}{}", more.trim()), MIB);
        let worker = host.worker();
        worker.ok(&format!("create o /{sync}{} file={} sync={sync}{more}", more.trim(), file.display()));
        worker.all("map m o rw shared 0 0\nfill m 0 256 1");
        assert!(is_zero(&content(&file)), "{sync}");
        // A part of it: its pages and no other.
        assert_eq!(worker.ok("sync o 40960 40960"), "10");
        let now = content(&file);
        assert_eq!(now[10 * PAGE..20 * PAGE], page::bytes(10, 10, 1), "{sync}");
        assert!(is_zero(&now[..10 * PAGE]) && is_zero(&now[20 * PAGE..]), "{sync}");
        assert_eq!(worker.ok("sync o 0 1048576"), "246");
        assert_eq!(content(&file), page::bytes(0, 256, 1), "{sync}");
        assert_eq!(worker.ok("sync o 0 1048576"), "0", "nothing was written since");
        // A read of the pages makes none of them dirty, a write of one makes one.
        worker.all("check m 0 256 1\nfill m 77 1 2");
        assert_eq!(worker.ok("sync o 0 1048576"), "1");
        assert_eq!(content(&file)[77 * PAGE..78 * PAGE], page::bytes(77, 1, 2));
    }
}

#[test]
fn a_sync_covers_what_any_process_wrote_even_those_that_are_gone() {
    let host = TestHost::start();
    // How a process stops mapping the object without a word to the host.
    let ends = [
        "exit 0",
        "_exit 0",
        "exec /bin/sleep 1000",
        "raw-munmap m 0 8",
        "raw-mremap m",
        "raw-dontneed m 0 8",
    ];
    for sync in ["atomic", "ordered"] {
        for (index, end) in ends.iter().enumerate() {
            let file = host.scratch().file(&format!("{sync}{index}"), 64 * PAGE as u64);
            let (keeper, writer) = (host.worker(), host.worker());
            keeper.ok(&format!("create o /{sync}{index} file={} sync={sync}", file.display()));
            keeper.all("map m o rw shared 0 0\ncheck m 0 64 0");
            writer.ok(&format!("open o /{sync}{index} rw"));
            writer.all("map m o rw shared 0 0\nfill m 0 8 3");
            writer.send(end);
            if !end.starts_with("raw") && !end.starts_with("exec") {
                writer.wait();
            } else if end.starts_with("raw") {
                writer.answer().unwrap_or_else(|refused| panic!("{end}: {refused:?}"));
            } else {
                let link = format!("/proc/{}/exe", writer.pid());
                wait::until("exec", || {
                    let now = std::fs::read_link(&link).ok()?;
                    (!now.ends_with("commonhold-tests-worker")).then_some(())
                });
            }
            keeper.ok("check m 0 8 3");
            let synced: u64 = keeper.ok("sync o 0 262144").parse().unwrap();
            assert!(synced >= 8, "{end}: {synced} pages");
            assert_eq!(content(&file)[..8 * PAGE], page::bytes(0, 8, 3), "{sync}: {end}");
            keeper.all("fill m 0 8 4\nsync o 0 262144");
            assert_eq!(content(&file)[..8 * PAGE], page::bytes(0, 8, 4), "{sync}: {end}");
        }
    }
}

/// Of long mappings the kernel is asked for written pages alone, and tells nothing of what is not mapped any more.
#[test]
fn a_sync_covers_what_was_written_through_a_long_mapping_that_was_parted() {
    const PAGES: usize = 4096;
    const WRITTEN: [usize; 4] = [0, 700, 715, 4088];
    let host = TestHost::start();
    let ends = ["", "raw-munmap m 700 8", "raw-mmap m 700 8", "raw-dontneed m 0 1024", "raw-mremap m"];
    for sync in ["atomic", "ordered"] {
        for (index, end) in ends.iter().enumerate() {
            let file = host.scratch().file(&format!("long-{sync}{index}"), (PAGES * PAGE) as u64);
            let worker = host.worker();
            worker.ok(&format!("create o /long-{sync}{index} file={} sync={sync}", file.display()));
            worker.all(&format!("map m o rw shared 0 0\nfill m 0 {PAGES} 3"));
            let stores = |least: usize| {
                let synced: usize = worker.ok(&format!("sync o 0 {}", PAGES * PAGE)).parse().unwrap();
                assert!(synced >= least && (synced == least || !end.is_empty()), "{end}: {synced} pages");
            };
            stores(PAGES);
            stores(0);
            for first in WRITTEN {
                worker.ok(&format!("fill m {first} 8 4"));
            }
            if !end.is_empty() {
                worker.ok(end);
            }
            stores(WRITTEN.len() * 8);
            let stored = content(&file);
            let pages = |first: usize, count: usize| &stored[first * PAGE..(first + count) * PAGE];
            for first in WRITTEN {
                assert_eq!(pages(first, 8), page::bytes(first as u64, 8, 4), "{sync}: {end}");
            }
            assert_eq!(pages(8, 692), page::bytes(8, 692, 3), "{sync}: {end}");
        }
    }
}

#[test]
fn an_orderly_last_unmap_is_a_sync() {
    let host = TestHost::start();
    for (index, end) in ["drop m", "unmap m 0 262144", "exit 0"].iter().enumerate() {
        for sync in ["atomic", "ordered"] {
            let file = host.scratch().file(&format!("{sync}{index}"), 64 * PAGE as u64);
            let (writer, other) = (host.worker(), host.worker());
            writer.ok(&format!("create o /{sync}{index} file={} sync={sync}", file.display()));
            writer.all("map m o rw shared 0 0\nfill m 0 64 1");
            // Half of it is mapped by another process still.
            other.ok(&format!("open o /{sync}{index} r"));
            other.ok("map m o r shared 0 131072");
            if writer.ask(end).is_err() {
                writer.wait();
            }
            wait::until("what nobody maps is stored", || {
                (content(&file)[32 * PAGE..] == page::bytes(32, 32, 1)).then_some(())
            });
            assert!(is_zero(&content(&file)[..32 * PAGE]), "{sync} {end}: somebody maps it still");
            other.ok("drop m");
            assert_eq!(content(&file), page::bytes(0, 64, 1), "{sync} {end}");
        }
    }
}

/// What a killed writer did not sync is stored by nobody who may only read.
#[test]
fn a_reader_stores_only_what_writers_left_in_order() {
    let host = TestHost::start();
    for sync in ["atomic", "ordered"] {
        let file = host.scratch().file(sync, 64 * PAGE as u64);
        let (killed, orderly) = (host.worker(), host.worker());
        killed.ok(&format!("create o /{sync} file={} sync={sync}", file.display()));
        killed.all("map m o rw shared 0 131072\nfill m 0 32 1");
        orderly.ok(&format!("open o /{sync} rw"));
        orderly.all("map m o rw shared 0 0\nfill m 32 32 2");
        let reader = || {
            let reader = host.worker();
            reader.all(&format!("open o /{sync} r\nmap m o r shared 0 0"));
            reader
        };
        let (first, last) = (reader(), reader());
        orderly.ok("drop m");
        killed.kill();
        first.ok("drop m");
        assert!(is_zero(&content(&file)), "{sync}: somebody maps it still");
        last.ok("drop m");
        assert!(is_zero(&content(&file)[..32 * PAGE]), "{sync}: nobody who may write asked for it");
        assert!(content(&file)[32 * PAGE..] == page::bytes(32, 32, 2), "{sync}");
        // Nothing was lost: the next who may write keeps it.
        let next = host.worker();
        next.all(&format!("open o /{sync} rw\nmap m o rw shared 0 0\ncheck m 0 32 1\ndrop m"));
        assert!(content(&file)[..32 * PAGE] == page::bytes(0, 32, 1), "{sync}");
    }
}

#[test]
fn held_pages_reach_the_file_by_a_sync_or_unlock_alone() {
    let host = TestHost::start();
    let file = host.scratch().file("held", 4 * MIB);
    let (holder, other) = (host.worker(), host.worker());
    holder.ok(&format!("create o /held file={} sync=ordered budget=1048576", file.display()));
    holder.all("map m o rw shared 0 0\nlock o 0 65536");
    other.all("open o /held rw\nmap m o rw shared 0 0\nlock o 0 4096\nfill m 0 16 1");
    // Everything else goes in and out of memory; the held pages stay.
    holder.all("fill m 16 1008 2\ncheck m 16 1008 2");
    let now = content(&file);
    assert!(is_zero(&now[..16 * PAGE]), "a held page reached the file");
    assert!(!is_zero(&now[16 * PAGE..]), "eviction stored what nobody holds");
    assert_eq!(holder.ok("incore o 0 65536"), "d".repeat(16));
    // Two hold the first page: one unlock is not enough.
    holder.ok("unlock o 0 65536");
    let now = content(&file);
    assert!(is_zero(&now[..PAGE]), "a page that somebody else holds reached the file");
    assert_eq!(now[PAGE..16 * PAGE], page::bytes(1, 15, 1));
    assert_eq!(other.ok("sync o 0 4096"), "1", "a sync by anyone");
    assert_eq!(content(&file)[..16 * PAGE], page::bytes(0, 16, 1));
    other.ok("unlock o 0 4096");
    // Holding more than there is memory for is refused, and holds nothing.
    holder.refused("lock o 0 2097152", "NoSpace");
    assert!(!holder.ok("incore o 0 2097152").contains(|c: char| c.is_lowercase()));
    holder.ok("check m 0 16 1");
}

#[test]
fn evicted_pages_of_an_atomic_object_do_not_reach_the_file() {
    let host = TestHost::start();
    let file = host.scratch().file("atomic", 8 * MIB);
    let worker = host.worker();
    worker.ok(&format!("create o /atomic file={} sync=atomic budget=1048576", file.display()));
    worker.all("map m o rw shared 0 0\nfill m 0 2048 1\ncheck m 0 2048 1");
    assert!(is_zero(&content(&file)));
    assert!(worker.ok("info o spilled").parse::<u64>().unwrap() >= 6 * MIB);
    assert_eq!(worker.ok("sync o 0 8388608"), "2048");
    assert_eq!(content(&file), page::bytes(0, 2048, 1));
    assert_eq!(worker.ok("info o spilled"), "0");
    worker.ok("fill m 0 2048 2");
    assert!(worker.ok("revert /atomic").parse::<u64>().unwrap() >= 2000);
    worker.ok("check m 0 2048 1");
}

/// A writer counts up two words in turn, in different pages: at any instant the first is equal or one ahead.
#[test]
fn a_frozen_sync_is_a_true_instant() {
    let host = TestHost::start();
    for sync in ["atomic", "ordered"] {
        let file = host.scratch().file(sync, 1024 * PAGE as u64);
        let worker = host.worker();
        worker.ok(&format!("create o /{sync} file={} sync={sync} freezable", file.display()));
        worker.ok("map m o rw shared 0 0");
        // Many pages lie between the two in the order of the copy.
        worker.all("fill m 1 1000 9\npair m 1020 0");
        // The writer goes on between the syncs as the machine allows: twenty instants that differ, however many it takes.
        let (mut last, mut instants, begun) = (0, 0, Instant::now());
        while instants < 20 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{sync}: the writer stands still at {last}");
            worker.ok("freeze o 0 4194304");
            let now = content(&file);
            let word =
                |page: usize| u64::from_le_bytes(now[page * PAGE..page * PAGE + 8].try_into().unwrap());
            let (first, second) = (word(1020), word(0));
            assert!(first == second || first == second + 1, "{sync}: {first} and {second} at one instant");
            assert!(first >= last, "{sync}: {first} after {last}");
            instants += usize::from(first > last);
            last = first;
        }
        worker.ok("halt");
    }
    // Without freeze only whole pages are promised, and refused is what was not created for it.
    let worker = host.worker();
    worker.ok("create o /not size=4096 controlled");
    worker.refused("freeze o 0 4096", "Unsupported");
}

/// More than is copied to memory at once: writers wait until it is written out.
#[test]
fn a_frozen_sync_of_very_many_pages_is_a_true_instant() {
    let host = TestHost::start();
    let pages = 6144u64;
    let file = host.scratch().file("file", pages * PAGE as u64);
    let worker = host.worker();
    worker.ok(&format!("create o /o file={} sync=ordered freezable", file.display()));
    worker.all("map m o rw shared 0 0\npair m 6000 0");
    for seed in 1..4 {
        worker.ok(&format!("fill m 1 5500 {seed}"));
        assert!(worker.ok(&format!("freeze o 0 {}", pages * PAGE as u64)).parse::<u64>().unwrap() >= 5500);
        let now = content(&file);
        let word = |page: usize| u64::from_le_bytes(now[page * PAGE..page * PAGE + 8].try_into().unwrap());
        let (first, second) = (word(6000), word(0));
        assert!(first == second || first == second + 1, "{first} and {second} at one instant");
        assert!(now[PAGE..5501 * PAGE] == page::bytes(1, 5500, seed));
    }
    worker.ok("halt");
}

#[test]
fn sync_of_what_has_no_file_succeeds() {
    let host = TestHost::start();
    let worker = host.worker();
    worker.all("create o /a size=65536 controlled\nmap m o rw shared 0 0\nfill m 0 16 1");
    worker.ok("sync o 0 65536");
    worker.all("create p /p size=65536\nmap n p rw shared 0 0\nfill n 0 16 1\nsync p 0 65536");
    let file = host.scratch().file("plain", 65536);
    worker.ok(&format!("create q /q file={}", file.display()));
    worker.all("map k q rw shared 0 0\nfill k 0 16 1\nsync q 0 65536");
    assert_eq!(content(&file), page::bytes(0, 16, 1));
    worker.refused("lock q 0 4096", "Unsupported");
    worker.refused("lock p 0 4096", "Unsupported");
}

#[test]
fn readers_may_not_sync() {
    let host = TestHost::start();
    let file = host.scratch().file("file", 65536);
    let (writer, reader) = (host.worker(), host.worker());
    writer.ok(&format!("create o /o file={} sync=atomic", file.display()));
    writer.all("map m o rw shared 0 0\nfill m 0 4 1");
    reader.ok("open o /o r");
    reader.refused("sync o 0 65536", "Permission");
    assert!(is_zero(&content(&file)));
}

/// Pages written by several at once, while one of them syncs: each is in the file whole, old or new.
#[test]
fn concurrent_syncs_and_writers() {
    let host = TestHost::start();
    for sync in ["atomic", "ordered"] {
        let file = host.scratch().file(sync, 4 * MIB);
        let workers: Vec<_> = (0..3).map(|_| host.worker()).collect();
        workers[0].ok(&format!("create o /{sync} file={} sync={sync}", file.display()));
        let ledger = host.scratch().join(&format!("ledger-{sync}"));
        commonhold_tests::ledger::Ledger::open(&ledger, 1024);
        for (index, worker) in workers.iter().enumerate() {
            worker.ok(&format!("open o /{sync} rw"));
            worker.ok("map m o rw shared 0 0");
            worker.ok(&format!("count m {index} 3 341 {} 1", ledger.display()));
        }
        for _ in 0..15 {
            workers.iter().for_each(|worker| worker.send("sync o 0 4194304"));
            workers.iter().for_each(|worker| drop(worker.answer().expect("sync")));
        }
        workers.iter().for_each(|worker| drop(worker.ok("halt")));
        workers[1].ok("sync o 0 4194304");
        // Now the file is what memory is.
        let reader = host.worker();
        reader.ok(&format!("open o /{sync} r"));
        reader.ok(&format!(
            "create f /{sync}-file file-ro={} ",
            host.scratch().file_of("copy", &content(&file)).display()
        ));
        reader.ok("map m f r shared 0 0");
        reader.ok(&format!("counted m 0 1 1023 {}", ledger.display()));
    }
}

/// What was stored by the host itself is no change by others, however short the time; what others change in the same
/// instant is one.
#[test]
fn pages_stay_when_the_last_mapping_goes_right_after_a_sync_and_others_changes_are_seen() {
    let host = TestHost::start();
    for sync in ["ordered", "atomic"] {
        let file = host.scratch().file(sync, MIB);
        let worker = host.worker();
        worker.ok(&format!("create o /{sync} file={} sync={sync}", file.display()));
        // No time of a file on tmpfs tells of others' stores: there they go.
        let stay = !is_in_memory(std::fs::File::open(&file).unwrap());
        for round in 1..=20 {
            worker.all(&format!("map m o rw shared 0 0\nfill m 0 256 {round}\nsync o 0 1048576\ndrop m"));
            worker.ok("map m o r shared 0 0");
            let expected = if stay { MIB } else { 0 };
            assert_eq!(worker.ok("info o resident"), expected.to_string(), "{sync}, round {round}");
            worker.ok(&format!("check m 0 256 {round}"));
            // A reader unmaps, and another program writes at once.
            worker.all("drop m");
            let other = std::fs::File::options().write(true).open(&file).unwrap();
            std::os::unix::fs::FileExt::write_all_at(
                &other,
                &page::bytes(7, 1, 1000 + round),
                7 * PAGE as u64,
            )
            .unwrap();
            worker.all(&format!("map m o r shared 0 0\ncheck m 7 1 {}\ndrop m", 1000 + round));
        }
    }
}
