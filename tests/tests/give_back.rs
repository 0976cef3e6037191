//! What a host has newest is not lost with a process: its home's, its own, or both; nor with the messages between them. What
//! is looked at is what pages hold, never how long it took.

use commonhold_tests::cluster::{leased_cluster, says, sharers_from, until_says};
use commonhold_tests::crash::{Chance, rounds};
use commonhold_tests::cut::cut_connections;
use commonhold_tests::host::{kill_together, signal};
use commonhold_tests::{MIB, TestHost, Worker, left_out};
use std::sync::atomic::{AtomicBool, Ordering};

/// How objects are scheduled: nothing is lost either way.
const SCHEDULERS: [&str; 2] = ["central", "forwarding"];

/// Workers of all hosts, with an object of a MiB mapped as `m` that the host of number `home` made.
fn shared(hosts: &[TestHost], home: usize, options: &str) -> Vec<Worker> {
    sharers_from(hosts, home, "/shared", &format!("size={MIB} {options}"))
}

fn pids(hosts: &[TestHost], numbers: &[usize]) -> Vec<u32> {
    numbers.iter().map(|number| hosts[*number].status().host_pid).collect()
}

#[test]
fn what_a_sharer_had_newest_outlives_its_process() {
    for how in SCHEDULERS {
        let hosts = leased_cluster(3, 60);
        let workers = shared(&hosts, 0, how);
        workers[0].ok("fill m 0 256 1");
        workers[1].ok("fill m 10 50 2");
        workers[2].ok("check m 30 5 2");
        hosts[1].kill_host();
        workers[2].all("check m 0 10 1\ncheck m 10 50 2\ncheck m 60 196 1\nfill m 10 5 3");
        workers[0].all("check m 10 5 3\ncheck m 15 45 2");
        workers[1].all("check m 10 5 3\ncheck m 15 45 2\nfill m 20 1 4");
        // And once more: the next process is asked in the name of the one before it.
        hosts[1].kill_host();
        workers[0].ok("check m 20 1 4");
        match how {
            "central" => until_says(&hosts[0], "host1 gave|pages back"),
            _ => until_says(&hosts[1], "of the process before are newest here"),
        }
    }
}

#[test]
fn what_was_lent_outlives_the_process_of_the_home() {
    for how in SCHEDULERS {
        let hosts = leased_cluster(3, 60);
        let workers = shared(&hosts, 1, how);
        workers[1].ok("fill m 0 256 1");
        workers[0].ok("fill m 0 30 2");
        workers[2].ok("fill m 20 30 3");
        hosts[1].kill_host();
        for worker in &workers {
            worker.all("check m 0 20 2\ncheck m 20 30 3\ncheck m 50 206 1");
        }
        workers[2].ok("fill m 0 1 4");
        hosts[1].kill_host();
        workers[1].all("check m 0 1 4\ncheck m 1 19 2");
    }
}

#[test]
fn what_was_lent_outlives_the_processes_of_both() {
    for how in SCHEDULERS {
        let hosts = leased_cluster(3, 60);
        let workers = shared(&hosts, 1, how);
        workers[1].ok("fill m 0 256 1");
        workers[2].ok("fill m 20 30 3");
        workers[0].ok("fill m 0 10 2");
        kill_together(&pids(&hosts, &[1, 2]));
        for worker in &workers {
            worker.all("check m 0 10 2\ncheck m 10 10 1\ncheck m 20 30 3\ncheck m 50 206 1");
        }
        workers[0].ok("fill m 100 10 5");
        workers[2].ok("fill m 0 5 6");
        // The list's host, too: all processes are new.
        kill_together(&pids(&hosts, &[0, 1, 2]));
        for worker in &workers {
            worker.all("check m 0 5 6\ncheck m 5 5 2\ncheck m 100 10 5\ncheck m 20 30 3");
        }
    }
}

/// A host that fences itself, because its registry is away, keeps what it had newest.
#[test]
fn what_a_fenced_host_had_newest_comes_back_with_it() {
    for how in SCHEDULERS {
        let hosts = leased_cluster(3, 5);
        let workers = shared(&hosts, 1, how);
        workers[1].ok("fill m 0 50 1");
        workers[2].ok("fill m 0 10 2");
        hosts[0].kill_both();
        until_says(&hosts[2], "fenced: ");
        until_says(&hosts[1], "fenced: ");
        workers[1].send("check m 0 10 2");
        hosts[0].start_again().unwrap();
        assert_eq!(workers[1].answer().as_deref(), Ok(""));
        workers[2].all("check m 0 10 2\ncheck m 10 40 1");
    }
}

