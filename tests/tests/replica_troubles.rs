//! Hosts that keep the pages of another host's object and have troubles of their own: one stands still, one has no room, one is
//! away when the object is removed, one may only read. Needs etcd, as the tests of `etcd.rs`.
#![cfg(feature = "etcd")]

use commonhold_tests::cluster::{another, ca, free_address, until_says};
use commonhold_tests::etcd::Etcd;
use commonhold_tests::host::{signal, stop};
use commonhold_tests::moving::{lose, nothing_is_kept};
use commonhold_tests::scratch::RamDisk;
use commonhold_tests::{MIB, Scratch, TestHost, Worker, left_out, wait};
use std::time::Duration;

const NAME: &str = "/lab/kept";

/// Words for a host of that number, without any for who it is.
fn words_for(etcd: &Etcd, number: usize, lease_s: u32) -> Vec<String> {
    let (own, name, lease) = (free_address(), format!("host{number}"), lease_s.to_string());
    let words = ["--listen", &own, "--name", &name, "--lease", &lease].map(str::to_owned);
    words.into_iter().chain(etcd.words()).collect()
}

fn plain(etcd: &Etcd, number: usize, lease_s: u32) -> Vec<String> {
    words_for(etcd, number, lease_s).into_iter().chain(["--plain".to_owned()]).collect()
}

