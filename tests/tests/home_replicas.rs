//! Homes that move without a common file: hosts are killed with their keepers, and another goes on with what replicas keep and
//! what hosts had. Needs etcd, as the tests of `etcd.rs`.
#![cfg(feature = "etcd")]

use commonhold_tests::cluster::{says, until_says};
use commonhold_tests::crash::{Chance, rounds};
use commonhold_tests::etcd::Etcd;
use commonhold_tests::host::signal;
use commonhold_tests::moving::{
    check_one_by_one, claimant, comes_back, five_are_lost_until_revert, is_version, lose, nothing_is_kept,
};
use commonhold_tests::{MIB, TestHost, Worker, wait};
use std::time::Duration;

const NAME: &str = "/lab/kept";

/// Hosts that share an object whose home is the first, of a MiB unless it is said otherwise; a client of each of them but the last `strangers` has it
/// mapped as `m`.
struct Setting {
    hosts: Vec<TestHost>,
    workers: Vec<Worker>,
    etcd: Etcd,
}

impl Setting {
    fn new(count: usize, strangers: usize, options: &str) -> Option<Setting> {
        Setting::sized(count, strangers, MIB, options)
    }

    fn sized(count: usize, strangers: usize, size_bytes: u64, options: &str) -> Option<Setting> {
        let etcd = Etcd::start()?;
        let hosts: Vec<TestHost> = (0..count).map(|number| etcd.host(number)).collect();
        let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
        workers[0].eventually(&format!("create o {NAME} size={size_bytes} home-moves {options}"));
        let setting = Setting { hosts, workers, etcd };
        let users = &setting.workers[..setting.workers.len() - strangers];
        users[1..].iter().for_each(|worker| drop(worker.eventually(&format!("open o {NAME} rw"))));
        users.iter().for_each(|worker| drop(worker.ok("map m o rw shared 0 0")));
        Some(setting)
    }

    /// Which hosts keep the pages of that home, as its log says; there are to be so many.
    fn replicas(&self, home: usize, count: usize) -> Vec<usize> {
        let keeps =
            |number: &usize| self.hosts[home].log().contains(&format!("host{number} keeps its pages\n"));
        wait::until("enough hosts keep its pages", || {
            let all: Vec<usize> = (0..self.hosts.len()).filter(keeps).collect();
            (all.len() >= count).then_some(all)
        })
    }

    fn lose(&self, number: usize) {
        lose(&self.hosts[number], &self.workers[number]);
    }
}

/// What others had, what was synced or read by another host, and what the home alone had and had not.
#[test]
fn another_host_goes_on_as_the_home() {
    for on_loss in ["strict", "strict=revert"] {
        let Some(setting) = Setting::new(3, 0, &format!("{on_loss} replicas=1")) else { return };
        let Setting { hosts, workers, .. } = &setting;
        setting.replicas(0, 1);
        assert_eq!(workers[0].ok(&format!("stat {NAME} warning")), "");
        workers[0].all(&format!("fill m 0 256 1\nsync o 0 {MIB}"));
        workers[1].ok("fill m 0 20 2"); // newest with another host
        workers[0].ok("fill m 30 10 3");
        check_one_by_one(&workers[2], 30..40, 3); // read by another host
        workers[0].ok("fill m 250 5 4"); // the home's alone: nobody reads ahead so far
        workers[2].ok("fill m 10 5 5");
        workers[2].ok("fill m 50 5 6");
        workers[2].all("drop m\nclose o"); // what it wrote goes home
        workers[2].eventually(&format!("open o {NAME} rw"));
        workers[2].ok("map m o rw shared 0 0");
        setting.lose(0);
        for worker in &workers[1..] {
            worker.all("check m 0 10 2\ncheck m 10 5 5\ncheck m 15 5 2\ncheck m 20 10 1\ncheck m 30 10 3");
            worker
                .all("check m 40 10 1\ncheck m 50 5 6\ncheck m 55 185 1\ncheck m 240 10 1\ncheck m 255 1 1");
        }
        let home = claimant(hosts, &[0]);
        assert!(says(&hosts[home], "the newest versions of 5 pages are lost"), "{}", hosts[home].log());
        if on_loss == "strict" {
            five_are_lost_until_revert(&hosts[3 - home], &workers[home], NAME);
        }
        workers[3 - home].all("check m 250 5 1\nfill m 250 5 6\nfill m 0 1 7");
        workers[home].all("check m 250 5 6\ncheck m 0 1 7\ncheck m 1 9 2");
        workers[3 - home].refused(&format!("sync o 0 {MIB}"), "Lost"); // what the home alone had: said once
        workers[3 - home].ok(&format!("sync o 0 {MIB}"));
        workers[3 - home].refused(&format!("create x {NAME} size=4096 strict"), "Exists");
        // Who was the home comes back as any sharer.
        comes_back(&setting.hosts[0]);
        until_says(&hosts[0], "another host is its home by now");
        let back = hosts[0].worker();
        back.eventually(&format!("open o {NAME} rw"));
        back.all("map m o rw shared 0 0\ncheck m 250 5 6\ncheck m 0 1 7\ncheck m 30 10 3\nfill m 5 1 8");
        workers[home].ok("check m 5 1 8");
        assert_eq!(claimant(hosts, &[0]), home);
    }
}

