//! Deaths at any instant: whatever was put is there afterwards.

use crate::driver::{Driver, kill_and_wait, signal};
use crate::things::{Model, Random, operations};
use rustix::process::Signal;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

/// Has the host do random operations, and the model too.
fn operate(driver: &Driver, model: &mut Model, seed: u64, count: u64, keys: u64) {
    assert_eq!(driver.ask(&format!("operate {seed} {count} {keys}")), "done");
    model.apply(operations(seed, count, keys));
    assert_eq!(driver.ask("digest"), model.digest());
}

fn file_of(driver: &Driver, key: &str) -> File {
    let (_, mut fds) = driver.try_ask(&format!("give {key}")).expect("the host lives");
    File::from(fds.pop().unwrap_or_else(|| panic!("{key} has no descriptor")))
}

#[test]
fn a_killed_host_comes_back_with_all_it_had() {
    let driver = Driver::start();
    let first = driver.status();
    assert_eq!((first.generation, first.complete), (1, true));
    let mut model = Model::default();
    operate(&driver, &mut model, 1, 300, 50);
    driver.ask("make session/1/socket hello");
    let before = file_of(&driver, "session/1/socket");
    let second = driver.kill_host();
    assert_eq!((second.generation, second.complete, second.keeper), (2, true, first.keeper));
    assert_eq!(driver.ask("digest"), model.digest());
    // Not a copy: the same file.
    before.write_all_at(b"HELLO", 0).unwrap();
    let after = file_of(&driver, "session/1/socket");
    let mut content = [0; 5];
    after.read_exact_at(&mut content, 0).unwrap();
    assert_eq!(&content, b"HELLO");
    assert_eq!(before.metadata().unwrap().ino(), after.metadata().unwrap().ino());
}

#[test]
fn a_killed_keeper_is_replaced_and_filled() {
    let driver = Driver::start();
    let first = driver.status();
    let mut model = Model::default();
    operate(&driver, &mut model, 2, 300, 50);
    let refilled = driver.kill_keeper();
    assert_eq!((refilled.host, refilled.generation), (first.host, 1));
    operate(&driver, &mut model, 3, 100, 50);
    let next = driver.kill_host();
    assert_eq!((next.generation, next.complete, next.keeper), (2, true, refilled.keeper));
    assert_eq!(driver.ask("digest"), model.digest());
}

#[test]
fn a_hundred_random_kills_lose_nothing() {
    let driver = Driver::start();
    let mut model = Model::default();
    let mut random = Random(20_261_121);
    for round in 0..100 {
        operate(&driver, &mut model, random.next() >> 1, random.below(40), 30);
        let now = if random.below(2) == 0 { driver.kill_host() } else { driver.kill_keeper() };
        assert!(now.complete, "round {round}");
        assert_eq!(driver.ask("digest"), model.digest(), "round {round}");
    }
}

#[test]
fn two_thousand_things_survive_both_deaths() {
    let driver = Driver::start();
    let mut model = Model::default();
    operate(&driver, &mut model, 4, 8_000, 3_000);
    assert!(model.digest().split(' ').next().unwrap().parse::<u64>().unwrap() >= 2_000, "{}", model.digest());
    driver.kill_host();
    assert_eq!(driver.ask("digest"), model.digest());
    driver.kill_keeper();
    driver.kill_host();
    assert_eq!(driver.ask("digest"), model.digest());
}

/// The last host that the log says was started.
fn last_started(driver: &Driver) -> Option<u32> {
    let log = driver.log();
    let (_, rest) = log.rsplit_once("started host ")?;
    rest.split_once(',')?.0.parse().ok()
}

#[test]
fn a_host_killed_while_it_takes_over_loses_nothing() {
    let driver = Driver::start();
    let mut model = Model::default();
    operate(&driver, &mut model, 5, 8_000, 3_000);
    let mut random = Random(5);
    let mut last = driver.status().host;
    kill_and_wait(last);
    for _ in 0..30 {
        last = driver.wait("the next host", || last_started(&driver).filter(|pid| *pid != last));
        std::thread::sleep(Duration::from_micros(random.below(30_000)));
        kill_and_wait(last);
    }
    assert_eq!(driver.ask_any("digest"), model.digest());
    assert!(driver.status().complete);
}

