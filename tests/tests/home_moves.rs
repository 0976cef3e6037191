//! Homes that move: the home's host and its keeper are killed, and another host goes on with what was stored and what hosts
//! had. Needs etcd, as the tests of `etcd.rs`.
#![cfg(feature = "etcd")]

use commonhold_sys::file_lock::try_lock;
use commonhold_tests::cluster::{another, says, until_says};
use commonhold_tests::crash::{Chance, rounds};
use commonhold_tests::etcd::Etcd;
use commonhold_tests::host::{signal, stop};
use commonhold_tests::moving::{check_one_by_one, claimant, five_are_lost_until_revert, is_version};
use commonhold_tests::{MIB, Scratch, TestHost, Worker, wait};
use std::fs::File;
use std::path::{Path, PathBuf};

const NAME: &str = "/lab/moving";

/// Hosts that share an object of a MiB whose home is the first, and moves; a client of each has it mapped as `m`.
struct Setting {
    hosts: Vec<TestHost>,
    workers: Vec<Worker>,
    file: PathBuf,
    _scratch: Scratch,
    _etcd: Etcd,
}

impl Setting {
    fn new(count: usize, options: &str) -> Option<Setting> {
        let etcd = Etcd::start()?;
        let hosts: Vec<TestHost> = (0..count).map(|number| etcd.host(number)).collect();
        let scratch = Scratch::new();
        let file = scratch.join("file");
        std::fs::write(&file, vec![0; MIB as usize]).unwrap();
        let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
        workers[0].eventually(&format!("create o {NAME} file={} home-moves {options}", file.display()));
        let setting = Setting { hosts, workers, file, _scratch: scratch, _etcd: etcd };
        setting.workers[1..].iter().for_each(|worker| drop(worker.eventually(&format!("open o {NAME} rw"))));
        setting.workers.iter().for_each(|worker| drop(worker.ok("map m o rw shared 0 0")));
        Some(setting)
    }

    /// Which of the others becomes the home.
    fn claimant(&self) -> usize {
        claimant(&self.hosts, &[0])
    }

    /// The home is lost while something may still write to its file: which host waits to be the next, and what it waits for.
    fn lose_home_with_its_file_held(&self) -> (usize, File) {
        self.lose(0);
        let held = lock(&self.file);
        let home = self.claimant();
        until_says(&self.hosts[home], "waiting until its process is gone");
        (home, held)
    }

    /// The machine of that host is no more, and with it its processes.
    fn lose(&self, number: usize) {
        self.hosts[number].kill_both();
        self.workers[number].kill();
    }
}

/// As another host would that may still write to the file.
fn lock(path: &Path) -> File {
    let file = File::options().read(true).write(true).open(path).unwrap();
    assert!(try_lock(&file).unwrap(), "nobody has the file");
    file
}

/// What others had, what was synced, and what the home alone had and had not.
#[test]
fn another_host_goes_on_as_the_home() {
    for on_loss in ["strict", "strict=revert", "forwarding", "forwarding=revert"] {
        let Some(setting) = Setting::new(3, on_loss) else { return };
        let Setting { hosts, workers, .. } = &setting;
        workers[0].all(&format!("fill m 0 256 1\nsync o 0 {MIB}"));
        workers[1].ok("fill m 0 20 2"); // newest with another host
        workers[0].ok("fill m 30 10 3");
        check_one_by_one(&workers[2], 30..40, 3); // read by another host
        workers[0].ok("fill m 250 5 4"); // the home's alone: nobody reads ahead so far
        workers[2].ok("fill m 10 5 5");
        setting.lose(0);
        for worker in &workers[1..] {
            worker.all("check m 0 10 2\ncheck m 10 5 5\ncheck m 15 5 2\ncheck m 20 10 1\ncheck m 30 10 3");
            worker.all("check m 40 200 1\ncheck m 240 10 1\ncheck m 255 1 1");
        }
        let home = setting.claimant();
        assert!(
            hosts[home].log().contains("the newest versions of 5 pages are lost"),
            "{}",
            hosts[home].log()
        );
        if !on_loss.contains("revert") {
            five_are_lost_until_revert(&hosts[3 - home], &workers[home], NAME);
        }
        workers[3 - home].all("check m 250 5 1\nfill m 250 5 6\nfill m 0 1 7");
        workers[home].all("check m 250 5 6\ncheck m 0 1 7\ncheck m 1 9 2");
        // It is a home as any other: sync, names, and a host that opens the object for the first time.
        workers[3 - home].refused(&format!("sync o 0 {MIB}"), "Lost"); // what the home alone had: said once
        workers[3 - home].ok(&format!("sync o 0 {MIB}"));
        workers[3 - home].refused(&format!("create x {NAME} size=4096 strict"), "Exists");
        assert_eq!(workers[home].ok(&format!("stat {NAME} size")), MIB.to_string());
        assert_eq!(std::fs::metadata(&setting.file).unwrap().len(), MIB);
        // Who was the home comes back as any sharer.
        hosts[0].start_again().unwrap();
        until_says(&hosts[0], "another host is its home by now");
        let back = hosts[0].worker();
        back.eventually(&format!("open o {NAME} rw"));
        back.all("map m o rw shared 0 0\ncheck m 250 5 6\ncheck m 0 1 7\ncheck m 30 10 3\nfill m 5 1 8");
        workers[home].ok("check m 5 1 8");
    }
}