/// What another host has read, or gave back, and the home wrote again, is the newest when the home has no room for it, too.
#[test]
fn what_does_not_fit_into_the_homes_memory_is_stored() {
    let Some(setting) = Setting::sized(2, 0, 4 * MIB, "strict replicas=1 budget=1048576") else { return };
    let Setting { workers, .. } = &setting;
    setting.replicas(0, 1);
    workers[0].ok("fill m 0 128 1");
    workers[1].ok("check m 0 128 1");
    workers[0].all("fill m 0 128 2\nfill m 128 896 3\ncheck m 0 128 2");
    workers[1].all("check m 0 128 2\ncheck m 128 896 3\nfill m 0 1024 4");
    workers[0].all("fill m 0 1024 5\ncheck m 0 1024 5");
    workers[1].ok("check m 0 1024 5");
    workers[0].all(&format!("fill m 0 1024 6\nsync o 0 {}", 4 * MIB));
    setting.lose(0);
    workers[1].ok("check m 0 1024 6");
}

/// A host that read a page and dropped it is no reason to lose it; nor is the loss of that host with the home.
#[test]
fn two_of_three_are_lost_at_once() {
    let Some(setting) = Setting::new(4, 1, "strict replicas=2") else { return };
    let Setting { hosts, workers, .. } = &setting;
    let replicas = setting.replicas(0, 2);
    workers[0].all(&format!("fill m 0 256 1\nsync o 0 {MIB}\nfill m 0 40 2"));
    workers[1].ok("check m 0 20 2");
    workers[2].ok("check m 20 20 2");
    workers[1].ok("fill m 60 10 3"); // nobody else reads it
    workers[2].ok("fill m 80 10 4");
    workers[1].ok("check m 80 10 4");
    // Lost with the home: a replica, and if it can be a host that had read.
    let lost = replicas.iter().copied().find(|number| *number < 3).unwrap();
    let left = 3 - lost;
    setting.lose(lost);
    setting.lose(0);
    let worker = &workers[left];
    worker.all("check m 0 40 2\ncheck m 40 20 1\ncheck m 70 10 1\ncheck m 80 10 4\ncheck m 90 166 1");
    let home = claimant(hosts, &[0, lost]);
    if lost == 1 {
        assert!(says(&hosts[home], "the newest versions of 10 pages are lost"), "{}", hosts[home].log());
        assert_eq!(worker.ok(&format!("revert {NAME}")), "10");
        worker.ok("check m 60 10 1");
        worker.refused(&format!("sync o 0 {MIB}"), "Lost"); // once
    } else {
        worker.ok("check m 60 10 3");
    }
    worker.all(&format!("fill m 0 256 9\nsync o 0 {MIB}"));
    assert_eq!(claimant(hosts, &[0, lost]), home);
    // The fourth host has not used it, and keeps it now if it did not.
    setting.lose(home);
    let fourth = &workers[3];
    if home != 3 {
        fourth.eventually(&format!("open o {NAME} rw"));
        fourth.all("map m o rw shared 0 0\ncheck m 0 256 9");
    }
}

