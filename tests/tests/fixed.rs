//! Objects that have one address in all processes, on all hosts (`docs/FIXED.md`).

use commonhold_tests::cluster::{cluster, free_address, sharers_of};
use commonhold_tests::{MIB, TestHost, Worker};
use std::ops::Range;

const ROOM: u64 = 2 << 20;
const LOCAL: Range<u64> = 0x2000_0000_0000..0x2800_0000_0000;
const SHARED: Range<u64> = 0x2800_0000_0000..0x3000_0000_0000;

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

/// The address of an open object, which all its mappings begin at.
fn address(worker: &Worker, object: &str) -> u64 {
    number(&worker.ok(&format!("info {object} address")))
}

/// Opens and maps an object, and follows the chain in it.
fn walks(worker: &Worker, name: &str, at: u64, seed: u64) {
    worker.eventually(&format!("open w {name} r"));
    worker.ok("map w w r shared 0 0");
    assert_eq!(number(&worker.ok("address w")), at, "{name}");
    assert_eq!(worker.ok(&format!("walk {at} {seed}")), "16", "{name}");
    worker.all("drop w\nclose w");
}

#[test]
fn an_object_has_its_address_in_all_processes_and_for_good() {
    let host = TestHost::start();
    let maker = host.worker();
    let mut made = Vec::new();
    for (kind, options) in host.kinds() {
        maker.ok(&format!("create {kind} /{kind} {options} fixed"));
        let at = address(&maker, kind);
        assert!(LOCAL.contains(&at) && at.is_multiple_of(ROOM), "{at:#x}");
        maker.ok(&format!("map {kind} {kind} rw shared 0 0"));
        assert_eq!(number(&maker.ok(&format!("address {kind}"))), at);
        maker.ok(&format!("link {kind} 16 7"));
        made.push((kind, at));
    }
    no_two_overlap(made.iter().map(|(_, at)| *at));
    let other = host.worker();
    made.iter().for_each(|(kind, at)| walks(&other, &format!("/{kind}"), *at, 7));
    let ways: [&[&str]; 3] = [&["host", "restart"], &["host", "upgrade"], &["host", "restart", "--keeper"]];
    for words in ways {
        let before = host.status().host_pid;
        host.command(words, |_| {}).unwrap();
        host.wait_for_other_host(before);
        // Who had it mapped has it there, and so has who comes.
        for (kind, at) in &made {
            assert_eq!(maker.ok(&format!("walk {at} 7")), "16", "{words:?}");
            walks(&other, &format!("/{kind}"), *at, 7);
        }
    }
    // What is given later is none of those, by whichever process.
    maker.ok("create later /later size=4096 fixed");
    let later = address(&maker, "later");
    no_two_overlap(made.iter().map(|(_, at)| *at).chain([later]));
    // Both die: what is in files has its address again.
    for kind in ["file", "ordered", "atomic"] {
        maker.ok(&format!("sync {kind} 0 65536"));
    }
    maker.kill();
    host.kill_both();
    host.start_again().unwrap();
    let next = host.worker();
    for (kind, at) in made.iter().filter(|(kind, _)| ["file", "ordered", "atomic"].contains(kind)) {
        walks(&next, &format!("/{kind}"), *at, 7);
    }
}

fn no_two_overlap(addresses: impl Iterator<Item = u64>) {
    let mut all: Vec<u64> = addresses.collect();
    all.sort_unstable();
    assert!(all.windows(2).all(|two| two[0] + ROOM <= two[1]), "{all:x?}");
}