/// Host and keeper of the home stand still until another host has taken its place, and then go on, with a sync under way.
#[test]
fn a_home_that_was_paused_writes_nothing_any_more() {
    for options in ["strict=revert", "forwarding=revert"] {
        let Some(setting) = Setting::new(3, options) else { return };
        let Setting { hosts, workers, file, .. } = &setting;
        workers[0].all(&format!("fill m 0 256 1\nsync o 0 {MIB}\nfill m 100 156 2"));
        workers[1].ok("fill m 0 10 3");
        check_one_by_one(&workers[2], 100..110, 2);
        let status = hosts[0].status();
        let pids = [status.keeper_pid, status.host_pid];
        stop(&pids);
        workers[0].send(&format!("sync o 0 {MIB}"));
        let home = setting.claimant();
        until_says(&hosts[home], "waiting until its process is gone");
        let before = std::fs::read(file).unwrap();
        workers[1].send("check m 0 10 3");
        workers[2].send("fill m 20 1 4");
        pids.iter().for_each(|pid| signal(*pid, libc::SIGCONT));
        assert_eq!(
            [&workers[1], &workers[2]].map(|worker| worker.answer()),
            [Ok(String::new()), Ok(String::new())]
        );
        // Of pages that it alone had newest; the sync itself may have gone on at the next home.
        let lost = 110 * 4096..;
        assert!(std::fs::read(file).unwrap()[lost.clone()] == before[lost], "the file is as it was synced");
        workers[2].all("check m 0 10 3\ncheck m 10 10 1\ncheck m 20 1 4\ncheck m 21 79 1\ncheck m 100 10 2");
        workers[1].ok("check m 200 56 1");
        // Its own client goes on, at another's object.
        drop(workers[0].answer());
        workers[0].ok("check m 0 10 3");
        workers[0].ok("check m 20 1 4");
        // If the sync before was not told that pages are lost this one is.
        drop(workers[0].ask(&format!("sync o 0 {MIB}")));
        workers[0].all(&format!("fill m 0 1 5\nsync o 0 {MIB}"));
        workers[1].ok("check m 0 1 5");
        assert!(std::fs::read(file).unwrap() != before);
    }
}

/// Who has taken the home's place dies before it has begun, with its keeper: another takes its place.
#[test]
fn a_claimant_that_dies_is_followed_by_another() {
    for options in ["strict=revert", "forwarding=revert"] {
        let Some(setting) = Setting::new(3, options) else { return };
        let Setting { hosts, workers, .. } = &setting;
        workers[0].all(&format!("fill m 0 256 1\nsync o 0 {MIB}"));
        workers[1].ok("fill m 0 10 2");
        workers[2].ok("fill m 100 10 3");
        let (first, held) = setting.lose_home_with_its_file_held();
        setting.lose(first);
        let second = 3 - first;
        until_says(&hosts[second], "becomes the home of");
        until_says(&hosts[second], "waiting until its process is gone");
        drop(held);
        let (own, lost) = if second == 1 { ("check m 0 10 2", 100) } else { ("check m 100 10 3", 0) };
        workers[second].all(&format!("{own}\ncheck m {lost} 10 1\ncheck m 10 90 1\ncheck m 110 146 1"));
        let back = &hosts[0];
        back.start_again().unwrap();
        until_says(back, "another host is its home by now");
        let worker = back.worker();
        worker.eventually(&format!("open o {NAME} rw"));
        worker.all(&format!("map m o rw shared 0 0\n{own}\nfill m 0 200 4\nsync o 0 {MIB}"));
        workers[second].ok("check m 0 200 4");
    }
}