/// A replica is lost, another takes its place, and then the home is lost.
#[test]
fn another_host_takes_a_replicas_place() {
    let Some(setting) = Setting::new(4, 0, "strict replicas=1") else { return };
    let Setting { hosts, workers, .. } = &setting;
    let first = setting.replicas(0, 1)[0];
    workers[0].all(&format!("fill m 0 256 1\nsync o 0 {MIB}"));
    setting.lose(first);
    until_says(&hosts[0], &format!("host{first} keeps its pages no more"));
    let others: Vec<usize> = (1..4).filter(|number| *number != first).collect();
    wait::until("another keeps them", || {
        others
            .iter()
            .any(|number| hosts[0].log().contains(&format!("host{number} keeps its pages\n")))
            .then_some(())
    });
    wait::until("there are enough", || {
        workers[0].ok(&format!("stat {NAME} warning")).is_empty().then_some(())
    });
    workers[0].all(&format!("fill m 0 50 2\nsync o 0 {MIB}\nfill m 50 50 3"));
    workers[others[0]].ok("check m 50 50 3");
    setting.lose(0);
    for number in &others {
        workers[*number].all("check m 0 50 2\ncheck m 50 50 3\ncheck m 100 156 1");
    }
}

/// The processes of replicas and of the home end, one after the other: their keepers go on, and what they keep is there.
#[test]
fn what_is_kept_outlives_processes() {
    let Some(setting) = Setting::new(3, 0, "strict replicas=2") else { return };
    let Setting { hosts, workers, .. } = &setting;
    setting.replicas(0, 2);
    workers[0].all(&format!("fill m 0 256 1\nsync o 0 {MIB}"));
    hosts[1].kill_host();
    workers[0].all(&format!("fill m 0 10 2\nsync o 0 {MIB}"));
    hosts[2].kill_host();
    workers[0].all(&format!("fill m 10 10 3\nsync o 0 {MIB}"));
    hosts[0].kill_host();
    workers[0].all(&format!("check m 0 10 2\nfill m 20 10 4\nsync o 0 {MIB}"));
    wait::until("there are enough", || {
        workers[0].ok(&format!("stat {NAME} warning")).is_empty().then_some(())
    });
    workers[1].ok("fill m 30 10 5");
    setting.lose(0);
    for worker in &workers[1..] {
        worker.all("check m 0 10 2\ncheck m 10 10 3\ncheck m 20 10 4\ncheck m 30 10 5\ncheck m 40 216 1");
    }
    let home = claimant(hosts, &[0]);
    hosts[home].kill_host();
    workers[home].all("check m 0 10 2\nfill m 0 10 6");
    workers[3 - home].all("check m 0 10 6\ncheck m 30 10 5");
    assert_eq!(claimant(hosts, &[0]), home);
}

