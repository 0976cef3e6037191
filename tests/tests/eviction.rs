//! Objects larger than their memory: no write is ever lost or stale.

use commonhold_tests::ledger::Ledger;
use commonhold_tests::{MIB, TestHost, Worker};
use std::time::Duration;

/// How long the writers go on.
fn a_while() -> Duration {
    let seconds = std::env::var("COMMONHOLD_TESTS_SECONDS").ok().and_then(|s| s.parse().ok());
    Duration::from_millis(seconds.map_or(2500, |s: u64| s * 1000))
}

/// Writers that each count up their own pages, spread over the whole object, and a reader that watches them.
fn press(options: &str, bytes: u64, during: impl Fn(&TestHost, &[Worker])) {
    let host = TestHost::start();
    let pages = bytes / 4096;
    let ledger = host.scratch().join("ledger");
    Ledger::open(&ledger, pages as usize);
    let creator = host.worker();
    let options = options.replace("FILE", &host.scratch().file("backing", bytes).display().to_string());
    creator.ok(&format!("create o /big {options}"));
    let count = 3;
    let writers: Vec<Worker> = (0..count).map(|_| host.worker()).collect();
    for (index, writer) in writers.iter().enumerate() {
        writer.ok("open o /big rw");
        writer.ok("map m o rw shared 0 0");
        writer.ok(&format!("count m {index} {count} {} {} 2", pages / count, ledger.display()));
    }
    let reader = host.worker();
    reader.all("open o /big r\nmap m o r shared 0 0");
    reader.ok(&format!("watch m 0 1 {pages} {}", ledger.display())
        .replace(&format!("1 {pages} "), &format!("1 {} ", pages / count * count)));
    during(&host, &writers);
    for writer in &writers {
        let counted: u64 = writer.ok("halt").parse().unwrap();
        assert!(counted > 500, "only {counted} writes were made");
    }
    reader.ok("halt");
    let status = host.status();
    assert!(status.pages_evicted > 1000, "only {} pages were evicted", status.pages_evicted);
    for worker in writers.iter().chain([&reader, &creator]) {
        if worker.ask("address m").is_err() {
            worker.ok("map m o rw shared 0 0");
        }
        worker.ok(&format!("counted m 0 1 {} {}", pages / count * count, ledger.display()));
    }
    let resident: u64 = creator.ok("info o resident").parse().unwrap();
    assert!(resident <= 5 * MIB, "{resident} bytes are in memory");
}

fn wait(_: &TestHost, _: &[Worker]) {
    std::thread::sleep(a_while());
}

/// Everything that asks page tables while pages are on their way out.
fn ask_meanwhile(host: &TestHost, writers: &[Worker]) {
    let end = std::time::Instant::now() + a_while();
    let asker = host.worker();
    asker.ok("open o /big rw");
    while std::time::Instant::now() < end {
        asker.ok("incore o 0 33554432");
        asker.ok("sync o 0 33554432");
        asker.all("map m o rw shared 0 4194304\ncheck m 1020 0 0\ndrop m");
        let _ = writers;
    }
}

#[test]
fn anonymous() {
    press("size=67108864 budget=4194304", 64 * MIB, wait);
}

#[test]
fn anonymous_freezable() {
    press("size=33554432 budget=4194304 freezable", 32 * MIB, wait);
}

#[test]
fn ordered() {
    press("file=FILE sync=ordered budget=4194304", 32 * MIB, wait);
}

#[test]
fn atomic() {
    press("file=FILE sync=atomic budget=4194304", 32 * MIB, wait);
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
