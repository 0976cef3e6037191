//! Semaphores, counters, conditions, barriers and locks to read or write that hosts share: `docs/PRIMITIVES.md`, "Between hosts".

use commonhold_tests::cluster::{brief_cluster, cluster};
use commonhold_tests::crash::rounds;
use commonhold_tests::host::kill_together;
use commonhold_tests::{TestHost, Worker};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

/// It waits: for so long there is no answer.
fn waits(worker: &Worker) {
    assert!(worker.answer_within(Duration::from_millis(200)).is_none(), "it does not wait");
}

/// A worker on each host that has a primitive open as `x`. The first made it.
fn on(hosts: &[TestHost], kind: &str, number: &str) -> Vec<Worker> {
    let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    workers[0].ok(&format!("by-name create x {kind} /x {number} hosts"));
    workers[1..].iter().for_each(|worker| drop(worker.ok(&format!("by-name open x {kind} /x"))));
    workers
}

#[test]
fn what_a_semaphore_has_threads_of_all_hosts_take() {
    let hosts = cluster(3);
    let workers = on(&hosts, "semaphore", "2");
    workers[1].ok("by-name acquire x -");
    workers[2].ok("by-name acquire x 5000");
    workers[0].refused("by-name acquire x 50", "TimedOut");
    assert_eq!(workers[0].ok("by-name value x"), "0");
    workers[0].send("by-name acquire x -");
    workers[1].send("by-name acquire x -");
    waits(&workers[0]);
    workers[2].ok("by-name release x 2");
    workers[..2].iter().for_each(|worker| drop(worker.answer().expect("both are given")));
    workers[2].ok("by-name release x 7");
    assert_eq!(workers[1].ok("by-name value x"), "7");
    workers[0].refused("by-name release x 2147483647", "Invalid");
    assert_eq!(workers[0].ok("by-name value x"), "7");
}

#[test]
fn a_counter_gives_each_ticket_once() {
    let hosts = cluster(3);
    let workers = on(&hosts, "counter", "0");
    let paths: Vec<_> = (0..3).map(|at| hosts[0].scratch().path().join(format!("tickets{at}"))).collect();
    for (worker, path) in workers.iter().zip(&paths) {
        worker.send(&format!("by-name tickets x 200 {}", path.display()));
    }
    workers.iter().for_each(|worker| drop(worker.answer().expect("tickets")));
    let read = |path| std::fs::read_to_string(path).expect("they were written");
    let all: HashSet<u64> = paths
        .iter()
        .flat_map(|path| read(path).lines().map(|n| n.parse().unwrap()).collect::<Vec<_>>())
        .collect();
    assert_eq!(all, (0..600).collect());
    workers[1].send("by-name while x 600 -");
    waits(&workers[1]);
    workers[2].ok("by-name add x 5");
    assert_eq!(workers[1].answer().expect("it is another"), "605");
    workers[0].refused("by-name while x 605 100", "TimedOut");
}

#[test]
fn who_comes_last_lets_all_hosts_threads_through_a_barrier() {
    let hosts = cluster(3);
    let workers = on(&hosts, "barrier", "3");
    for round in 0..rounds(20) {
        let last = round % 3;
        let others: Vec<&Worker> = (0..3).filter(|at| *at != last).map(|at| &workers[at]).collect();
        others.iter().for_each(|worker| worker.send("by-name arrive x -"));
        if round < 3 {
            others.iter().for_each(|worker| waits(worker));
            workers[last].ok("by-name arrive x -");
        } else {
            workers[last].send("by-name arrive x -");
            drop(workers[last].answer().expect("all are there"));
        }
        others.iter().for_each(|worker| drop(worker.answer().expect("all are there")));
    }
}

#[test]
fn a_barriers_round_is_broken_by_whoever_ends_or_gives_it_up() {
    let hosts = cluster(3);
    let workers = on(&hosts, "barrier", "3");
    // Who gives up was not there.
    workers[1].refused("by-name arrive x 100", "TimedOut");
    workers[0].send("by-name arrive x -");
    waits(&workers[0]);
    workers[1].ok("by-name abort x");
    assert_eq!(workers[0].answer().expect_err("it was given up").kind, "Broken");
    // Who arrived ends.
    let dying = hosts[2].worker();
    dying.ok("by-name open x barrier /x");
    dying.send("by-name arrive x -");
    workers[0].send("by-name arrive x -");
    waits(&workers[0]);
    dying.kill();
    assert_eq!(workers[0].answer().expect_err("one ended").kind, "Broken");
    // A newcomer makes up for it.
    workers[0].send("by-name arrive x 20000");
    workers[1].send("by-name arrive x 20000");
    waits(&workers[1]);
    workers[2].ok("by-name arrive x 20000");
    workers[..2].iter().for_each(|worker| drop(worker.answer().expect("all are there")));
    // Who closes it leaves it.
    let leaves = hosts[1].worker();
    leaves.all("by-name open x barrier /x");
    leaves.refused("by-name arrive x 50", "TimedOut");
    workers[0].send("by-name arrive x 20000");
    waits(&workers[0]);
    leaves.ok("by-name close x");
    waits(&workers[0]);
    workers[1].send("by-name arrive x 20000");
    workers[2].ok("by-name arrive x 20000");
    workers[..2].iter().for_each(|worker| drop(worker.answer().expect("all are there")));
}

