//! Mutexes that hosts share: `docs/PRIMITIVES.md`, "Between hosts".

use commonhold_tests::cluster::{another, brief_cluster, cluster, sharers_from};
use commonhold_tests::host::{kill_together, signal};
use commonhold_tests::wait::until;
use commonhold_tests::{TestHost, Worker};
use std::time::Duration;

/// It waits: for so long there is no answer.
fn waits(worker: &Worker) {
    assert!(worker.answer_within(Duration::from_millis(200)).is_none(), "it does not wait");
}

/// A worker on each host that has the mutex `/m` open as `m`. The first made it.
fn mutex_on(hosts: &[TestHost]) -> Vec<Worker> {
    let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    workers[0].ok("by-name create m mutex /m hosts mode=0666");
    workers[1..].iter().for_each(|worker| drop(worker.ok("by-name open m mutex /m")));
    workers
}

#[test]
fn what_it_guards_is_one_threads_at_a_time_on_all_hosts() {
    let hosts = cluster(3);
    let first = sharers_from(&hosts, 1, "/sum", "size=4096 strict");
    first[0].ok("by-name create m mutex /m hosts");
    let second: Vec<Worker> = hosts.iter().map(|host| another(host, "/sum")).collect();
    let all: Vec<&Worker> = first.iter().chain(&second).collect();
    all[1..].iter().for_each(|worker| drop(worker.ok("by-name open m mutex /m")));
    all.iter().for_each(|worker| worker.send("threads 2 by-name work m m 150"));
    all.iter().for_each(|worker| drop(worker.answer().unwrap()));
    assert_eq!(first[2].ok("sum m 0 1"), (6 * 2 * 150).to_string());
}

#[test]
fn who_waits_gets_it_in_turn() {
    let hosts = cluster(3);
    let workers = mutex_on(&hosts);
    for (holder, waiter) in [(0, 1), (1, 2), (2, 0), (0, 2)] {
        workers[holder].ok("by-name lock m 5000");
        workers[waiter].refused("by-name lock m 0", "TimedOut");
        workers[waiter].refused("by-name lock m 50", "TimedOut");
        workers[waiter].refused("by-name unlock m", "NotOwner");
        workers[waiter].send("by-name lock m -");
        waits(&workers[waiter]);
        workers[holder].ok("by-name unlock m");
        workers[waiter].answer().expect("it was let go");
        workers[waiter].ok("by-name unlock m");
    }
}

#[test]
fn a_dead_owners_goes_to_the_next_on_another_host() {
    let hosts = cluster(2);
    let workers = mutex_on(&hosts);
    for (dies, next) in [(0, 1), (1, 0)] {
        let dying = hosts[dies].worker();
        dying.all("by-name open m mutex /m\nby-name lock m 5000");
        workers[next].send("by-name lock m -");
        waits(&workers[next]);
        dying.kill();
        let said = workers[next].answer().expect_err("its owner died");
        assert_eq!(said.kind, "OwnerDied", "{said:?}");
        // It is said until somebody says that what it guards is whole, on whatever host.
        workers[dies].refused("by-name lock m 5000", "OwnerDied");
        assert_eq!(workers[dies].ok("by-name mend m 5000"), "true");
        workers[dies].ok("by-name unlock m");
        workers[next].all("by-name lock m 5000\nby-name unlock m");
    }
}

#[test]
fn a_host_that_is_killed_is_followed_by_one_that_knows_who_has_what() {
    let hosts = cluster(3);
    let workers = mutex_on(&hosts);
    for (killed, waiter) in [(1, 2), (0, 1), (2, 0)] {
        workers[killed].ok("by-name lock m 20000");
        workers[waiter].send("by-name lock m 30000");
        waits(&workers[waiter]);
        let before = hosts[killed].status().host_pid;
        hosts[killed].kill_host();
        hosts[killed].wait_for_other_host(before);
        waits(&workers[waiter]); // its owner lives
        workers[killed].ok("by-name unlock m");
        workers[waiter].answer().expect("it was let go");
        workers[waiter].ok("by-name unlock m");
        // And all go on.
        workers.iter().for_each(|worker| worker.all("by-name lock m 20000\nby-name unlock m"));
    }
}

#[test]
fn what_a_lost_machine_had_the_next_is_told_of() {
    let mut hosts = brief_cluster(3);
    let workers = mutex_on(&hosts);
    workers[1].ok("by-name lock m 5000");
    workers[2].send("by-name mend m 60000");
    waits(&workers[2]);
    let machine = hosts.remove(1);
    kill_together(&[machine.processes(), vec![workers[1].pid()]].concat());
    assert_eq!(workers[2].answer().expect("the token is made anew"), "true");
    workers[2].ok("by-name unlock m");
    workers[0].all("by-name lock m 5000\nby-name unlock m");
}

#[test]
fn who_leaves_takes_nothing_along() {
    let hosts = cluster(2);
    let first = hosts[0].worker();
    first.ok("by-name create m mutex /m hosts count=3");
    for _ in 0..3 {
        let other = hosts[1].worker();
        other.all("by-name open m mutex /m\nby-name at m 2 as=n\nby-name lock m 5000\nby-name lock n 5000");
        other.ok("by-name unlock n");
        first.ok("by-name at m 2 as=n");
        other.ok("by-name close m");
        other.ok("by-name close n");
        first.all("by-name lock n 5000\nby-name unlock n");
        first.refused("by-name lock m 5000", "OwnerDied"); // it was closed while it was locked
        assert_eq!(first.ok("by-name mend m 5000"), "true");
        first.all("by-name unlock m\nby-name close n");
    }
}

