//! Who wrote something that was lost with a host is told so by its next sync, once: an acknowledged sync has all that was
//! written before it, or says that it may not.

use commonhold_tests::cluster::{another, leased_cluster, sharers_from, until_says};
use commonhold_tests::crash::{Chance, rounds};
use commonhold_tests::worker::Refused;
use commonhold_tests::{MIB, PAGE, TestHost, Worker, wait};

const EVERY_WAY: [&str; 4] = ["central", "central=revert", "forwarding", "forwarding=revert"];

fn sync() -> String {
    format!("sync o 0 {MIB}")
}

/// What the next sync says, when the home can be reached.
fn told(worker: &Worker) -> Result<String, Refused> {
    wait::until("the home answers a sync", || {
        let answer = worker.ask(&sync());
        Some(answer).filter(|answer| !answer.as_ref().is_err_and(|why| why.kind == "Disconnected"))
    })
}

fn is_told_once(worker: &Worker, how: &str) {
    let why = told(worker).expect_err(how);
    assert!(
        why.kind == "Lost" && why.message.contains("read again what was written"),
        "{how}: {}",
        why.message
    );
    worker.ok(&sync()); // and not twice
}

/// An object on a file of the first host, which two hosts have mapped and filled.
fn shared(how: &str) -> (Vec<TestHost>, Vec<Worker>) {
    let hosts = leased_cluster(2, 3);
    let file = hosts[0].scratch().file("stored", MIB);
    let workers = sharers_from(&hosts, 0, "/shared", &format!("size={MIB} file={} {how}", file.display()));
    workers[0].ok("fill m 0 256 1");
    workers[1].ok(&sync());
    workers[1].ok("fill m 10 5 2");
    (hosts, workers)
}

/// Waits until the home has decided what is lost with that host: who reverts before reverts nothing.
fn until_lost(home: &TestHost, worker: &Worker, host: &str) {
    until_says(home, &format!("{host} is lost"));
    wait::until("pages are lost", || (worker.ok("stat /shared losses") != "0 0").then_some(()));
}

#[test]
fn what_a_sharer_lost_with_host_and_keeper_is_told_to_whoever_had_it_open() {
    for how in EVERY_WAY {
        let (hosts, workers) = shared(how);
        hosts[1].kill_both();
        until_lost(&hosts[0], &workers[0], "host1");
        if how == "central" {
            // All five at once, and at once.
            assert!(workers[0].refused(&sync(), "Lost").contains("commonhold revert"));
        }
        workers[0].ok("revert /shared");
        hosts[1].start_again().unwrap();
        is_told_once(&workers[1], how);
        is_told_once(&workers[0], how);
        another(&hosts[1], "/shared").ok(&sync());
        another(&hosts[0], "/shared").ok(&sync());
    }
}

/// Whether anything is lost depends on who is back first.
#[test]
fn a_sync_that_succeeds_has_all_that_was_written_before() {
    for how in EVERY_WAY {
        let (hosts, workers) = shared(how);
        let mut chance = Chance::new(how);
        for round in 0..rounds(12).max(6) {
            let seed = round + 10;
            workers[1].ok(&format!("fill m 10 5 {seed}"));
            let dead = chance.below(2) as usize;
            hosts[dead].kill_both();
            chance.pause(50);
            hosts[dead].start_again().unwrap();
            match told(&workers[1]) {
                Ok(_) => drop(workers[0].ok(&format!("check m 10 5 {seed}"))),
                Err(why) => assert_eq!(why.kind, "Lost", "{}", why.message),
            }
            workers[0].eventually("revert /shared");
        }
    }
}

#[test]
fn what_the_home_lost_with_host_and_keeper_is_told_to_whoever_had_it_open() {
    for how in EVERY_WAY {
        let (hosts, workers) = shared(how);
        // What the home's process wrote last is with the home alone; no client brings its memory back.
        workers[0].ok("fill m 10 5 3");
        workers[1].ok("fill m 10 2 4");
        workers[0].kill();
        hosts[0].kill_both();
        hosts[0].start_again().unwrap();
        is_told_once(&workers[1], how);
        another(&hosts[0], "/shared").ok(&sync());
    }
}

#[test]
fn nobody_is_told_of_losses_where_nothing_was_lost() {
    for how in EVERY_WAY {
        let (hosts, workers) = shared(how);
        for dead in [vec![0], vec![1], vec![0, 1]] {
            dead.iter().for_each(|host| hosts[*host].kill_host());
            for worker in &workers {
                worker.ok(&sync());
                worker.ok("check m 10 5 2");
            }
        }
    }
}

/// The number is known to the next process of the home: who has not synced since is told by that, and nobody else is.
#[test]
fn who_was_not_told_by_one_process_of_the_home_is_told_by_the_next() {
    for how in EVERY_WAY {
        let (hosts, workers) = shared(how);
        hosts[1].kill_both();
        workers[1].kill();
        until_lost(&hosts[0], &workers[0], "host1");
        workers[0].ok("revert /shared");
        let late = another(&hosts[0], "/shared");
        hosts[0].kill_host();
        late.ok(&format!("sync o 0 {PAGE}")); // it opened the object afterwards
        is_told_once(&workers[0], how);
    }
}

/// A program that asks on another host, before that has found the home again, is not told that nothing was lost.
#[test]
fn no_host_tells_an_old_loss_generation() {
    for how in EVERY_WAY {
        let (hosts, workers) = shared(how);
        let before = workers[1].ok("info o generation");
        hosts[1].kill_both();
        until_lost(&hosts[0], &workers[0], "host1");
        workers[0].ok("revert /shared");
        let now = workers[0].ok("info o generation");
        hosts[1].start_again().unwrap();
        wait::until("the home tells what was lost", || {
            let told = workers[1].ask("info o generation").ok()?;
            assert!(told == now || told == "0", "{how}: {told}, before {before}");
            (told == now).then_some(())
        });
    }
}

/// Who was told before the home is lost is not told of it again by the next home, and who was not is. What was lost then, and
/// has been stored since, is not lost a second time.
#[cfg(feature = "etcd")]
#[test]
fn the_next_home_knows_who_was_told_by_the_one_before() {
    use commonhold_tests::{Scratch, cluster::says, etcd::Etcd, moving::claimant};
    for how in EVERY_WAY {
        let Some(etcd) = Etcd::start() else { return };
        let hosts: Vec<TestHost> = (0..4).map(|number| etcd.host(number)).collect();
        let scratch = Scratch::new();
        let file = scratch.file("stored", MIB);
        let workers =
            sharers_from(&hosts, 0, "/shared", &format!("file={} home-moves {how}", file.display()));
        workers[0].all(&format!("fill m 0 256 1\n{}", sync()));
        workers[3].ok("fill m 10 5 2");
        hosts[3].kill_both();
        until_lost(&hosts[0], &workers[0], "host3");
        workers[0].ok("revert /shared");
        is_told_once(&workers[1], how);
        hosts[0].kill_both();
        workers[0].kill();
        let home = claimant(&hosts, &[0, 3]);
        assert!(told(&workers[1]).is_ok(), "{how}: told twice");
        workers[1].ok("check m 10 5 1");
        assert!(!says(&hosts[home], "the newest versions of"), "{how}: {}", hosts[home].log());
        is_told_once(&workers[2], how);
        hosts[3].start_again().unwrap();
        is_told_once(&workers[3], how);
        another(&hosts[3], "/shared").ok(&sync());
    }
}