/// Host and keeper of the home stand still until another host has taken its place, and then go on, with a sync under way.
#[test]
fn a_home_that_was_paused_changes_nothing_any_more() {
    let Some(setting) = Setting::new(3, 0, "strict=revert replicas=2") else { return };
    let Setting { hosts, workers, .. } = &setting;
    setting.replicas(0, 2);
    workers[0].all(&format!("fill m 0 256 1\nsync o 0 {MIB}\nfill m 100 100 2"));
    workers[1].ok("fill m 0 10 3");
    workers[2].ok("check m 100 10 2");
    let status = hosts[0].status();
    let pids = [status.keeper_pid, status.host_pid];
    pids.iter().for_each(|pid| signal(*pid, libc::SIGSTOP));
    workers[0].send(&format!("sync o 0 {MIB}"));
    let home = claimant(hosts, &[0]);
    workers[2].all("check m 0 10 3\nfill m 20 1 4");
    pids.iter().for_each(|pid| signal(*pid, libc::SIGCONT));
    drop(workers[0].answer());
    workers[2].all("check m 0 10 3\ncheck m 10 10 1\ncheck m 20 1 4\ncheck m 21 79 1\ncheck m 100 10 2");
    // Its own client goes on, at another's object.
    workers[0].ok("check m 0 10 3");
    workers[0].ok("check m 20 1 4");
    // If the sync before was not told that pages are lost this one is.
    drop(workers[0].ask(&format!("sync o 0 {MIB}")));
    workers[0].all(&format!("fill m 0 1 5\nsync o 0 {MIB}"));
    // And what the replicas have is what was synced, without what the home that was paused had.
    wait::until("there are enough", || {
        workers[home].ok(&format!("stat {NAME} warning")).is_empty().then_some(())
    });
    assert_eq!(claimant(hosts, &[0]), home);
    setting.lose(home);
    let left = 3 - home;
    workers[left].all("check m 0 1 5\ncheck m 1 9 3\ncheck m 20 1 4\ncheck m 21 79 1\ncheck m 100 10 2");
}

/// Whoever has taken the home's place is struck at any instant of it, wholly or by its process alone: what was synced, or read by
/// another host, is there.
#[test]
fn a_claimant_may_die_at_any_instant() {
    let mut chance = Chance::new("claims of homes with replicas");
    for round in 0..rounds(2) {
        let Some(setting) = Setting::new(4, 0, "strict=revert replicas=2") else { return };
        let Setting { hosts, workers, .. } = &setting;
        setting.replicas(0, 2);
        workers[0].all(&format!("fill m 0 256 1\nsync o 0 {MIB}\nfill m 0 40 2"));
        workers[1].ok("check m 0 40 2");
        workers[2].ok("fill m 100 40 3");
        setting.lose(0);
        let first = claimant(hosts, &[0]);
        chance.pause(60);
        let wholly = round % 2 == 0;
        if wholly {
            setting.lose(first);
        } else {
            hosts[first].kill_host();
        }
        let left: Vec<usize> = (1..4).filter(|number| !wholly || *number != first).collect();
        let mut seen = Vec::new();
        for number in left {
            let worker = &workers[number];
            worker.all("check m 0 40 2\ncheck m 40 60 1\ncheck m 140 116 1");
            let all = is_version(worker, 100..140, 3);
            let kept = !wholly || first != 2;
            assert!(!kept || all.iter().all(|newest| *newest), "who had them lives: {all:?}");
            seen.push(all);
        }
        assert!(seen.windows(2).all(|two| two[0] == two[1]), "hosts see different versions: {seen:?}");
    }
}

/// What came home waits there for replicas that stand still, and then the home's process alone is killed: whoever sent it has
/// what was not dealt with.
#[test]
fn what_waits_at_the_home_outlives_its_process() {
    const PAGES: u64 = 5120;
    let Some(setting) = Setting::sized(4, 0, PAGES * 4096, "strict=revert replicas=2") else { return };
    let Setting { hosts, workers, .. } = &setting;
    let replicas = setting.replicas(0, 2);
    let sharer = (1..4).find(|number| !replicas.contains(number)).unwrap();
    workers[sharer].ok(&format!("fill m 0 {PAGES} 1"));
    let stopped: Vec<u32> = replicas.iter().map(|number| hosts[*number].status().host_pid).collect();
    stopped.iter().for_each(|pid| signal(*pid, libc::SIGSTOP));
    workers[sharer].all("drop m\nclose o"); // all of it leaves, as fast as it may
    std::thread::sleep(Duration::from_secs(4)); // as much as comes in that time; any other would do
    hosts[0].kill_host();
    stopped.iter().for_each(|pid| signal(*pid, libc::SIGCONT));
    workers[sharer].eventually(&format!("open o {NAME} rw"));
    workers[sharer].ok("map m o rw shared 0 0");
    for number in [0, sharer, replicas[0]] {
        workers[number].ok(&format!("check m 0 {PAGES} 1"));
    }
    assert!(!says(&hosts[0], "are lost"), "{}", hosts[0].log());
}

