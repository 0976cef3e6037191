//! Objects of many users in one budget that none of them fits into: they evict each other, whatever
//! dies or stands still meanwhile.

use commonhold_tests::crash::{Chance, Victim, kill_and_recover};
use commonhold_tests::host::{signal, stop};
use commonhold_tests::ledger::Ledger;
use commonhold_tests::{TestHost, Worker, wait};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Pages of each object.
const PAGES: u64 = 1024;
const KINDS: [&str; 4] = ["controlled", "freezable", "file=FILE sync=ordered", "file=FILE sync=atomic"];

/// One user's object, whose pages two threads of a process count up.
struct Counted {
    worker: Worker,
    path: PathBuf,
    ledger: Ledger,
    name: String,
}

impl Counted {
    fn begin(host: &TestHost, number: u64, users: u64) -> Counted {
        let uid = 40_000 + (number % users) as u32;
        let file = host.scratch().file(&format!("file{number}"), PAGES * 4096);
        let path = host.scratch().join(&format!("ledger{number}"));
        let ledger = Ledger::open(&path, PAGES as usize);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        rustix::fs::chown(&file, Some(rustix::fs::Uid::from_raw(uid)), None).unwrap();
        let kind = KINDS[number as usize % KINDS.len()].replace("FILE", &file.display().to_string());
        let worker = host.worker_of(uid, uid);
        let name = format!("/of{number}");
        worker.ok(&format!("create o {name} size={} mode=666 {kind}", PAGES * 4096));
        let counted = Counted { worker, path, ledger, name };
        counted.go_on();
        counted
    }

    fn go_on(&self) {
        self.worker.ok("map m o rw shared 0 0");
        self.worker.ok(&format!("count m 0 1 {PAGES} {} 2", self.path.display()));
    }

    fn done(&self) -> u64 {
        (0..PAGES as usize).map(|page| self.ledger.get(page).0).sum()
    }

    fn end(&self, host: &TestHost) {
        self.worker.ok("halt");
        self.worker.ok(&format!("counted m 0 1 {PAGES} {}", self.path.display()));
        let other = host.worker();
        other.all(&format!("open o {} r\nmap m o r shared 0 0", self.name));
        other.ok(&format!("counted m 0 1 {PAGES} {}", self.path.display()));
    }
}

/// How long they go on at least.
fn a_while() -> Duration {
    let seconds = std::env::var("COMMONHOLD_TESTS_SECONDS").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(3))
}

/// Lets users' objects press each other while `step` is done again and again; then all go on, and
/// nothing is lost.
fn press(what: &str, mut step: impl FnMut(&TestHost, &mut Chance)) {
    let mut chance = Chance::new(what);
    let host = TestHost::with(&["--budget", "16MiB"]);
    let all: Vec<Counted> = (0..12).map(|n| Counted::begin(&host, n, 6)).collect();
    let end = Instant::now() + a_while();
    while Instant::now() < end {
        step(&host, &mut chance);
    }
    let done = all.iter().map(Counted::done);
    let goal: Vec<u64> = done.map(|done| done + 20).collect();
    wait::until("all go on", || all.iter().zip(&goal).all(|(c, goal)| c.done() >= *goal).then_some(()));
    all.iter().for_each(|c| c.end(&host));
}

#[test]
fn hosts_are_killed() {
    press("hosts_are_killed", |host, chance| {
        chance.pause(300);
        kill_and_recover(host, Victim::Host);
    });
}

#[test]
fn hosts_and_keepers_are_killed_stopped_and_upgraded() {
    press("hosts_and_keepers_are_killed_stopped_and_upgraded", |host, chance| {
        chance.pause(400);
        match chance.below(6) {
            0 => kill_and_recover(host, Victim::Host),
            1 => kill_and_recover(host, Victim::Keeper),
            2 => drop(host.command(&["host", "restart"], |_| ()).unwrap()),
            3 | 4 => drop(host.command(&["host", "upgrade"], |_| ()).unwrap()),
            _ => {
                let pid = host.status().host_pid;
                stop(&[pid]);
                chance.pause(1500);
                signal(pid, libc::SIGCONT);
            }
        }
    });
}
