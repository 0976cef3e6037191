//! Hosts, keepers and clients killed at random instants: nothing is lost, nobody waits for ever.

use commonhold_tests::crash::{Chance, Job, Victim, kill_and_recover, rounds};
use commonhold_tests::host::kill;
use commonhold_tests::{TestHost, wait};

/// Kinds of controlled objects, as options of `create`.
const KINDS: [&str; 4] = ["controlled", "freezable", "file=FILE sync=ordered", "file=FILE sync=atomic"];

/// Rounds with one host: each death of a young host is followed by a longer pause before the next.
const ROUNDS_A_HOST: usize = 4;

/// Lets writers write, kills, lets them go on, and so on; then all must be there.
fn kill_while_writing(what: &str, share: usize, victim: Victim, more: &str) {
    let mut chance = Chance::new(what);
    let mut left = rounds(share);
    while left > 0 {
        let kind = KINDS[chance.below(4) as usize];
        let host = TestHost::start();
        let job = Job::begin(&host, "/job", &format!("{kind} {more}"), 1024, 2);
        for _ in 0..left.min(ROUNDS_A_HOST) {
            left -= 1;
            chance.pause(40);
            kill_and_recover(&host, victim);
            job.wait_for_progress();
        }
        job.end(&host);
    }
}

#[test]
fn host() {
    kill_while_writing("host", 40, Victim::Host, "");
}

#[test]
fn keeper() {
    kill_while_writing("keeper", 20, Victim::Keeper, "");
}

#[test]
fn host_and_keeper() {
    kill_while_writing("host_and_keeper", 40, Victim::Both, "");
}

#[test]
fn host_while_it_evicts() {
    kill_while_writing("host_while_it_evicts", 30, Victim::Host, "budget=1048576");
}

#[test]
fn host_and_keeper_while_they_evict() {
    kill_while_writing("host_and_keeper_while_they_evict", 12, Victim::Both, "budget=1048576");
}

#[test]
fn keeper_and_then_host() {
    let mut chance = Chance::new("keeper_and_then_host");
    for _ in 0..rounds(8) {
        let host = TestHost::start();
        let job = Job::begin(&host, "/job", KINDS[chance.below(4) as usize], 512, 2);
        chance.pause(20);
        let status = host.status();
        // The host may be filling the next keeper, or be dead before it noticed.
        kill(status.keeper_pid);
        chance.pause(10);
        kill(status.host_pid);
        wait::until("another host is there", || {
            // Both may be gone before either could help the other.
            if host.processes().is_empty() {
                host.start_again().expect("the host starts again");
            }
            let answering = commonhold::Host::connect_to(host.state()).and_then(|h| h.status()).ok();
            answering.filter(|s| s.host_pid != status.host_pid).map(drop)
        });
        job.wait_for_progress();
        job.end(&host);
    }
}

#[test]
fn clients() {
    let mut chance = Chance::new("clients");
    for _ in 0..rounds(20).div_ceil(4) {
        let host = TestHost::start();
        let mut job = Job::begin(&host, "/job", KINDS[chance.below(4) as usize], 1024, 3);
        for _ in 0..4 {
            chance.pause(30);
            let index = chance.below(3);
            job.writers[index as usize].kill();
            // Others see what it did last, go on, and its place is taken.
            job.wait_for_progress();
            let next = host.worker();
            job.go_on(&next, index, 3);
            job.writers[index as usize] = next;
        }
        job.wait_for_progress();
        job.end(&host);
    }
}

#[test]
fn clients_while_the_host_evicts() {
    let mut chance = Chance::new("clients_while_the_host_evicts");
    for kind in KINDS {
        let host = TestHost::start();
        let mut job = Job::begin(&host, "/job", &format!("{kind} budget=1048576"), 1024, 3);
        for _ in 0..rounds(20).div_ceil(4) {
            chance.pause(40);
            let index = chance.below(3);
            job.writers[index as usize].kill();
            job.wait_for_progress();
            let next = host.worker();
            job.go_on(&next, index, 3);
            job.writers[index as usize] = next;
        }
        job.end(&host);
    }
}

#[test]
fn everything_in_turn() {
    let mut chance = Chance::new("everything_in_turn");
    for _ in 0..rounds(22).div_ceil(ROUNDS_A_HOST) {
        let host = TestHost::start();
        let mut jobs: Vec<Job> = KINDS
            .iter()
            .enumerate()
            .map(|(n, kind)| Job::begin(&host, &format!("/job{n}"), kind, 256, 1))
            .collect();
        for _ in 0..ROUNDS_A_HOST {
            chance.pause(20);
            match chance.below(4) {
                0 => kill_and_recover(&host, Victim::Host),
                1 => kill_and_recover(&host, Victim::Keeper),
                2 => kill_and_recover(&host, Victim::Both),
                _ => {
                    let job = &mut jobs[chance.below(4) as usize];
                    // Somebody else keeps an anonymous object in use.
                    let (next, keeps) = (host.worker(), host.worker());
                    keeps.all("open o /job0 r\nmap m o r shared 0 0");
                    job.wait_until_back(&keeps);
                    job.writers[0].kill();
                    job.check(&next);
                    job.go_on(&next, 0, 1);
                    job.writers[0] = next;
                }
            }
            jobs.iter().for_each(Job::wait_for_progress);
        }
        jobs.iter().for_each(|job| job.end(&host));
    }
}