fn start(words: &[String]) -> TestHost {
    TestHost::with(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Hosts with leases of so many seconds.
fn hosts(etcd: &Etcd, count: usize, lease_s: u32) -> Vec<TestHost> {
    (0..count).map(|number| start(&plain(etcd, number, lease_s))).collect()
}

/// A worker of the first host, which makes the object, and has it mapped as `m`.
fn home_of(hosts: &[TestHost], size_bytes: u64, replicas: usize) -> Worker {
    let worker = hosts[0].worker();
    worker.eventually(&format!("create o {NAME} size={size_bytes} home-moves strict replicas={replicas}"));
    worker.ok("map m o rw shared 0 0");
    worker
}

fn warning(worker: &Worker) -> String {
    worker.ok(&format!("stat {NAME} warning"))
}

fn until_enough(worker: &Worker) {
    wait::until("enough hosts keep its pages", || warning(worker).is_empty().then_some(()));
}

/// A replica stands still, and pages of the object are written for the first time at its home: they wait. Nobody else does:
/// neither who uses objects of that host alone, nor who uses other pages of this one.
#[test]
fn who_writes_first_waits_for_a_replica_and_nobody_else_does() {
    let Some(etcd) = Etcd::start() else { return };
    let hosts = hosts(&etcd, 2, 60);
    let first = home_of(&hosts, MIB, 1);
    until_enough(&first);
    first.all(&format!("fill m 0 256 1\nsync o 0 {MIB}"));
    let (second, third) = (another(&hosts[0], NAME), another(&hosts[0], NAME));
    let reader = another(&hosts[0], NAME);
    // Of each thread that serves faults at least one.
    let own: Vec<Worker> = (0..8)
        .map(|number| {
            let worker = hosts[0].worker();
            worker.all(&format!("create l /own{number} size={MIB}\nmap l l rw shared 0 0"));
            worker
        })
        .collect();
    let replica = hosts[1].status().host_pid;
    stop(&[replica]);
    // The same page by two processes, and another.
    let writers = [(&first, "put m 0 7"), (&second, "put m 1 8"), (&third, "put m 8192 9")];
    writers.iter().for_each(|(worker, line)| worker.send(line));
    // Each of these is a fault, which is served before any of the writes is.
    own.iter().for_each(|worker| worker.all("fill l 0 200 1\ncheck l 0 200 1"));
    reader.ok("check m 100 100 1");
    for (worker, line) in writers {
        assert!(worker.answer_within(Duration::ZERO).is_none(), "{line}: the replica has not heard of it");
    }
    signal(replica, libc::SIGCONT);
    writers.iter().for_each(|(worker, _)| drop(worker.answer().unwrap()));
    let other = another(&hosts[1], NAME);
    for worker in [&first, &second, &third, &reader, &other] {
        let seen = ["get m 0", "get m 1", "get m 8192"].map(|line| worker.ok(line));
        assert_eq!(seen, ["7", "8", "9"]);
    }
    other.ok("check m 3 253 1");
    assert_eq!(warning(&first), "", "it keeps them still");
}

/// A replica's process stops for good: the home goes on, its keeper starts another, and what that keeps is enough when the home
/// is lost.
#[test]
fn a_replica_that_stands_still_is_survived() {
    let Some(etcd) = Etcd::start() else { return };
    let hosts = hosts(&etcd, 3, 6);
    let home = home_of(&hosts, MIB, 2);
    until_enough(&home);
    home.all(&format!("fill m 0 256 1\nsync o 0 {MIB}"));
    let before = hosts[1].status().host_pid;
    stop(&[before]);
    home.all(&format!("fill m 0 50 2\nsync o 0 {MIB}\nfill m 50 50 3"));
    let other = another(&hosts[2], NAME);
    other.all("check m 50 50 3\nfill m 100 10 4");
    home.ok("check m 100 10 4");
    hosts[1].wait_for_other_host(before);
    until_enough(&home);
    home.all(&format!("fill m 110 10 5\nsync o 0 {MIB}"));
    // It alone is left.
    lose(&hosts[2], &other);
    lose(&hosts[0], &home);
    let last = hosts[1].worker();
    last.eventually(&format!("open o {NAME} rw"));
    last.all("map m o rw shared 0 0\ncheck m 0 50 2\ncheck m 50 50 3\ncheck m 100 10 4\ncheck m 110 10 5");
    last.all("check m 120 136 1\nfill m 0 256 6\ncheck m 0 256 6");
}

/// A replica is lost while etcd is away: the home waits for etcd, in a turn of the object. When its lease ends it fences itself
/// all the same, and not its keeper, which would wait an eighth of the lease longer; and goes on when etcd is back.
#[test]
fn who_fences_the_home_does_not_wait_for_who_waits_for_etcd() {
    let Some(etcd) = Etcd::start() else { return };
    let hosts = hosts(&etcd, 3, 24);
    let home = home_of(&hosts, MIB, 2);
    until_enough(&home);
    home.all(&format!("fill m 0 256 1\nsync o 0 {MIB}"));
    let other = another(&hosts[2], NAME);
    home.ok("fill m 0 10 2");
    etcd.pause(true);
    hosts[1].kill_both();
    other.send("check m 0 10 2"); // the replicas must have it first
    until_says(&hosts[0], "fenced: the registry could not be reached for most of the lease");
    etcd.pause(false);
    other.answer().unwrap();
    other.all("check m 10 246 1\nfill m 10 10 3");
    home.all("check m 0 10 2\ncheck m 10 10 3");
}

/// The disk of a replica is full: the home goes on with the other, and says why. When there is room again it keeps them again.
#[test]
fn a_replica_whose_disk_is_full_is_done_without() {
    let Some(etcd) = Etcd::start() else { return };
    let disk = match RamDisk::new(64) {
        Ok(disk) => disk,
        Err(why) => return left_out(&why.to_string()),
    };
    let mut hosts = hosts(&etcd, 2, 6);
    let words = plain(&etcd, 2, 6);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    hosts.push(TestHost::at(Scratch::new(), disk.path().join("state"), &words));
    let home = home_of(&hosts, 8 * MIB, 2);
    until_enough(&home);
    home.all(&format!("fill m 0 256 1\nsync o 0 {MIB}"));
    let ballast = disk.use_up(5 * MIB);
    home.all(&format!("fill m 0 2048 2\nsync o 0 {}", 8 * MIB));
    let told = wait::until("it says why", || Some(warning(&home)).filter(|told| told.contains("bytes left")));
    assert!(told.contains("1 of 2 replicas") && told.contains("host2: "), "{told}");
    let other = another(&hosts[1], NAME);
    other.ok("check m 0 2048 2");
    home.all(&format!("fill m 0 1024 3\nsync o 0 {}", 8 * MIB));
    std::fs::remove_file(ballast).unwrap();
    until_enough(&home);
    home.all(&format!("fill m 0 512 4\nsync o 0 {}", 8 * MIB));
    lose(&hosts[1], &other);
    lose(&hosts[0], &home);
    let last = hosts[2].worker();
    last.eventually(&format!("open o {NAME} rw"));
    last.all("map m o rw shared 0 0\ncheck m 0 512 4\ncheck m 512 512 3\ncheck m 1024 1024 2");
    drop((last, hosts)); // before the disk
}

/// An object is removed while one of its replicas stands still and the other is dead: what they keep goes when they are back.
#[test]
fn what_is_kept_of_an_object_that_was_removed_meanwhile_goes() {
    let Some(etcd) = Etcd::start() else { return };
    let hosts = hosts(&etcd, 3, 6);
    let home = home_of(&hosts, MIB, 2);
    until_enough(&home);
    home.all(&format!("fill m 0 256 1\nsync o 0 {MIB}"));
    let still = hosts[1].status();
    let still = [still.keeper_pid, still.host_pid];
    stop(&still);
    hosts[2].kill_both();
    home.all(&format!("remove {NAME}\ndrop m\nclose o"));
    wait::until("its home has nothing of it", || nothing_is_kept(&hosts[0]).then_some(()));
    assert!(!nothing_is_kept(&hosts[1]) && !nothing_is_kept(&hosts[2]), "they could not hear of it");
    still.iter().for_each(|pid| signal(*pid, libc::SIGCONT));
    hosts[2].start_again().unwrap();
    for host in &hosts[1..] {
        wait::until("what is kept goes with the object", || nothing_is_kept(host).then_some(()));
    }
    home.eventually(&format!("create o {NAME} size=8192 home-moves strict replicas=2"));
    until_enough(&home);
}

/// A host that was admitted for reading alone keeps nothing, also where no other could.
#[test]
fn a_host_that_may_only_read_is_never_chosen() {
    let Some(etcd) = Etcd::start() else { return };
    let authority = Scratch::new();
    let keys = authority.join("ca");
    ca(&keys, &["init"]);
    let start = |number: usize, more: &[&str]| {
        let (name, identity) = (format!("host{number}"), authority.join(&format!("host{number}")));
        let identity = identity.display().to_string();
        ca(&keys, &[&["issue", &name, "--into", &identity], more].concat());
        let proof = ["--identity".to_owned(), identity];
        start(&words_for(&etcd, number, 6).into_iter().chain(proof).collect::<Vec<_>>())
    };
    let mut hosts = vec![start(0, &[]), start(1, &["--read-only"])];
    let know_all = |hosts: &[TestHost]| {
        let all = |host: &TestHost| host.connect().hosts().is_ok_and(|known| known.len() == hosts.len());
        wait::until("they know each other", || hosts.iter().all(all).then_some(()));
    };
    know_all(&hosts);
    let home = home_of(&hosts, MIB, 1);
    home.all(&format!("fill m 0 256 1\nsync o 0 {MIB}"));
    let reader = hosts[1].worker();
    reader.eventually(&format!("open o {NAME} r"));
    reader.all("map m o r shared 0 0\ncheck m 0 256 1");
    let told = warning(&home);
    assert!(told.contains("0 of 1 replicas"), "{told}");
    hosts.push(start(2, &[]));
    until_enough(&home);
    assert!(hosts[0].log().contains("host2 keeps its pages\n") && nothing_is_kept(&hosts[1]));
    home.all(&format!("fill m 0 20 2\nsync o 0 {MIB}"));
    lose(&hosts[0], &home);
    let next = another(&hosts[2], NAME);
    next.all(&format!("check m 0 20 2\ncheck m 20 236 1\nfill m 20 20 3\nsync o 0 {MIB}"));
    reader.all("check m 0 20 2\ncheck m 20 20 3");
    assert!(warning(&next).contains("0 of 1 replicas") && nothing_is_kept(&hosts[1]));
    for host in [&hosts[0], &hosts[2]] {
        assert!(!host.log().contains("host1 keeps its pages\n"), "{}", host.log());
    }
}