/// Nobody counts but the home: it goes on, says so, and is waited for when it is lost.
#[test]
fn without_replicas_the_home_is_waited_for() {
    let Some(setting) = Setting::new(2, 0, "strict replicas=2") else { return };
    let Setting { hosts, workers, .. } = &setting;
    setting.replicas(0, 1);
    let told = workers[0].ok(&format!("stat {NAME} warning"));
    assert!(told.contains("1 of 2 replicas"), "{told}");
    workers[0].all(&format!("fill m 0 256 1\nsync o 0 {MIB}"));
    // The replica is lost first, so it misses what comes next; then the home.
    setting.lose(1);
    until_says(&hosts[0], "host1 keeps its pages no more");
    workers[0].all(&format!("fill m 0 10 2\nsync o 0 {MIB}"));
    setting.lose(0);
    comes_back(&setting.hosts[1]);
    let worker = hosts[1].worker();
    let open = format!("open o {NAME} rw");
    let why = wait::until("the home is known to be lost", || {
        worker.ask(&open).err().filter(|why| why.message.contains("waits for one of them"))
    });
    assert_eq!(why.kind, "Disconnected", "{}", why.message);
    comes_back(&setting.hosts[0]);
    worker.eventually(&open);
    worker.all("map m o rw shared 0 0\ncheck m 0 10 2\ncheck m 10 246 1\nfill m 0 1 3");
}

/// Processes of hosts are killed while every host writes, the home's and those of replicas: no write is lost. Then the home is.
#[test]
fn kills_under_load_lose_no_increment() {
    let Some(setting) = Setting::new(3, 0, "strict replicas=2") else { return };
    let Setting { hosts, workers, .. } = &setting;
    setting.replicas(0, 2);
    let (mut chance, mut times) = (Chance::new("replicas under load"), 0);
    for _ in 0..rounds(5) {
        times += 100;
        workers.iter().for_each(|worker| worker.send("add m 0 3 100"));
        chance.pause(100);
        hosts[chance.below(3) as usize].kill_host();
        workers.iter().for_each(|worker| drop(worker.answer().expect("it adds")));
    }
    workers.iter().for_each(|worker| assert_eq!(worker.ok("sum m 0 3"), (3 * times).to_string()));
    setting.lose(0);
    for worker in &workers[1..] {
        assert_eq!(worker.ok("sum m 0 3"), (3 * times).to_string(), "every page was read by another host");
    }
    workers[1..].iter().for_each(|worker| worker.send("add m 0 3 100"));
    workers[1..].iter().for_each(|worker| drop(worker.answer().expect("it adds")));
    assert_eq!(workers[1].ok("sum m 0 3"), (3 * times + 200).to_string());
}

/// Two homes that keep each other's objects, both used by both hosts at the same time: nobody waits for ever, and no page is
/// another's or older.
#[test]
fn two_homes_keep_each_others_pages() {
    let Some(setting) = Setting::new(2, 0, "strict replicas=1") else { return };
    let Setting { hosts, workers, .. } = &setting;
    let others: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    others[1].eventually(&format!("create o /lab/other size={MIB} home-moves strict replicas=1"));
    others[0].eventually("open o /lab/other rw");
    others.iter().for_each(|other| drop(other.ok("map m o rw shared 0 0")));
    let all: Vec<&Worker> = workers.iter().chain(&others).collect();
    for round in 1..30 {
        // Each its half, and then what the other wrote.
        let half = |at: usize| at % 2 * 128;
        all.iter()
            .enumerate()
            .for_each(|(at, worker)| worker.send(&format!("fill m {} 128 {round}", half(at))));
        all.iter().for_each(|worker| drop(worker.answer().unwrap()));
        let sent = |at: usize| format!("check m {} 128 {round}", 128 - half(at));
        all.iter().enumerate().for_each(|(at, worker)| worker.send(&sent(at)));
        all.iter().for_each(|worker| drop(worker.answer().unwrap()));
    }
    others[0].ok(&format!("sync o 0 {MIB}"));
    setting.lose(0);
    workers[1].all("check m 0 256 29\nfill m 0 256 30");
    others[1].all("check m 0 256 29\nfill m 0 256 30");
}