#[test]
fn pointers_in_a_shared_object_hold_on_all_hosts() {
    let hosts = cluster(3);
    let mut all = Vec::new();
    for (number_of, kind) in ["strict", "central", "explicit"].into_iter().enumerate() {
        let name = format!("/{kind}");
        let workers = sharers_of(&hosts, &name, &format!("size=65536 {kind} fixed"));
        let at = address(&workers[0], "o");
        assert!(SHARED.contains(&at), "{at:#x}");
        for worker in &workers {
            assert_eq!((address(worker, "o"), number(&worker.ok("address m"))), (at, at), "{kind}");
        }
        // What one writes with ordinary pointers the others follow, and the other way round.
        for (seed, writer) in [(10, &workers[0]), (20, &workers[number_of])] {
            writer.ok(&format!("link m 16 {seed}"));
            writer.ok("sync o 0 65536");
            for worker in &workers {
                assert_eq!(worker.ok(&format!("walk {at} {seed}")), "16", "{kind}");
            }
        }
        // The home's process, and a host that uses it, are followed by others.
        for host in [&hosts[0], &hosts[1]] {
            let before = host.status().host_pid;
            host.command(&["host", "upgrade"], |_| {}).unwrap();
            host.wait_for_other_host(before);
        }
        workers.iter().for_each(|worker| assert_eq!(worker.eventually(&format!("walk {at} 20")), "16"));
        let newcomer = hosts[2].worker();
        walks(&newcomer, &name, at, 20);
        all.push(at);
    }
    no_two_overlap(all.into_iter());
}

/// An object of another host that is fixed: the name may have to wait until the host belongs to the cluster.
fn shared(worker: &Worker, name: &str) -> u64 {
    worker.eventually(&format!("create o {name} size=4096 strict fixed"));
    address(worker, "o")
}

#[test]
fn no_two_hosts_give_the_same_addresses_whoever_is_away() {
    let hosts = cluster(3);
    let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    let file = hosts[1].scratch().file("file", MIB);
    workers[1].eventually(&format!("create f /file file={} strict fixed", file.display()));
    let kept = address(&workers[1], "f");
    let mut given: Vec<u64> =
        workers.iter().zip(["/a", "/b", "/c"]).map(|(worker, name)| shared(worker, name)).collect();
    // All at once.
    for round in 0..8 {
        for (host, worker) in workers.iter().enumerate() {
            worker.send(&format!("create o /of{host}/{round} size=4096 strict fixed"));
        }
        for worker in &workers {
            worker.answer().unwrap();
            given.push(address(worker, "o"));
        }
    }
    no_two_overlap(given.iter().copied().chain([kept]));
    // A host goes, and the list's host begins anew: neither frees anything.
    workers[1].kill();
    hosts[1].command(&["host", "stop", "--force"], |_| {}).unwrap();
    let before = hosts[0].status().host_pid;
    hosts[0].kill_host();
    hosts[0].wait_for_other_host(before);
    let next = hosts[0].worker();
    let more: Vec<u64> = (0..4).map(|number| shared(&next, &format!("/more/{number}"))).collect();
    no_two_overlap(given.iter().chain(&more).copied().chain([kept]));
    hosts[1].start_again().unwrap();
    let again = hosts[1].worker();
    again.eventually("open f /file rw");
    assert_eq!(address(&again, "f"), kept);
    workers[2].eventually("open f /file rw");
    workers[2].ok("map f f rw shared 0 0");
    assert_eq!(number(&workers[2].ok("address f")), kept);
    // Another name is no other address.
    again.ok("rename /file /renamed");
    let renamed = shared(&again, "/file-again");
    assert_eq!(address(&again, "f"), kept);
    again.ok("rename /renamed /file");
    // What is removed is free, and is given again late: who has it mapped still has nothing in its way.
    again.ok("remove /file");
    let after = shared(&again, "/after");
    assert!(!given.iter().chain(&more).chain([&kept, &renamed]).any(|one| *one == after));
    no_two_overlap(given.into_iter().chain(more).chain([kept, renamed, after]));
}

#[test]
fn processes_map_objects_of_several_hosts_beside_their_own() {
    let hosts = cluster(2);
    let own = TestHost::start();
    let (worker, other) = (hosts[1].worker(), own.worker());
    worker.ok("create l /local size=4096 fixed");
    let name = free_address().replace([':', '.'], "-");
    let at = shared(&worker, &format!("/{name}"));
    worker.all("map l l rw shared 0 0\nmap o o rw shared 0 0\nput l 0 1\nput o 0 2");
    assert!(LOCAL.contains(&address(&worker, "l")) && SHARED.contains(&at));
    // Where a host begins is drawn: of two that do not know each other one process has objects of both, mostly.
    other.ok("create l /local size=4096 fixed");
    assert!(LOCAL.contains(&address(&other, "l")));
}
