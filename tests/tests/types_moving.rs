//! Homes that move to a host of another machine type (`docs/TYPES.md`). Needs etcd, as the tests of `etcd.rs`.
#![cfg(feature = "etcd")]

use commonhold_tests::cluster::until_says;
use commonhold_tests::etcd::Etcd;
use commonhold_tests::moving::{claimant, comes_back, lose};
use commonhold_tests::typed::{self, PAGES, is_stored, numbers};
use commonhold_tests::{Scratch, TestHost, Worker};

const TYPES: [&str; 3] = ["big-ieee", "vax", "little-ieee"];

/// Hosts of three machine types, and a worker on each with the object mapped as `m`, whose home is the first.
fn setting(etcd: &Etcd, options: &str) -> (Vec<TestHost>, Vec<Worker>) {
    let start = |(number, machine): (usize, &&str)| etcd.host_with(number, &["--machine", machine]);
    let hosts: Vec<TestHost> = TYPES.iter().enumerate().map(start).collect();
    let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    workers[0].eventually(&format!("create o /lab/moving home-moves {options}"));
    typed::tag_all(&workers[0]);
    for (number, worker) in workers.iter().enumerate() {
        if number > 0 {
            worker.eventually("open o /lab/moving rw");
        }
        worker.ok("map m o rw shared 0 0");
    }
    (hosts, workers)
}

#[test]
fn the_next_home_reads_and_writes_the_format_of_the_file() {
    for options in ["strict", "forwarding", "explicit"] {
        let Some(etcd) = Etcd::start() else { return };
        let scratch = Scratch::new();
        let file = scratch.file("numbers", PAGES * 4096);
        let (hosts, workers) = setting(&etcd, &format!("file={} {options}", file.display()));
        let sync = format!("sync o 0 {}", PAGES * 4096);
        numbers(&workers[0], "fill", 1, TYPES[0]);
        workers[0].ok(&sync);
        is_stored(&file, 1, TYPES[0]);
        // Newest with another host when the home is lost, but for explicit coherence, where it is synced by the next.
        numbers(&workers[1], "check", 1, TYPES[1]);
        numbers(&workers[1], "fill", 2, TYPES[1]);
        lose(&hosts[0], &workers[0]);
        workers[1].eventually(&sync);
        for number in [2, 1] {
            numbers(&workers[number], "check", 2, TYPES[number]);
        }
        let home = claimant(&hosts, &[0]);
        is_stored(&file, 2, TYPES[0]);
        assert!(hosts[home].status().stored_translated.pages > 0, "{options}");
        // What is read from the file, at a home of another type, and by whoever comes back.
        numbers(&workers[3 - home], "fill", 3, TYPES[3 - home]);
        workers[3 - home].eventually(&sync);
        is_stored(&file, 3, TYPES[0]);
        comes_back(&hosts[0]);
        let back = hosts[0].worker();
        back.eventually("open o /lab/moving rw");
        back.ok("map m o rw shared 0 0");
        numbers(&back, "check", 3, TYPES[0]);
        let types = back.ok("tags o");
        assert!(types.starts_with("0 4096 int16; 4096 4096 int32"), "{types}");
    }
}

#[test]
fn the_next_home_finds_with_replicas_what_the_last_had_stored() {
    let Some(etcd) = Etcd::start() else { return };
    let (hosts, workers) = setting(&etcd, &format!("size={} strict replicas=2", PAGES * 4096));
    until_says(&hosts[0], "host1 keeps its pages");
    until_says(&hosts[0], "host2 keeps its pages");
    numbers(&workers[0], "fill", 1, TYPES[0]);
    workers[0].ok(&format!("sync o 0 {}", PAGES * 4096));
    // Nobody but the home has had any of it.
    lose(&hosts[0], &workers[0]);
    for number in [1, 2] {
        numbers(&workers[number], "check", 1, TYPES[number]);
    }
    let home = claimant(&hosts, &[0]);
    assert!(hosts[home].status().stored_translated.pages > 0);
    numbers(&workers[home], "fill", 2, TYPES[home]);
    numbers(&workers[3 - home], "check", 2, TYPES[3 - home]);
    workers[home].ok(&format!("sync o 0 {}", PAGES * 4096));
    // The last host has what both homes stored.
    lose(&hosts[home], &workers[home]);
    numbers(&workers[3 - home], "check", 2, TYPES[3 - home]);
}