/// The processes of all hosts die while the next home waits: their keepers live, and with them what was valid.
#[test]
fn what_was_valid_outlives_the_processes_that_had_it() {
    for options in ["strict", "forwarding"] {
        let Some(setting) = Setting::new(3, options) else { return };
        let Setting { hosts, workers, .. } = &setting;
        workers[0].all(&format!("fill m 0 256 1\nsync o 0 {MIB}\nfill m 50 10 4"));
        workers[1].all("fill m 0 10 2\ncheck m 50 10 4");
        workers[2].ok("fill m 100 10 3");
        let (home, held) = setting.lose_home_with_its_file_held();
        wait::until("the other has heard, too", || says(&hosts[3 - home], "host0 is lost").then_some(()));
        hosts[3 - home].kill_host();
        hosts[home].kill_host();
        drop(held);
        for worker in &workers[1..] {
            worker
                .all("check m 0 10 2\ncheck m 10 40 1\ncheck m 50 10 4\ncheck m 100 10 3\ncheck m 110 146 1");
        }
        // And the home's process once more, when it is a home as any other.
        workers[3 - home].ok("fill m 0 10 5");
        hosts[home].kill_host();
        workers[home].all("check m 0 10 5\ncheck m 100 10 3\nfill m 7 1 6");
        workers[3 - home].all("check m 7 1 6\ncheck m 10 40 1");
        assert!(!says(&hosts[home], "are lost with"), "{}", hosts[home].log());
    }
}

/// Whoever has taken the home's place is struck at any instant of it, wholly or by its process alone: what was synced is
/// there, and nothing older than that is read, nor anything that was never written.
#[test]
fn a_claimant_may_die_at_any_instant() {
    let mut chance = Chance::new("claims of homes");
    for round in 0..rounds(4) {
        let options = if round % 4 < 2 { "strict=revert" } else { "forwarding=revert" };
        let Some(setting) = Setting::new(3, options) else { return };
        let Setting { hosts, workers, .. } = &setting;
        workers[0].all(&format!("fill m 0 256 1\nsync o 0 {MIB}"));
        workers[1].ok("fill m 0 40 2");
        workers[2].ok("fill m 100 40 2");
        setting.lose(0);
        let first = setting.claimant();
        chance.pause(60);
        let wholly = round % 2 == 0;
        if wholly {
            setting.lose(first);
        } else {
            hosts[first].kill_host();
        }
        let left: Vec<usize> = (1..3).filter(|number| !wholly || *number != first).collect();
        let mut seen = Vec::new();
        for number in left {
            let worker = &workers[number];
            worker.all("check m 40 60 1\ncheck m 140 116 1");
            let all = is_version(worker, (0..40).chain(100..140), 2);
            assert!(wholly || all.iter().all(|newest| *newest), "their processes alone were lost: {all:?}");
            // If the claimant had begun, what others had was its alone.
            seen.push(all);
        }
        assert!(seen.windows(2).all(|two| two[0] == two[1]), "two hosts see two versions: {seen:?}");
    }
}

/// Who closes the object while the next home waits for the file keeps what it has newest until that home has taken it.
#[test]
fn what_is_closed_meanwhile_is_not_lost() {
    for options in ["strict", "forwarding"] {
        let Some(setting) = Setting::new(3, options) else { return };
        let Setting { workers, .. } = &setting;
        workers[0].all(&format!("fill m 0 256 1\nsync o 0 {MIB}"));
        workers[1].ok("fill m 0 10 2");
        workers[2].ok("fill m 100 10 2");
        let (home, held) = setting.lose_home_with_its_file_held();
        let other = 3 - home;
        workers[other].ok("drop m");
        workers[other].send("close o");
        std::thread::sleep(std::time::Duration::from_millis(500));
        drop(held);
        workers[other].answer().unwrap();
        workers[home].all("check m 0 10 2\ncheck m 10 90 1\ncheck m 100 10 2\ncheck m 110 146 1");
    }
}