/// Sizes, names and removal reach what is kept.
#[test]
fn another_size_and_another_name() {
    let Some(setting) = Setting::new(3, 0, "strict replicas=1 page-size=16384") else { return };
    let Setting { hosts, workers, .. } = &setting;
    let replica = setting.replicas(0, 1)[0];
    workers[0].all(&format!(
        "fill m 0 256 1\nsync o 0 {MIB}\nrename {NAME} /lab/renamed\nresize /lab/renamed 524288\nresize /lab/renamed 2097152"
    ));
    workers[3 - replica].all("drop m\nclose o");
    workers[replica].all("drop m\nclose o");
    setting.lose(0);
    until_says(&hosts[1], "host0 is lost");
    until_says(&hosts[2], "host0 is lost");
    // Who does not keep it: it gets it from who does.
    let other = &workers[3 - replica];
    other.eventually("open o /lab/renamed rw");
    other.all("map m o rw shared 0 0\ncheck m 0 128 1\ncheck m 128 384 0\nfill m 300 10 3");
    assert_eq!(other.ok("stat /lab/renamed size"), (2 * MIB).to_string());
    other.all("remove /lab/renamed\ndrop m\nclose o");
    for host in &hosts[1..] {
        wait::until("what is kept goes with the object", || nothing_is_kept(host).then_some(()));
    }
}

/// An object has grown, and etcd has not heard of it when the home is lost: what was written past the old end is there.
#[test]
fn a_size_that_the_registry_has_not_heard_of() {
    let Some(setting) = Setting::new(3, 0, "strict replicas=1") else { return };
    let Setting { hosts, workers, etcd, .. } = &setting;
    let other = &workers[3 - setting.replicas(0, 1)[0]];
    workers[0].all(&format!("fill m 0 256 1\nsync o 0 {MIB}"));
    etcd.pause(true);
    workers[0].send(&format!("resize {NAME} {}", 2 * MIB));
    other.eventually(&format!("map n o rw shared {MIB} {MIB}")); // as soon as it knows
    other.all(&format!("fill n 44 100 2\nsync o 0 {}", 2 * MIB));
    setting.lose(0);
    etcd.pause(false);
    for worker in &workers[1..] {
        worker.eventually(&format!("map k o rw shared {MIB} {MIB}"));
        worker.all("check m 0 256 1\ncheck k 0 44 0\ncheck k 44 100 2\ncheck k 144 112 0");
    }
    claimant(hosts, &[0]);
}

/// What could not move is refused when it is created.
#[test]
fn what_cannot_move_is_refused() {
    let alone = TestHost::start();
    let create = |more: &str| format!("create x /x size=8192 home-moves replicas=1 {more}");
    for (line, words) in [
        (create("strict"), "is in no cluster"),
        (create("strict=revert sync=atomic"), "use ordered"),
        (create("forwarding"), "use the central scheduler"),
        (create("explicit"), "1 replicas are for strict objects"),
        ("create x /x size=4096 central replicas=1".to_owned(), "or whose home moves"),
    ] {
        let why = alone.worker().ask(&line).unwrap_err().message;
        assert!(why.contains(words), "{line}: {why}");
    }
    // What only the file's checks find leaves nothing either.
    alone.worker().ask(&create("strict budget=0x7ffffffffff")).unwrap_err();
    assert!(nothing_is_kept(&alone), "nothing is left of what was refused");
    let hosts = commonhold_tests::cluster::cluster(2);
    let why = hosts[0].worker().refused(&create("strict"), "Unsupported");
    assert!(why.contains("--registry etcd://"), "{why}");
    assert!(nothing_is_kept(&hosts[0]), "nothing is left of what was refused");
}