#[test]
fn a_signal_wakes_who_waits_on_another_host() {
    let hosts = cluster(2);
    let workers = on(&hosts, "condition", "0");
    workers[0].ok("by-name create m mutex /m hosts");
    workers[1].ok("by-name open m mutex /m");
    for (waiter, signaller, how) in [(0, 1, "signal"), (1, 0, "broadcast"), (0, 1, "broadcast")] {
        workers[waiter].ok("by-name lock m 5000");
        workers[waiter].refused("by-name wait x m 100", "TimedOut");
        workers[waiter].send("by-name wait x m -");
        waits(&workers[waiter]);
        workers[signaller].all(&format!("by-name lock m 5000\nby-name {how} x"));
        waits(&workers[waiter]);
        workers[signaller].ok("by-name unlock m");
        workers[waiter].answer().expect("it was signalled");
        workers[waiter].ok("by-name unlock m");
        workers[waiter].refused("by-name wait x m 100", "NotOwner");
    }
}

#[test]
fn hosts_read_together_and_write_alone() {
    let hosts = cluster(3);
    let workers = on(&hosts, "rwlock", "0");
    workers[0].ok("by-name read x 5000");
    workers[1].ok("by-name read x 5000");
    workers[2].refused("by-name write x 100", "TimedOut");
    workers[2].refused("by-name write x 0", "TimedOut");
    workers[2].ok("by-name read x 5000");
    for reader in [2, 1] {
        workers[reader].ok("by-name end x");
    }
    workers[2].send("by-name write x -");
    waits(&workers[2]);
    workers[0].ok("by-name end x");
    workers[2].answer().expect("nobody reads");
    workers[2].refused("by-name read x 0", "Deadlock");
    workers[0].refused("by-name read x 100", "TimedOut");
    workers[1].send("by-name read x -");
    waits(&workers[1]);
    workers[2].ok("by-name end x");
    workers[1].answer().expect("nobody writes");
    workers[1].ok("by-name end x");
    workers[1].refused("by-name end x", "NotOwner");
}

#[test]
fn of_readers_that_end_nothing_is_left_and_of_writers_the_next_is_told() {
    let hosts = cluster(2);
    let workers = on(&hosts, "rwlock", "0");
    for at in [0, 1] {
        let dying = hosts[at].worker();
        dying.all("by-name open x rwlock /x\nby-name read x 5000\nby-name read x 5000");
        workers[1 - at].send("by-name write x -");
        waits(&workers[1 - at]);
        dying.kill();
        workers[1 - at].answer().expect("nobody reads");
        workers[1 - at].ok("by-name end x");

        let dying = hosts[at].worker();
        dying.all("by-name open x rwlock /x\nby-name write x 5000");
        workers[1 - at].send("by-name read x -");
        waits(&workers[1 - at]);
        dying.kill();
        assert_eq!(workers[1 - at].answer().expect_err("its writer died").kind, "OwnerDied");
        workers[at].refused("by-name write x 5000", "OwnerDied");
        workers[at].refused("by-name read x 5000", "OwnerDied");
        assert_eq!(workers[1 - at].ok("by-name mend x 5000"), "true");
        workers[1 - at].ok("by-name end x");
        workers[at].all("by-name read x 5000\nby-name end x");
    }
}

#[test]
fn what_hosts_that_are_replaced_had_is_as_it_was() {
    let hosts = cluster(3);
    let semaphores = on(&hosts, "semaphore", "1");
    let others: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    others[0].all("by-name create r rwlock /r hosts\nby-name create b barrier /b 2 hosts");
    others[1..].iter().for_each(|worker| worker.all("by-name open r rwlock /r\nby-name open b barrier /b"));
    for (killed, other) in [(1, 2), (0, 1), (2, 0)] {
        semaphores[killed].ok("by-name acquire x 20000");
        semaphores[other].send("by-name acquire x -");
        others[killed].ok("by-name read r 20000");
        waits(&semaphores[other]);
        let before = hosts[killed].status().host_pid;
        hosts[killed].kill_host();
        hosts[killed].wait_for_other_host(before);
        waits(&semaphores[other]);
        others[other].refused("by-name write r 500", "TimedOut");
        semaphores[killed].ok("by-name release x 1");
        semaphores[other].answer().expect("it was released");
        semaphores[other].ok("by-name release x 1");
        others[killed].ok("by-name end r");
        others[other].all("by-name write r 20000\nby-name end r");
        others[other].send("by-name arrive b -");
        others[killed].ok("by-name arrive b 20000");
        others[other].answer().expect("both are there");
    }
    assert_eq!(semaphores[0].ok("by-name value x"), "1");
}

