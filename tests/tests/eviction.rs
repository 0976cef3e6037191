//! Objects larger than their memory: no write is ever lost or stale.

use commonhold_tests::ledger::Ledger;
use commonhold_tests::{MIB, TestHost, Worker, wait};
use std::time::{Duration, Instant};

/// How long the writers go on at least.
fn a_while() -> Duration {
    let seconds = std::env::var("COMMONHOLD_TESTS_SECONDS").ok().and_then(|s| s.parse().ok());
    Duration::from_millis(seconds.map_or(2500, |s: u64| s * 1000))
}

/// Writers that each count up their own pages, spread over the whole object, and a reader that watches them. `step` is
/// done again and again, for a while and until enough has happened.
fn press(options: &str, bytes: u64, step: impl Fn(&Worker)) {
    let host = TestHost::start();
    let pages = bytes / 4096;
    let path = host.scratch().join("ledger");
    let ledger = Ledger::open(&path, pages as usize);
    let creator = host.worker();
    let options = options.replace("FILE", &host.scratch().file("backing", bytes).display().to_string());
    creator.ok(&format!("create o /big {options}"));
    let count = 3;
    let counted = pages / count * count;
    let writers: Vec<Worker> = (0..count).map(|_| host.worker()).collect();
    for (index, writer) in writers.iter().enumerate() {
        writer.ok("open o /big rw");
        writer.ok("map m o rw shared 0 0");
        writer.ok(&format!("count m {index} {count} {} {} 2", pages / count, path.display()));
    }
    let reader = host.worker();
    reader.all("open o /big r\nmap m o r shared 0 0");
    reader.ok(&format!("watch m 0 1 {counted} {}", path.display()));
    let asker = host.worker();
    asker.ok("open o /big rw");
    let written = |writer: u64| -> u64 {
        (writer..counted).step_by(count as usize).map(|page| ledger.get(page as usize).0).sum()
    };
    let end = Instant::now() + a_while();
    wait::until("every writer goes on, and pages are evicted", || {
        step(&asker);
        let enough = (0..count).all(|writer| written(writer) > 500) && host.status().pages_evicted > 1000;
        (enough && Instant::now() > end).then_some(())
    });
    writers.iter().chain([&reader]).for_each(|worker| drop(worker.ok("halt")));
    for worker in writers.iter().chain([&reader, &creator]) {
        if worker.ask("address m").is_err() {
            worker.ok("map m o rw shared 0 0");
        }
        worker.ok(&format!("counted m 0 1 {counted} {}", path.display()));
    }
    let resident: u64 = creator.ok("info o resident").parse().unwrap();
    assert!(resident <= 5 * MIB, "{resident} bytes are in memory");
}

fn nothing(_: &Worker) {}

/// Everything that asks page tables while pages are on their way out.
fn ask_meanwhile(asker: &Worker) {
    asker.ok("incore o 0 33554432");
    asker.ok("sync o 0 33554432");
    asker.all("map m o rw shared 0 4194304\ncheck m 1020 0 0\ndrop m");
}

#[test]
fn anonymous() {
    press("size=67108864 budget=4194304", 64 * MIB, nothing);
}

#[test]
fn anonymous_freezable() {
    press("size=33554432 budget=4194304 freezable", 32 * MIB, nothing);
}

#[test]
fn ordered() {
    press("file=FILE sync=ordered budget=4194304", 32 * MIB, nothing);
}

#[test]
fn atomic() {
    press("file=FILE sync=atomic budget=4194304", 32 * MIB, nothing);
}

#[test]
fn ordered_while_it_is_asked_and_synced() {
    press("file=FILE sync=ordered budget=4194304", 32 * MIB, ask_meanwhile);
}

#[test]
fn atomic_while_it_is_asked_and_synced() {
    press("file=FILE sync=atomic budget=4194304", 32 * MIB, ask_meanwhile);
}

#[test]
fn freezable_while_it_is_asked_and_synced() {
    press("file=FILE sync=atomic freezable budget=4194304", 32 * MIB, ask_meanwhile);
}

#[test]
fn anonymous_while_it_is_asked_and_synced() {
    press("size=33554432 budget=4194304", 32 * MIB, ask_meanwhile);
}

#[test]
fn two_objects_share_the_hosts_budget() {
    let host = TestHost::with(&["--budget", "8MiB"]);
    let worker = host.worker();
    for name in ["a", "b"] {
        worker.ok(&format!("create {name} /{name} size=33554432 controlled"));
        worker.ok(&format!("map m{name} {name} rw shared 0 0"));
        worker.ok(&format!("fill m{name} 0 8192 {}", name.len()));
    }
    worker
        .all("check ma 0 8192 1\ncheck mb 0 8192 1\nfill ma 0 8192 2\ncheck mb 0 8192 1\ncheck ma 0 8192 2");
    assert!(host.status().resident_bytes <= 8 * MIB);
}
