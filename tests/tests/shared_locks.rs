//! Page-holding locks of objects that several hosts use: hosts exclude each other, and nobody waits for ever.

use commonhold_tests::cluster::{another, leased_cluster, paged_cluster, sharers_from};
use commonhold_tests::host::{has_ended, kill_together, signal};
use commonhold_tests::{MIB, PAGE, Worker, wait};
use std::time::{Duration, Instant};

/// So long they stay (docs/LOCKS.md).
const KEPT: Duration = Duration::from_secs(5);
const WAYS: [&str; 3] = ["central", "forwarding", "explicit"];

/// It waits: for so long there is no answer. That it waits because of a lock is seen by what ends it.
fn waits(worker: &Worker) {
    assert!(worker.answer_within(Duration::from_millis(300)).is_none(), "it does not wait");
}

#[test]
fn hosts_exclude_each_other_and_processes_of_one_do_not() {
    let hosts = leased_cluster(3, 10);
    for how in WAYS {
        let name = format!("/{how}");
        let workers = sharers_from(&hosts, 1, &name, &format!("size={MIB} {how}"));
        for (holder, waiter) in [(0, 2), (2, 1), (1, 0)] {
            workers[holder].ok("lock o 0 16384");
            let neighbour = another(&hosts[holder], &name);
            neighbour.ok("lock o 4096 4096");
            workers[waiter].ok("lock o 16384 4096"); // others are free
            workers[waiter].send("lock o 8192 8192");
            let third = another(&hosts[waiter], &name);
            third.send("lock o 4096 4096");
            waits(&workers[waiter]);
            workers[holder].ok("unlock o 8192 8192");
            workers[waiter].answer().expect("those pages are free");
            workers[holder].ok("unlock o 0 8192");
            waits(&third);
            neighbour.ok("unlock o 4096 4096");
            third.answer().expect("both have let go");
            workers[holder].refused("unlock o 0 4096", "Invalid");
            workers[waiter].all("unlock o 8192 8192\nunlock o 16384 4096");
        }
    }
}

/// Counts with plain reads and writes in pages that each locks before: none is lost.
#[test]
fn who_holds_a_lock_is_alone() {
    let hosts = leased_cluster(3, 10);
    for how in WAYS {
        let name = format!("/{how}");
        let workers = sharers_from(&hosts, 0, &name, &format!("size={MIB} {how}"));
        const ROUNDS: usize = 15;
        std::thread::scope(|scope| {
            for host in &hosts {
                let name = &name;
                scope.spawn(move || {
                    let worker = another(host, name);
                    for _ in 0..ROUNDS {
                        worker.ok("lock o 0 4096");
                        let count: u64 = worker.ok("get m 0").parse().unwrap();
                        worker.ok(&format!("put m 0 {}", count + 1));
                        worker.ok("sync o 0 4096");
                        worker.ok("unlock o 0 4096");
                    }
                });
            }
        });
        for worker in &workers {
            assert_eq!(worker.ok("get m 0"), (3 * ROUNDS).to_string(), "{how}");
        }
    }
}

/// What is held here stays here: another host reads it, and writes it when it is let go, or some seconds later.
#[test]
fn held_pages_stay() {
    let hosts = leased_cluster(3, 10);
    for how in ["central", "forwarding"] {
        let name = format!("/{how}");
        let workers = sharers_from(&hosts, 1, &name, &format!("size={MIB} {how}"));
        for (holder, other) in [(0, 1), (1, 2), (2, 0)] {
            workers[holder].all("fill m 0 4 1\nlock o 0 16384");
            workers[other].ok("check m 0 4 1");
            workers[holder].ok("fill m 0 4 2"); // a reader is in nobody's way
            let asked = Instant::now();
            workers[other].send("fill m 0 2 3");
            waits(&workers[other]);
            assert!(workers[holder].ok("incore o 0 16384").chars().all(char::is_lowercase));
            let here = workers[holder].ask("check m 0 4 2");
            assert!(here.is_ok() || asked.elapsed() >= KEPT, "{how}: {here:?}");
            workers[holder].all("fill m 2 2 4\nunlock o 0 16384");
            workers[other].answer().expect("they were let go");
            workers[holder].all("check m 0 2 3\ncheck m 2 2 4");
            // Who never lets go is not waited for for ever, and keeps others out all the same.
            workers[holder].ok("lock o 0 16384");
            workers[other].all("fill m 0 4 5");
            workers[holder].all("check m 0 4 5\nfill m 0 4 6");
            workers[other].send("lock o 0 4096");
            waits(&workers[other]);
            workers[holder].ok("unlock o 0 16384");
            workers[other].answer().expect("it was let go");
            workers[other].all("check m 0 4 6\nunlock o 0 4096");
        }
    }
}

/// What is one page to the scheduler hosts lock as a whole: none keeps a part of what another holds.
#[test]
fn larger_pages_are_held_as_a_whole() {
    let hosts = paged_cluster(&["4KiB", "64KiB"]);
    let workers = sharers_from(&hosts, 0, "/large", &format!("size={MIB} central page-size=16384"));
    for (holder, other) in [(0, 1), (1, 0)] {
        workers[holder].all("lock o 0 4096\nlock o 8192 4096\nfill m 0 4 1");
        workers[other].ok("lock o 16384 4096");
        workers[other].send("lock o 12288 4096");
        waits(&workers[other]);
        workers[holder].ok("unlock o 0 4096");
        waits(&workers[other]);
        workers[holder].ok("unlock o 8192 4096");
        workers[other].answer().expect("nothing of it is held");
        workers[other].all("check m 0 4 1\nunlock o 12288 4096\nunlock o 16384 4096");
    }
}