/// The host, its keeper and with them its frames are gone: as before.
#[test]
fn what_died_with_its_keeper_is_an_error_or_the_version_before() {
    for on_loss in ["strict", "strict=revert"] {
        let hosts = leased_cluster(2, 3);
        let workers = shared(&hosts, 0, on_loss);
        let reader = hosts[0].worker();
        reader.all("open o /shared r\nmap m o r shared 0 0");
        workers[0].ok("fill m 0 256 1");
        reader.ok("check m 0 256 1");
        workers[1].ok("fill m 10 5 2");
        hosts[1].kill_both();
        workers[1].kill();
        workers[0].all("check m 0 10 1\ncheck m 15 200 1");
        if on_loss == "strict" {
            // Whether a process had the page in its page tables before or not.
            let doomed = hosts[0].worker();
            doomed.all("open o /shared r\nmap m o r shared 0 0");
            doomed.dies("get m 45056", libc::SIGBUS);
            reader.dies("get m 49152", libc::SIGBUS);
            // The home's next process does not wait for it, and takes it for lost as well.
            hosts[0].kill_host();
            workers[0].ok("check m 0 10 1");
            assert_eq!(workers[0].ok("revert /shared"), "5");
        }
        workers[0].ok("check m 0 256 1");
    }
}

/// The next process comes before the lease of the one before has ended, and has nothing of it: that is known, and no older
/// version is taken for the newest.
#[test]
fn what_died_with_its_keeper_is_lost_however_soon_the_next_comes() {
    for how in SCHEDULERS {
        let hosts = leased_cluster(3, 60);
        let workers = shared(&hosts, 0, how);
        workers[0].ok("fill m 0 256 1");
        workers[2].ok("fill m 0 20 2");
        workers[1].ok("fill m 10 5 3");
        hosts[1].kill_both();
        workers[1].kill();
        hosts[1].start_again().unwrap();
        workers[0].all("check m 0 10 2\ncheck m 15 5 2\ncheck m 20 200 1");
        let doomed = hosts[0].worker();
        doomed.all("open o /shared r\nmap m o r shared 0 0");
        doomed.dies("get m 45056", libc::SIGBUS);
        assert_eq!(workers[0].ok("revert /shared"), "5", "{how}");
    }
}

#[test]
fn what_is_used_again_outlives_the_process() {
    for how in SCHEDULERS {
        let hosts = leased_cluster(3, 60);
        let workers = shared(&hosts, 0, how);
        workers[1].all("fill m 0 50 1\ndrop m\nclose o\nopen o /shared rw\nmap m o rw shared 0 0");
        workers[1].all("check m 0 50 1\nfill m 0 30 2");
        workers[2].all("check m 0 10 2\nfill m 20 20 3");
        hosts[1].kill_host();
        workers[0].all("check m 0 20 2\ncheck m 20 20 3\ncheck m 40 10 1");
        workers[1].ok("check m 0 20 2");
    }
}

/// Messages between a sharer and the home are lost while both live: neither process is another afterwards. (Under forwarding it
/// is: `leases.rs`.)
#[test]
fn what_is_newest_outlives_a_session() {
    let hosts = leased_cluster(3, 120);
    let workers = shared(&hosts, 1, "central");
    workers[1].ok("fill m 0 100 1");
    workers[2].ok("fill m 0 20 2");
    let before = pids(&hosts, &[1, 2]);
    signal(before[0], libc::SIGSTOP);
    // Nobody answers who connects again.
    if cut_connections(before[1]) == 0 {
        signal(before[0], libc::SIGCONT);
        left_out("connections of another process cannot be cut here");
        return;
    }
    until_says(&hosts[2], "may be lost");
    signal(before[0], libc::SIGCONT);
    workers[1].all("check m 0 20 2\ncheck m 20 80 1\nfill m 0 1 3");
    workers[2].all("check m 0 1 3\ncheck m 1 19 2\nfill m 5 1 4");
    workers[0].all("check m 5 1 4\ncheck m 6 14 2");
    assert_eq!(pids(&hosts, &[1, 2]), before);
}