#[test]
fn a_stopped_owner_keeps_others_waiting_and_no_more() {
    let hosts = cluster(2);
    let workers = mutex_on(&hosts);
    workers[1].ok("by-name lock m 5000");
    signal(workers[1].pid(), libc::SIGSTOP);
    workers[0].refused("by-name lock m 300", "TimedOut");
    signal(workers[1].pid(), libc::SIGCONT);
    workers[1].ok("by-name unlock m");
    until("the token came", || workers[0].ask("by-name lock m 100").ok());
}

#[test]
fn words_that_ended_with_host_and_keeper_are_not_taken_for_those_of_the_next() {
    let hosts = cluster(2);
    let workers = mutex_on(&hosts);
    for at in [1, 0] {
        workers[at].ok("by-name lock m 20000");
        hosts[at].kill_both();
        hosts[at].start_again().expect("it starts");
        let unlocks = || workers[at].ask("by-name unlock m").err().filter(|refused| refused.kind == "Lost");
        until("the client has noticed", unlocks);
        workers[at].refused("by-name lock m 100", "Lost");
        workers[at].ok("by-name close m");
        until("the host has joined", || workers[at].ask("by-name open m mutex /m").ok());
        assert_eq!(workers[at].ok("by-name mend m 60000"), "true");
        workers[at].ok("by-name unlock m");
        workers[1 - at].all("by-name lock m 20000\nby-name unlock m");
    }
}

/// What a host says of its end must not end what it has begun since.
#[test]
fn who_leaves_and_comes_back_at_once_takes_part() {
    let hosts = cluster(3);
    let workers = mutex_on(&hosts);
    // Of a token that is on its way when hosts leave it may be said that an owner died.
    let lines = ["mend m 30000", "unlock m", "close m", "open m mutex /m"];
    let say = |worker: &Worker| lines.iter().for_each(|line| worker.send(&format!("by-name {line}")));
    for _ in 0..40 {
        workers[1..].iter().for_each(say);
        for worker in &workers[1..] {
            lines
                .iter()
                .for_each(|line| drop(worker.answer().unwrap_or_else(|why| panic!("{line}: {why:?}"))));
        }
    }
    workers.iter().for_each(|worker| worker.all("by-name mend m 20000\nby-name unlock m"));
}

/// A thread that sleeps on words that nobody will change any more would sleep for ever.
#[test]
fn who_waits_when_host_and_keeper_die_is_told() {
    let hosts = cluster(2);
    let workers = mutex_on(&hosts);
    for at in [1, 0] {
        let other = hosts[at].worker();
        other.ok("by-name open m mutex /m");
        for (owner, waiter) in [(&workers[at], &other), (&workers[1 - at], &workers[at])] {
            owner.ok("by-name mend m 30000");
            waiter.send("by-name lock m -");
            waits(waiter);
            hosts[at].kill_both();
            hosts[at].start_again().expect("it starts");
            let said = waiter.answer().expect_err("its words are gone");
            assert_eq!(said.kind, "Lost", "{said:?}");
            drop(owner.ask("by-name unlock m")); // of the words that are gone, or it is another host's
            for worker in [&workers[at], &other] {
                worker.ok("by-name close m");
                until("the host has joined", || worker.ask("by-name open m mutex /m").ok());
            }
            waiter.ok("by-name mend m 60000");
            waiter.ok("by-name unlock m");
        }
    }
}

/// Words stay in memory: of one user's objects no more than 32 MiB are there.
#[test]
fn one_user_takes_no_more_than_a_part_of_a_hosts_memory() {
    let hosts = cluster(2);
    let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    for number in 0..8 {
        workers[0].ok(&format!("by-name create m{number} mutex /m{number} hosts count=65536"));
        workers[1].ok(&format!("by-name open m{number} mutex /m{number}"));
    }
    let said = workers[0].refused("by-name create m8 mutex /m8 hosts count=65536", "NoSpace");
    assert!(said.contains("32 MiB"), "{said}");
    workers[0].refused("open m8 /m8 rw", "NotFound"); // it was removed again
    workers[1].ok("by-name close m0");
    workers[0].all("by-name close m0\nby-name lock m1 5000");
    workers[1].refused("by-name lock m1 50", "TimedOut");
}

/// Words take whole pages, however few there are.
#[test]
fn many_small_ones_take_no_more() {
    let host = TestHost::start();
    let worker = host.worker();
    for number in 0..7 {
        worker.ok(&format!("by-name create m{number} mutex /m{number} hosts count=65536"));
    }
    worker.ok("by-name create most mutex /most hosts count=65472"); // all but one page
    worker.ok("by-name create a mutex /a hosts");
    let said = worker.refused("by-name create b mutex /b hosts", "NoSpace");
    assert!(said.contains("remove some"), "{said}");
    worker.all("by-name close a\nremove /a");
    worker.eventually("by-name create b mutex /b hosts");
}

#[test]
fn on_one_host_alone_they_are_as_any_others() {
    let host = TestHost::start();
    let worker = host.worker();
    worker.all("by-name create m mutex /m hosts\nby-name lock m 0\nby-name unlock m");
    let other = host.worker();
    other.all("by-name open m mutex /m\nby-name lock m 0");
    worker.refused("by-name lock m 10", "TimedOut");
    other.kill();
    worker.refused("by-name lock m 5000", "OwnerDied");
}