/// By forwarding, hosts pass pages to each other without the home, and each keeps what it passed on: whatever is on its way when the
/// home is lost, no addition is, also if processes die with it or while another takes its place: of sharers, and its own.
#[test]
fn what_sharers_pass_to_each_other_is_not_lost_with_the_home() {
    let mut chance = Chance::new("pages on their way when a home is lost");
    for round in 0..rounds(4) {
        let Some(setting) = Setting::new(4, "forwarding") else { return };
        let Setting { hosts, workers, .. } = &setting;
        let all = || workers[1..].iter();
        let add = |times: u32| all().for_each(|worker| worker.send(&format!("add m 0 8 {times}")));
        add(80);
        all().for_each(|worker| drop(worker.answer().expect("it adds")));
        add(4000);
        chance.pause(60);
        setting.lose(0);
        match round % 4 {
            0 => {}
            1 => {
                chance.pause(3);
                hosts[1].kill_host();
            }
            2 => {
                until_says(&hosts[1], "host0 is lost");
                chance.pause(1500);
                hosts[1..].iter().for_each(TestHost::kill_host);
            }
            _ => {
                let home = setting.claimant();
                chance.pause(1500);
                hosts[home].kill_host();
            }
        }
        all().for_each(|worker| drop(worker.answer().expect("it adds")));
        add(80);
        all().for_each(|worker| drop(worker.answer().expect("it adds")));
        for worker in all() {
            assert_eq!(worker.ok("sum m 0 8"), (3 * 4160).to_string());
        }
        assert!(!hosts[1..].iter().any(|host| says(host, "are lost with")), "{}", hosts[1].log());
        setting.claimant();
    }
}

#[test]
fn the_home_of_an_explicit_object_moves() {
    let Some(setting) = Setting::new(3, "explicit") else { return };
    let Setting { hosts, workers, .. } = &setting;
    workers[0].all(&format!("fill m 0 256 1\nsync o 0 {MIB}"));
    workers[1].all(&format!("check m 0 256 1\nfill m 0 10 2\nsync o 0 {MIB}\nfill m 20 5 3"));
    workers[2].ok("check m 0 10 2");
    setting.lose(0);
    for worker in &workers[1..] {
        worker.all("check m 0 10 2\ncheck m 30 226 1");
    }
    workers[1].all(&format!("check m 20 5 3\nsync o 0 {MIB}"));
    workers[2].all(&format!("check m 20 5 3\nfill m 40 1 4\nsync o 0 {MIB}"));
    workers[1].ok("check m 40 1 4");
    let home = setting.claimant();
    hosts[home].kill_host();
    workers[3 - home].all(&format!("fill m 41 1 5\nsync o 0 {MIB}"));
    workers[home].ok("check m 41 1 5");
    hosts[0].start_again().unwrap();
    until_says(&hosts[0], "another host is its home by now");
    let back = hosts[0].worker();
    back.eventually(&format!("open o {NAME} rw"));
    back.all("map m o rw shared 0 0\ncheck m 0 10 2\ncheck m 20 5 3\ncheck m 40 1 4");
}

/// Nobody used the object when its home was lost; whoever opens it becomes its home. Names are what they were called last.
#[test]
fn whoever_opens_an_object_without_a_home_becomes_its_home() {
    let Some(setting) = Setting::new(2, "strict page-size=16384") else { return };
    let Setting { hosts, workers, .. } = &setting;
    workers[0].all(&format!(
        "fill m 0 256 1\nsync o 0 {MIB}\nrename {NAME} /lab/renamed\nresize /lab/renamed 2097152"
    ));
    workers[1].all("check m 0 10 1\ndrop m\nclose o");
    workers[0].all("fill m 100 1 2\nsync o 409600 4096");
    setting.lose(0);
    until_says(&hosts[1], "host0 is lost");
    workers[1].refused(&format!("open o {NAME} r"), "NotFound");
    workers[1].eventually("open o /lab/renamed rw");
    workers[1]
        .all("map m o rw shared 0 0\ncheck m 0 100 1\ncheck m 100 1 2\ncheck m 101 155 1\nfill m 300 10 3");
    assert_eq!(workers[1].ok("stat /lab/renamed size"), (2 * MIB).to_string());
    hosts[0].start_again().unwrap();
    until_says(&hosts[0], "another host is its home by now");
    let back = hosts[0].worker();
    back.eventually("open o /lab/renamed rw");
    back.all("map m o rw shared 0 0\ncheck m 300 10 3\ncheck m 100 1 2");
    workers[1].all("remove /lab/renamed\ndrop m\nclose o");
    back.all("drop m\nclose o");
    wait::until("what lies beside the file goes with the object", || {
        (!setting.file.with_extension("commonhold").exists()).then_some(())
    });
}