#[test]
fn a_machine_that_is_lost_reads_no_more_and_breaks_the_round() {
    let mut hosts = brief_cluster(3);
    let workers = on(&hosts, "rwlock", "0");
    workers[0].ok("by-name create b barrier /b 3 hosts");
    workers[1..].iter().for_each(|worker| drop(worker.ok("by-name open b barrier /b")));
    workers[1].ok("by-name read x 5000");
    workers[2].send("by-name write x -");
    waits(&workers[2]);
    let lost = hosts[1].worker();
    lost.ok("by-name open b barrier /b");
    lost.send("by-name arrive b -");
    workers[0].send("by-name arrive b -");
    waits(&workers[0]);
    let machine = hosts.remove(1);
    kill_together(&[machine.processes(), vec![workers[1].pid(), lost.pid()]].concat());
    workers[2].answer().expect("nobody reads any more");
    assert_eq!(workers[0].answer().expect_err("one is lost").kind, "Broken");
    workers[2].ok("by-name end x");
    workers[0].all("by-name read x 5000\nby-name end x");
}

/// What it wrote last is known to nobody, and so is whether it wrote: the next one is told.
#[test]
fn of_a_writer_on_a_machine_that_is_lost_the_next_is_told() {
    let mut hosts = brief_cluster(2);
    let workers = on(&hosts, "rwlock", "0");
    workers[1].ok("by-name write x 5000");
    let machine = hosts.remove(1);
    kill_together(&[machine.processes(), vec![workers[1].pid()]].concat());
    workers[0].refused("by-name read x 20000", "OwnerDied");
    workers[0].refused("by-name write x 5000", "OwnerDied");
    assert_eq!(workers[0].ok("by-name mend x 5000"), "true");
    workers[0].all("by-name end x\nby-name read x 5000\nby-name end x");
}

/// What it did last the next home hears, also if that is replaced again.
#[test]
fn who_ends_while_the_home_is_replaced_leaves_what_it_did() {
    let hosts = cluster(2);
    let at_home = hosts[0].worker();
    at_home.ok("by-name create x semaphore /x 2 hosts");
    let mut value = 2;
    for is_replaced_again in [false, true] {
        let leaves = hosts[1].worker();
        leaves.ok("by-name open x semaphore /x");
        leaves.ok("by-name release x 5");
        value += 5;
        let before = hosts[0].status().host_pid;
        hosts[0].kill_host();
        drop(leaves);
        hosts[0].wait_for_other_host(before);
        if is_replaced_again {
            let before = hosts[0].status().host_pid;
            hosts[0].kill_host();
            hosts[0].wait_for_other_host(before);
        }
        assert_eq!(at_home.ok("by-name value x"), value.to_string());
    }
}

/// Processes of hosts are killed while threads of all hosts take a semaphore: never more have it than may, and all go on.
#[test]
fn a_semaphore_is_kept_while_hosts_are_killed() {
    let hosts = cluster(3);
    let first = on(&hosts, "semaphore", "2");
    let second: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    second.iter().for_each(|worker| drop(worker.ok("by-name open x semaphore /x")));
    let (inside, done) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let mut takers = Vec::new();
        for worker in first.into_iter().chain(second) {
            let (inside, done) = (&inside, &done);
            takers.push(scope.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    worker.ok("by-name acquire x 30000");
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < 2, "more have it than may");
                    std::thread::sleep(Duration::from_millis(1));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    worker.ok("by-name release x 1");
                }
                worker
            }));
        }
        for killed in [1, 2, 0] {
            std::thread::sleep(Duration::from_millis(300));
            let before = hosts[killed].status().host_pid;
            hosts[killed].kill_host();
            hosts[killed].wait_for_other_host(before);
        }
        done.store(true, Ordering::SeqCst);
        let ended: Vec<_> = takers.into_iter().map(ScopedJoinHandle::join).collect();
        assert!(ended.iter().all(Result::is_ok), "one cannot go on");
    });
    let after = hosts[0].worker();
    after.ok("by-name open x semaphore /x");
    assert_eq!(after.ok("by-name value x"), "2");
}
