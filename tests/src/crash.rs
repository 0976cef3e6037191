//! A job that goes on while things are killed, and what must be true of it afterwards.

use crate::host::kill;
use crate::ledger::Ledger;
use crate::{TestHost, Worker, page, wait};
use std::path::PathBuf;
use std::time::Duration;

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The host process.
    Host,
    /// The keeper.
    Keeper,
    /// Both at once.
    Both,
    /// One of the clients.
    Client,
}

/// How many rounds a test does: `share` of the 200 that all do together, or of `COMMONHOLD_TESTS_ROUNDS`.
pub fn rounds(share: usize) -> usize {
    let all = std::env::var("COMMONHOLD_TESTS_ROUNDS").ok().and_then(|n| n.parse::<usize>().ok());
    all.map_or(share, |all| (share * all).div_ceil(200))
}

/// Numbers that differ from run to run, and are printed: a failure names the one that led to it.
pub struct Chance(u64);

impl Chance {
    /// `COMMONHOLD_TESTS_SEED`, or one from the clock.
    pub fn new(what: &str) -> Chance {
        let given = std::env::var("COMMONHOLD_TESTS_SEED").ok().and_then(|n| n.parse().ok());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = given.unwrap_or_else(|| now.map_or(1, |t| t.as_nanos() as u64));
        eprintln!("{what}: COMMONHOLD_TESTS_SEED={seed}");
        Chance(page::mix(seed, 1))
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = page::mix(self.0, 2);
        (self.0 >> 8) % limit
    }

    /// Waits for a random while of at most that many milliseconds.
    pub fn pause(&mut self, most_ms: u64) {
        std::thread::sleep(Duration::from_micros(self.below(most_ms * 1000)));
    }
}

/// Writers that count up pages of one object, each its own.
pub struct Job {
    /// The writers, in order of their pages.
    pub writers: Vec<Worker>,
    name: String,
    pages: u64,
    path: PathBuf,
    ledger: Ledger,
}

impl Job {
    /// Creates the object `name` and lets `count` workers begin. `FILE` in the options is a new file.
    pub fn begin(host: &TestHost, name: &str, options: &str, pages: u64, count: u64) -> Job {
        let file = host.scratch().file(&format!("file{}", name.replace('/', "-")), pages * 4096);
        let path = host.scratch().join(&format!("ledger{}", name.replace('/', "-")));
        let ledger = Ledger::open(&path, pages as usize);
        let creator = host.worker();
        let options = options.replace("FILE", &file.display().to_string());
        creator.ok(&format!("create o {name} size={} mode=666 {options}", pages * 4096));
        let mut job = Job { writers: Vec::new(), name: name.to_owned(), pages, path, ledger };
        for index in 0..count {
            let writer = host.worker();
            job.go_on(&writer, index, count);
            job.writers.push(writer);
        }
        job
    }

    /// Lets a worker count up the pages of the writer of that index.
    pub fn go_on(&self, worker: &Worker, index: u64, count: u64) {
        worker.ok(&format!("open o {} rw", self.name));
        worker.ok("map m o rw shared 0 0");
        worker.ok(&format!("count m {index} {count} {} {} 1", self.pages / count, self.path.display()));
    }

    /// Writes that were done so far.
    pub fn progress(&self) -> u64 {
        (0..self.pages as usize).map(|page| self.ledger.get(page).0).sum()
    }

    /// Waits until the writers, every single one, did some more.
    pub fn wait_for_progress(&self) {
        let count = self.writers.len();
        let of = |writer: usize| -> u64 {
            (writer..self.pages as usize).step_by(count).map(|page| self.ledger.get(page).0).sum()
        };
        let alive: Vec<usize> = (0..count).filter(|index| !self.writers[*index].has_ended()).collect();
        let before: Vec<u64> = alive.iter().map(|index| of(*index)).collect();
        wait::until("every writer goes on", || {
            alive.iter().zip(&before).all(|(index, before)| of(*index) > before + 20).then_some(())
        });
    }

    /// Checks every page through a mapping of `worker`.
    pub fn check(&self, worker: &Worker) {
        if worker.ask("address check").is_err() {
            worker.ok(&format!("open c {} r", self.name));
            worker.ok("map check c r shared 0 0");
        }
        worker.ok(&format!("counted check 0 1 {} {}", self.pages, self.path.display()));
    }

    /// Waits until the host has the object's memory. After host and keeper died at once its clients bring it, and until then
    /// it is theirs alone: who goes on writing need not have done so.
    pub fn wait_until_back(&self, worker: &Worker) {
        worker.all(&format!("open back {} r\nmap back back r shared 0 0\nsum back 0 1", self.name));
    }

    /// Ends the writers, and checks that each saw what it had written all the time, and that everybody sees all of it.
    pub fn end(&self, host: &TestHost) {
        for writer in self.writers.iter().filter(|w| !w.has_ended()) {
            writer.ok("halt");
        }
        for writer in self.writers.iter().filter(|w| !w.has_ended()) {
            self.check(writer);
        }
        self.check(&host.worker());
    }
}

/// Kills, and waits until a host answers again.
pub fn kill_and_recover(host: &TestHost, victim: Victim) {
    let before = host.status();
    match victim {
        Victim::Host => {
            kill(before.host_pid);
            host.wait_for_other_host(before.host_pid);
        }
        Victim::Keeper => {
            kill(before.keeper_pid);
            wait::until("another keeper is there", || {
                let now = host.status();
                (now.keeper_pid != before.keeper_pid && now.keeper_pid != 0).then_some(())
            });
        }
        Victim::Both => {
            host.kill_both();
            host.start_again().expect("the host starts again");
        }
        Victim::Client => {}
    }
}
