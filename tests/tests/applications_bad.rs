//! The four applications of docs/APPLICATIONS.md where something is wrong: arguments that do not agree, activities and hosts
//! that die, hosts that come late.

use commonhold_tests::applications::{Applications, Running, run};
use commonhold_tests::cluster::{address_of, brief_cluster, cluster, free_address};
use commonhold_tests::host::{kill, kill_together};
use commonhold_tests::{PAGE, TestHost, wait};

/// One that joins the cluster of another.
fn newcomer(first: &TestHost, name: &str) -> TestHost {
    TestHost::with(&["--plain", "--name", name, "--listen", &free_address(), "--join", &address_of(first)])
}

#[test]
fn arguments_that_cannot_be_are_refused() {
    let programs = Applications::of(&["path"]);
    for (words, said) in [
        ("--activities 0", "--activities takes a number from 1 to 64"),
        ("--activities 65", "--activities takes a number from 1 to 64"),
        ("--activities 2 --index 2 --memory /lab/a", "there are 2 activities, and none has this number"),
        ("--size 1", "--size takes a number from 2 to 16384"),
        ("--size many", "--size takes a number"),
        ("--steps -1", "--steps takes a number"),
        ("--seed", "--seed takes a number"),
        ("--sync spin", "--sync cannot be spin"),
        ("--scheduler explicit", "--scheduler cannot be explicit"),
        ("--sync named", "plain memory has no name for locks"),
        ("--activities 2 --index 0", "activities that are started alone meet in --memory NAME"),
        ("--activities 2 --touch", "--touch would share already"),
        ("--page-size 12288", "--page-size takes a power of two"),
        ("--page-size 2048", "--page-size takes a number from 4096"),
        ("--matrix", "there is no argument --matrix"),
    ] {
        run(programs.command("path", words)).says(said);
    }
}

#[test]
fn who_counts_other_activities_than_the_first_is_refused() {
    let (programs, hosts) = (Applications::of(&["mp3d", "locus"]), cluster(2));
    let size = "--size 1024 --steps 4";
    let start = |host: usize, words: &str| {
        let words = format!("--memory /lab/mp3d {size} --stepped {words}");
        Running::start(programs.on(&hosts[host], "mp3d", &words))
    };
    let mut first = start(0, "--activities 2 --index 0");
    first.await_word("ready");
    start(1, "--activities 3 --index 1").end().says("/lab/mp3d is for 2 activities, not for 3");
    start(1, "--activities 2 --index 0").end().says("/lab/mp3d");
    start(1, "--activities 2 --index 1 --seed 3").end().says("has size 1024, steps 4 and seed 1");
    start(1, "--activities 2 --index 1 --page-size 8192").end().says("another size");
    start(1, "--activities 2 --index 1 --sync named").end().says("waits for the others in another way");
    let words = "--memory /lab/mp3d --activities 2 --index 1 --size 512";
    run(programs.on(&hosts[1], "locus", words)).says("/lab/mp3d is memory of mp3d");
    let words = "--memory /lab/mp3d --activities 2 --index 1 --size 1000000";
    run(programs.on(&hosts[1], "mp3d", words)).says("another size, or not an object of mp3d");
    // Nobody of these was counted: the right one comes, and its like does not.
    let mut second = start(1, "--activities 2 --index 1");
    second.await_word("ready");
    start(1, "--activities 2 --index 1").end().says("this activity is there already");
    first.go_on();
    second.go_on();
    for mut one in [first, second] {
        one.await_word("done");
        one.go_on();
        one.end().is_right();
    }
}

#[test]
fn who_dies_before_a_barrier_is_an_error_to_the_others_of_its_host() {
    let (programs, host) = (Applications::of(&["mp3d"]), TestHost::start());
    let never_ends = "--activities 2 --size 1024 --steps 1000000 --deadline 5";
    let start = |sync: &str, index: usize, more: &str| {
        let words = format!("--memory /lab/{sync} --sync {sync} {never_ends} --index {index} {more}");
        Running::start(programs.on(&host, "mp3d", &words))
    };
    // By words in the memory nobody is known: the deadline ends the wait.
    let (mut first, mut other) = (start("memory", 0, "--stepped"), start("memory", 1, "--stepped"));
    first.await_word("ready");
    other.await_word("ready");
    first.go_on();
    kill(other.pid());
    other.end();
    first.end().says("barrier 1: not within the deadline");
    // A barrier with a name knows those that were there, and a lock its owner: the others are told as soon as one ends.
    let (first, other) = (start("named", 0, ""), start("named", 1, ""));
    let object =
        wait::until("they have begun", || host.connect().open("/lab/named", commonhold::Access::Read).ok());
    let entered = 19 * PAGE + 2 * 1024 * 24 + 8;
    wait::until("a particle has entered the first cell", || {
        let mut number = [0; 8];
        object.read_at(&mut number, entered as u64).unwrap();
        (number != [0; 8]).then_some(())
    });
    kill(other.pid());
    other.end();
    first.end().says("an activity ended");
}

