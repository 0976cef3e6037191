//! In-thread service: threads that serve themselves, beside others that the host serves, under eviction, over the death
//! of the host, and in fork children.

use commonhold_tests::ledger::Ledger;
use commonhold_tests::{MIB, TestHost, Worker, wait};
use std::time::Duration;

fn mapper(host: &TestHost, name: &str, wishes: &str) -> Worker {
    let worker = host.worker();
    worker.ok(&format!("open o {name} rw"));
    worker.ok(&format!("map m o rw shared {wishes}"));
    worker
}

#[test]
fn pages_are_seen_by_others_and_stored() {
    let host = TestHost::start();
    let path = host.scratch().file("stored", 8 * MIB);
    let kinds = [
        ("/anonymous", format!("size={} controlled", 8 * MIB)),
        ("/atomic", format!("file={} sync=atomic", path.display())),
    ];
    for (name, options) in kinds {
        let creator = host.worker();
        creator.ok(&format!("create o {name} {options}"));
        let own = mapper(&host, name, "0 0 in-thread");
        let served = mapper(&host, name, "0 0");
        own.ok("fill m 0 1000 3");
        served.ok("check m 0 1000 3");
        served.ok("check m 1000 1000 0");
        served.ok("fill m 500 1000 4");
        own.ok("check m 500 1000 4");
        own.ok("check m 1500 548 0");
        own.ok("threads 4 fill m 0 2048 5");
        served.ok("check m 0 2048 5");
        own.ok(&format!("sync o 0 {}", 8 * MIB));
    }
    let stored = std::fs::read(&path).unwrap();
    assert_eq!(stored, commonhold_tests::page::bytes(0, 2048, 5), "all of it is in the file");
}

/// Two workers that serve themselves and one that the host serves each count up their own pages of an object eight times
/// as large as its budget. `step` is done a few times, each time after every one of them has gone on.
fn press(options: &str, step: impl Fn(&TestHost)) {
    let host = TestHost::start();
    let (bytes, count) = (32 * MIB, 3);
    let pages = bytes / 4096 / count * count;
    let path = host.scratch().join("ledger");
    let ledger = Ledger::open(&path, pages as usize);
    let options = options.replace("FILE", &host.scratch().file("backing", bytes).display().to_string());
    let creator = host.worker();
    creator.ok(&format!("create o /big {options}"));
    let writers: Vec<Worker> = ["0 0 in-thread", "0 0 in-thread", "0 0"]
        .into_iter()
        .zip(0u64..)
        .map(|(wishes, index)| {
            let writer = mapper(&host, "/big", wishes);
            writer.ok(&format!("count m {index} {count} {} {} 2", pages / count, path.display()));
            writer
        })
        .collect();
    let written = |writer: u64| -> u64 {
        (writer..pages).step_by(count as usize).map(|page| ledger.get(page as usize).0).sum()
    };
    for round in 1..=4 {
        wait::until("every writer goes on", || (0..count).all(|w| written(w) > round * 200).then_some(()));
        step(&host);
    }
    wait::until("pages are evicted", || (host.status().pages_evicted > 500).then_some(()));
    writers.iter().for_each(|writer| drop(writer.ok("halt")));
    for writer in &writers {
        writer.ok(&format!("counted m 0 1 {pages} {}", path.display()));
    }
}

#[test]
fn no_write_is_lost_under_eviction() {
    let a_while = |_: &TestHost| std::thread::sleep(Duration::from_millis(400));
    press("size=33554432 budget=4194304", a_while);
    press("file=FILE sync=atomic budget=4194304", a_while);
}

#[test]
fn no_write_is_lost_when_hosts_die() {
    press("size=33554432 budget=4194304", |host| {
        let before = host.status().host_pid;
        host.kill_host();
        host.wait_for_other_host(before);
    });
}

#[test]
fn a_fork_child_is_served_by_the_host() {
    let host = TestHost::start();
    let worker = host.worker();
    worker.ok(&format!("create o /fork size={MIB} controlled"));
    worker.ok("map m o rw shared 0 0 in-thread");
    worker.ok("fill m 0 100 6");
    worker.ok("fork exit check m 0 100 6");
    worker.ok("fork exit fill m 50 100 7");
    worker.all("check m 0 50 6\ncheck m 50 100 7\ndrop m");
}