/// What could not move is refused when it is created.
#[test]
fn what_cannot_move_is_refused() {
    let scratch = Scratch::new();
    let file = scratch.join("file");
    std::fs::write(&file, [0; 8192]).unwrap();
    let create = |more: &str| format!("create x /x file={} home-moves {more}", file.display());
    let alone = TestHost::start();
    for (line, words) in [
        (create("strict"), "is in no cluster"),
        (create(""), "make it strict or explicit"),
        ("create x /x size=4096 forwarding home-moves".to_owned(), "use the central scheduler"),
        (create("strict sync=atomic"), "use ordered"),
        ("create x /x size=4096 strict home-moves".to_owned(), "give --file"),
        (create("strict").replace("file=", "file-ro="), "open for reading alone"),
    ] {
        let why = alone.worker().ask(&line).unwrap_err().message;
        assert!(why.contains("home_moves") && why.contains(words), "{line}: {why}");
    }
    let hosts = commonhold_tests::cluster::cluster(2);
    let why = hosts[0].worker().refused(&create("strict"), "Unsupported");
    assert!(why.contains("--registry etcd://"), "{why}");
    assert!(!file.with_extension("commonhold").exists(), "nothing is left of what was refused");
    let Some(etcd) = Etcd::start() else { return };
    let (first, second) = (etcd.host(0), etcd.host(1));
    let worker = first.worker();
    let held = lock(&file);
    let why = wait::until("it belongs to the cluster", || {
        Some(worker.ask(&create("strict")).unwrap_err()).filter(|why| why.kind != "Disconnected")
    });
    assert!(why.message.contains("another program has locked the file"), "{}", why.message);
    drop(held);
    worker.eventually(&create("strict"));
    // The file of an object whose home is another host.
    let why = second.worker().ask(&create("strict").replace(" /x ", " /y ")).unwrap_err().message;
    assert!(why.contains("locked") || why.contains("is there already"), "{why}");
}

/// A loss that the last home counted, and of which one process heard by its sync, is known to the next home: others who had the
/// object open are told of it there.
#[test]
fn the_next_home_tells_of_losses_that_one_process_was_told_of() {
    for on_loss in ["strict=revert", "forwarding=revert"] {
        let Some(setting) = Setting::new(4, on_loss) else { return };
        let Setting { hosts, workers, .. } = &setting;
        let sync = format!("sync o 0 {MIB}");
        workers[0].all(&format!("fill m 0 256 1\n{sync}"));
        let late = [&hosts[2], &hosts[3]].map(|host| another(host, NAME));
        workers[1].ok("fill m 10 5 2");
        setting.lose(1);
        until_says(&hosts[0], "host1 is lost");
        [2, 3].iter().for_each(|host| drop(workers[*host].eventually("check m 0 256 1")));
        [2, 3].iter().for_each(|host| drop(workers[*host].refused(&sync, "Lost")));
        workers[2].ok(&sync);
        setting.lose(0);
        workers[2].eventually(&sync);
        late.iter().for_each(|late| drop(late.refused(&sync, "Lost")));
        late.iter().for_each(|late| drop(late.ok(&sync)));
        [2, 3].iter().for_each(|host| drop(workers[*host].ok(&sync))); // and not twice
    }
}

/// Who holds pages holds them still when the home is another: the next home knows of all of them.
#[test]
fn locks_outlive_the_home() {
    let Some(setting) = Setting::new(3, "strict") else { return };
    let workers = &setting.workers;
    workers[1].ok("lock o 0 4096");
    workers[2].ok("lock o 4096 4096");
    setting.lose(0);
    // The next home lets nobody in before all have said again what they hold.
    workers[1].ok("lock o 40960 4096");
    // Each wants what the other holds: only a home that knows of both locks can tell.
    workers[1].send("lock o 4096 4096");
    workers[2].send("lock o 0 4096");
    let (refused, why) = wait::until("one of the two is told", || {
        [1, 2].into_iter().find_map(|number: usize| {
            Some((number, workers[number].answer_within(std::time::Duration::from_millis(50))?))
        })
    });
    let why = why.unwrap_err();
    assert!(why.kind == "Busy" && why.message.contains("deadlock"), "{why:?}");
    workers[refused].ok(&format!("unlock o {} 4096", (refused - 1) * 4096));
    workers[3 - refused].answer().expect("it is let in");
}