#[test]
fn an_activity_that_dies_ends_those_that_were_started_with_it() {
    let programs = Applications::of(&["mp3d"]);
    let running = Running::start(programs.command("mp3d", "--activities 3 --size 1024 --steps 1000000"));
    let path = format!("/proc/{0}/task/{0}/children", running.pid());
    let children: Vec<u32> = wait::until("its activities run", || {
        let all = std::fs::read_to_string(&path).ok()?;
        let all: Vec<u32> = all.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect();
        (all.len() == 3).then_some(all)
    });
    kill(children[1]);
    running.end().says("activity 1 ended by signal 9");
    for child in children {
        wait::until("no activity is left", || {
            (!std::path::Path::new(&format!("/proc/{child}")).exists()).then_some(())
        });
    }
}

#[test]
fn a_host_that_dies_before_a_barrier_is_an_error_within_the_fault_deadline() {
    let (programs, mut hosts) = (Applications::of(&["mp3d"]), brief_cluster(2));
    let words = "--memory /lab/mp3d --deadline 10 --stepped --size 2048 --steps 1000000";
    let mut all = programs.start_on_each(&hosts, "mp3d", words);
    let (mut other, mut first) = (all.remove(1), all.remove(0));
    first.await_word("ready");
    other.await_word("ready");
    first.go_on();
    other.go_on();
    // They are under way when the other host has written pages of both.
    let object = hosts[0].connect().open("/lab/mp3d", commonhold::Access::Read).unwrap();
    let velocities = 19 * PAGE + 2048 * 24;
    let look = || {
        let mut number = [0; 8];
        object.read_at(&mut number, velocities as u64).unwrap();
        u64::from_le_bytes(number)
    };
    let before = look();
    wait::until("a particle has collided", || (look() != before).then_some(()));
    drop(object);
    let lost = hosts.remove(1);
    kill_together(&[vec![other.pid()], lost.processes()].concat());
    other.end();
    let said = first.end();
    assert!(!said.status.success(), "{said:?}");
    let expected = ["cannot be had (SIGBUS)", "not within the deadline"];
    assert!(expected.iter().any(|words| said.errors.contains(words)), "{said:?}");
}

#[test]
fn a_host_that_joins_between_barriers_takes_part() {
    let programs = Applications::of(&["mp3d", "path"]);
    let mut hosts = cluster(2);
    for (name, size) in [("mp3d", "--size 1024 --steps 20"), ("path", "--size 200")] {
        let words = |index: usize| format!("--memory /lab/{name} --activities 3 --index {index} {size}");
        let start = |host: &TestHost, index| Running::start(programs.on(host, name, &words(index)));
        // They wait in the first barrier.
        let early = [start(&hosts[0], 0), start(&hosts[1], 1)];
        hosts.truncate(2);
        hosts.push(newcomer(&hosts[0], &format!("late-{name}")));
        let late = start(&hosts[2], 2);
        for one in early.into_iter().chain([late]) {
            one.end().is_right();
        }
    }
}

#[test]
fn a_host_that_joins_and_reads_while_others_compute_changes_nothing() {
    let (programs, hosts) = (Applications::of(&["mp3d"]), cluster(2));
    let words = "--memory /lab/mp3d --size 2048 --steps 60 --stepped";
    let mut all = programs.start_on_each(&hosts, "mp3d", words);
    all.iter_mut().for_each(|one| one.await_word("ready"));
    all.iter_mut().for_each(Running::go_on);
    let late = newcomer(&hosts[0], "late");
    let worker = late.worker();
    worker.eventually("open o /lab/mp3d rw");
    worker.ok("map m o r shared 0 0");
    for page in 0..40 {
        worker.ok(&format!("get m {}", page * PAGE));
    }
    all.iter_mut().for_each(|one| one.await_word("done"));
    all.iter_mut().for_each(Running::go_on);
    all.into_iter().for_each(|one| drop(one.end().is_right()));
}