/// The last user of an object closes it while its home is away: what it wrote stays until the next home asks for it.
#[test]
fn what_was_left_off_while_the_home_was_away_comes_home() {
    for how in SCHEDULERS {
        let hosts = leased_cluster(2, 60);
        let workers = shared(&hosts, 0, how);
        let before = pids(&hosts, &[1]);
        workers[0].ok("fill m 0 100 1");
        workers[1].ok("fill m 0 50 2");
        hosts[0].kill_host();
        until_says(&hosts[1], "host0 cannot be reached");
        workers[1].all("drop m\nclose o");
        workers[0].all("check m 0 50 2\ncheck m 50 50 1\nfill m 0 10 3");
        workers[1].eventually("open o /shared rw");
        workers[1].all("map m o rw shared 0 0\ncheck m 0 10 3\ncheck m 10 40 2\nfill m 0 5 4");
        workers[0].ok("check m 0 5 4");
        // Nobody uses it there when its home is another process again.
        workers[1].all("drop m\nclose o");
        hosts[0].kill_host();
        workers[0].ok("check m 0 5 4");
        workers[1].eventually("open o /shared rw");
        workers[1].all("map m o rw shared 0 0\ncheck m 0 5 4\ncheck m 5 5 3");
        assert_eq!(pids(&hosts, &[1]), before, "{how}: no host begins anew for that");
    }
}

/// Processes die at any instant, also while pages are given back: after each of them everything is as it was written last.
#[test]
fn kills_at_any_instant_lose_nothing() {
    for how in SCHEDULERS {
        let mut chance = Chance::new("giving back");
        let hosts = leased_cluster(3, 60);
        let workers = shared(&hosts, 1, how);
        workers[1].ok("fill m 0 256 1");
        let mut newest = vec![1; 256];
        for turn in 0..rounds(12) {
            let version = 2 + turn as u64;
            let writer = chance.below(3) as usize;
            let first = chance.below(200) as usize;
            workers[writer].ok(&format!("fill m {first} 56 {version}"));
            newest[first..first + 56].fill(version);
            let victims: &[usize] = [&[1][..], &[2], &[0], &[1, 2], &[0, 1, 2]][chance.below(5) as usize];
            kill_together(&pids(&hosts, victims));
            chance.pause(40);
            let again = victims[chance.below(victims.len() as u64) as usize];
            kill_together(&pids(&hosts, &[again]));
            let reader = &workers[chance.below(3) as usize];
            for (page, version) in newest.iter().enumerate() {
                reader.ok(&format!("check m {page} 1 {version}"));
            }
        }
    }
}

/// Under forwarding nobody but the hosts themselves knows who has what: a home that begins anew asks all of them.
#[test]
fn what_is_forwarded_outlives_the_process_of_the_home() {
    let hosts = leased_cluster(3, 60);
    let workers = shared(&hosts, 1, "forwarding");
    workers[1].ok("fill m 0 256 1");
    workers[0].ok("fill m 0 30 2");
    workers[2].all("fill m 20 30 3\ncheck m 0 20 2");
    workers[0].ok("check m 40 10 3");
    hosts[1].kill_host();
    for worker in &workers {
        worker.all("check m 0 20 2\ncheck m 20 30 3\ncheck m 50 206 1");
    }
    workers[2].ok("fill m 0 1 4");
    workers[0].all("check m 0 1 4\ncheck m 1 19 2");
}

/// The same while every host writes: what is on its way between two hosts at that instant is not lost either.
#[test]
fn kills_under_load_lose_no_increment() {
    for how in SCHEDULERS {
        let hosts = leased_cluster(3, 60);
        let workers = shared(&hosts, 1, how);
        let over = AtomicBool::new(false);
        let mut times = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _over = SetOnDrop(&over);
                let mut chance = Chance::new("giving back under load");
                for _ in 0..rounds(10) {
                    chance.pause(200);
                    kill_together(&pids(&hosts, &[chance.below(3) as usize]));
                }
            });
            while !over.load(Ordering::Relaxed) {
                times += 100;
                workers.iter().for_each(|worker| worker.send("add m 0 3 100"));
                workers.iter().for_each(|worker| drop(worker.answer().expect("it adds")));
            }
        });
        for worker in &workers {
            assert_eq!(worker.ok("sum m 0 3"), (3 * times).to_string());
        }
        assert!(!says(&hosts[1], "are lost with"), "{}", hosts[1].log());
    }
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
