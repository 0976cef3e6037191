//! Processes that write without a pause to objects that hosts share, while hosts and keepers are killed: what was
//! written is there afterwards, here and at the other host.

use commonhold_tests::cluster::{another, pair};
use commonhold_tests::crash::{Chance, Job, Victim, kill_and_recover, rounds};
use commonhold_tests::{TestHost, Worker};

const PAGES: u64 = 64;

/// An object of the first host, whose pages a process there counts up without a pause.
fn counted(hosts: &[TestHost; 2], options: &str) -> Job {
    Job::begin(&hosts[0], "/shared", options, PAGES, 1)
}

/// Both hosts see what was counted.
fn nothing_is_lost(job: &Job, hosts: &[TestHost; 2], reader: &Worker) {
    job.end(&hosts[0]);
    job.check(reader);
    job.check(&hosts[1].worker());
}

#[test]
fn what_a_live_client_of_the_home_writes_outlives_host_and_keeper() {
    for options in ["central", "forwarding", "central freezable", "explicit file=FILE sync=ordered"] {
        let hosts = pair(&[]);
        let job = counted(&hosts, options);
        let fresh = hosts[0].worker();
        for _ in 0..rounds(12).max(6) {
            job.wait_for_progress();
            kill_and_recover(&hosts[0], Victim::Both);
            // At once, in the instant in which the object comes back: others of its host touch it.
            job.wait_until_back(&fresh);
            fresh.all("drop back\nclose back");
            job.wait_for_progress();
        }
        job.end(&hosts[0]);
    }
}

/// The next process of a home takes nothing away from its processes at its start: the other host gets each page as it is
/// when it asks for it.
#[test]
fn what_processes_of_the_home_have_by_the_host_before_others_get_as_it_is() {
    for options in ["central", "forwarding"] {
        let hosts = pair(&[]);
        let job = counted(&hosts, options);
        let reader = another(&hosts[1], "/shared");
        let mut chance = Chance::new(options);
        for _ in 0..rounds(16).max(8) {
            let victim = if chance.below(2) == 0 { Victim::Host } else { Victim::Both };
            kill_and_recover(&hosts[0], victim);
            for _ in 0..4 {
                chance.pause(20);
                // A page that is read elsewhere cannot be written at home, and one that is written there not be seen.
                let first = chance.below(PAGES - 8);
                reader.eventually(&format!("sum m {first} 8"));
            }
            job.wait_for_progress();
        }
        nothing_is_lost(&job, &hosts, &reader);
    }
}