/// Locked pages are not what everybody sees before they are synced, and another host's sync leaves them as they are.
#[test]
fn a_sync_of_another_host_leaves_locked_pages() {
    let hosts = leased_cluster(2, 10);
    let workers = sharers_from(&hosts, 0, "/explicit", &format!("size={MIB} explicit"));
    for (holder, other) in [(0, 1), (1, 0)] {
        workers[other].all("fill m 0 16 1\nsync o 0 65536");
        workers[holder].all("check m 0 16 1\nlock o 0 8192");
        workers[other].all("fill m 0 16 2\nsync o 0 65536");
        workers[holder].all("check m 0 2 1\ncheck m 2 14 2\nunlock o 0 8192\ncheck m 0 16 2");
    }
}

/// A file has what was locked only after a sync: also where another host read it meanwhile.
#[test]
fn what_is_locked_elsewhere_does_not_reach_the_file() {
    let hosts = leased_cluster(2, 10);
    let file = hosts[0].scratch().file("ordered", MIB);
    let options = format!("file={} sync=ordered strict", file.display());
    let workers = sharers_from(&hosts, 0, "/ordered", &options);
    workers[1].all("lock o 0 16384\nfill m 0 4 1");
    workers[0].all("check m 0 4 1\nfill m 8 1 2\ndrop m"); // the home's last unmap stores what nobody holds
    let stored = std::fs::read(&file).unwrap();
    assert!(stored[..4 * PAGE].iter().all(|byte| *byte == 0), "what was locked was stored");
    workers[1].ok("sync o 0 16384");
    let stored = std::fs::read(&file).unwrap();
    assert_eq!(stored[..4 * PAGE], commonhold_tests::page::bytes(0, 4, 1));
}

#[test]
fn who_would_wait_for_itself_is_refused() {
    let hosts = leased_cluster(3, 10);
    let workers = sharers_from(&hosts, 1, "/ring", &format!("size={MIB} strict"));
    workers
        .iter()
        .zip(0..)
        .for_each(|(worker, page)| drop(worker.ok(&format!("lock o {} 4096", page * 4096))));
    workers[0].send("lock o 4096 4096");
    waits(&workers[0]);
    workers[1].send("lock o 8192 4096");
    waits(&workers[1]);
    let told = workers[2].refused("lock o 0 4096", "Busy");
    assert!(told.contains("deadlock"), "{told}");
    workers[2].ok("unlock o 8192 4096");
    workers[1].answer().expect("it was let go");
    workers[1].ok("unlock o 4096 8192");
    workers[0].answer().expect("it was let go");
}

/// The holder is killed; the holder's host is killed, and comes back; the home is killed; the holder's machine dies.
#[test]
fn the_dead_hold_nothing() {
    let hosts = leased_cluster(3, 5);
    // A home that dies may cost what others alone have: the version before it serves.
    for (how, name) in
        [("central=revert", "/central"), ("forwarding=revert", "/forwarding"), ("explicit", "/explicit")]
    {
        let name = name.to_owned();
        let workers = sharers_from(&hosts, 0, &name, &format!("size={MIB} {how}"));
        let holder = another(&hosts[2], &name);
        holder.ok("lock o 0 16384");
        workers[1].send("lock o 0 4096");
        waits(&workers[1]);
        holder.kill();
        workers[1].answer().expect("its holder is dead");

        // The home's next process hears of it from who holds it, before anybody else is let in.
        let home = hosts[0].status().host_pid;
        kill_together(&[home]);
        hosts[0].wait_for_other_host(home);
        workers[2].send("lock o 0 4096");
        let again = another(&hosts[0], &name);
        again.send("lock o 0 4096");
        waits(&workers[2]);
        waits(&again);
        workers[1].ok("unlock o 0 4096");
        let mut left = vec![&workers[2], &again];
        while !left.is_empty() {
            let moment = Duration::from_millis(20);
            let let_in = wait::until("one of them is let in", || {
                left.iter()
                    .position(|worker| worker.answer_within(moment).is_some_and(|answer| answer.is_ok()))
            });
            let worker = left.swap_remove(let_in);
            left.iter().for_each(|other| waits(other));
            worker.ok("unlock o 0 4096");
        }

        // Host and keeper of who holds it: lost when the lease is over.
        let doomed = another(&hosts[2], &name);
        doomed.ok("lock o 0 16384");
        let (host, keeper) = (hosts[2].status().host_pid, hosts[2].status().keeper_pid);
        workers[1].send("lock o 0 4096");
        waits(&workers[1]);
        signal(keeper, libc::SIGSTOP);
        kill_together(&[keeper, host, doomed.pid()]);
        workers[1].answer().expect("its host is lost");
        workers[1].ok("unlock o 0 4096");
        wait::until("they are gone", || (has_ended(keeper) && has_ended(host)).then_some(()));
        hosts[2].start_again().unwrap();
    }
}