/// How many things a stream has put, by its own note.
fn progress(driver: &Driver) -> u64 {
    let mut bytes = [0; 8];
    let file = File::open(driver.state().join("progress"));
    file.and_then(|file| file.read_exact_at(&mut bytes, 0)).map_or(0, |()| u64::from_le_bytes(bytes))
}

#[test]
fn a_put_that_returned_survives_a_kill_in_the_stream() {
    let driver = Driver::start();
    let mut random = Random(6);
    for round in 0..10 {
        let host = driver.status().host;
        let _ = std::fs::remove_file(driver.state().join("progress"));
        std::thread::scope(|scope| {
            scope.spawn(|| driver.try_ask("stream 1000000000"));
            driver.wait("a start of the stream", || (progress(&driver) > 0).then_some(()));
            std::thread::sleep(Duration::from_micros(random.below(20_000)));
            kill_and_wait(host);
        });
        let last = progress(&driver) - 1;
        assert_eq!(driver.ask_any(&format!("blob stream/{last}")), last.to_string(), "round {round}");
        let mut content = vec![0; last.to_string().len()];
        file_of(&driver, &format!("stream/{last}")).read_exact_at(&mut content, 0).unwrap();
        assert_eq!(content, last.to_string().as_bytes());
    }
}

#[test]
fn a_keeper_killed_in_the_stream_is_filled_with_all_of_it() {
    let driver = Driver::start();
    std::thread::scope(|scope| {
        let keeper = driver.status().keeper;
        let asked = scope.spawn(|| driver.ask("stream 5000"));
        driver.wait("a start of the stream", || (progress(&driver) > 0).then_some(()));
        kill_and_wait(keeper);
        assert_eq!(asked.join().unwrap(), "done");
        driver.status_with(|now| now.keeper != keeper && now.keeper != 0);
    });
    driver.kill_host();
    for (n, expected) in [(4_999, "4999"), (4_900, "4900"), (4_800, "none")] {
        assert_eq!(driver.ask(&format!("blob stream/{n}")), expected);
    }
}

#[test]
fn a_hung_keeper_is_killed_and_replaced() {
    let driver = Driver::start();
    let before = driver.status();
    let hung: OwnedFd = commonhold_sys::process::pidfd(before.keeper).unwrap();
    signal(before.keeper, Signal::STOP);
    assert_eq!(driver.ask("stream 5000"), "done");
    crate::driver::wait_for_end(&hung);
    let after = driver.status_with(|now| now.keeper != before.keeper && now.keeper != 0);
    assert_eq!(after.host, before.host);
    driver.kill_host();
    assert_eq!(driver.ask("blob stream/4999"), "4999");
}

#[test]
fn a_stopped_host_is_not_dead() {
    let driver = Driver::start();
    let before = driver.status();
    let log = driver.log();
    signal(before.host, Signal::STOP);
    std::thread::sleep(Duration::from_millis(300));
    signal(before.host, Signal::CONT);
    assert_eq!(driver.status(), before);
    assert_eq!(driver.log(), log);
}

#[test]
fn changes_while_a_new_keeper_is_filled_are_kept() {
    let driver = Driver::start();
    let mut model = Model::default();
    operate(&driver, &mut model, 7, 4_000, 2_000);
    for seed in 8..12 {
        let before = driver.status();
        assert_eq!(driver.ask(&format!("churn {seed} 3000 2000")), "done");
        model.apply(operations(seed, 3_000, 2_000));
        assert_ne!(driver.status().keeper, before.keeper);
        assert!(driver.kill_host().complete);
        assert_eq!(driver.ask("digest"), model.digest(), "seed {seed}");
    }
}
