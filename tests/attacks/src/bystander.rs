//! Another user who goes on working while an attack runs.

use crate::scene::BYSTANDER;
use commonhold_tests::{TestHost, Worker, page};
use serde::{Deserialize, Serialize};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pages of the bystander's object.
const PAGES: u64 = 16;

/// A process of somebody who attacks nobody, with one object, `/bystander`.
pub struct Bystander {
    worker: Worker,
    rounds: u64,
}

/// What the bystander noticed.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Noticed {
    /// The longest time that one open, map, touch or sync took.
    pub longest_ms: f64,
    /// How many rounds of these were done.
    pub rounds: u64,
}

impl Bystander {
    /// One of another user than the attacker, whose object is a file.
    pub fn of_a_user(host: &TestHost) -> Bystander {
        let (uid, gid) = BYSTANDER;
        let worker = host.worker_of(uid, gid);
        let file = host.scratch().file("bystander", PAGES * 4096);
        std::os::unix::fs::chown(&file, Some(uid), Some(gid)).expect("a file of the bystander");
        worker.ok(&format!("create b /bystander file={} sync=atomic mode=600", file.display()));
        worker.ok("close b");
        Self::of(worker)
    }

    /// One that uses an object that is there already. It has done a round when this returns.
    pub fn of(worker: Worker) -> Bystander {
        let mut bystander = Bystander { worker, rounds: 0 };
        bystander.round();
        bystander
    }

    /// Works while the attack runs, and a round after it.
    pub fn while_runs(&mut self, attack: impl FnOnce()) -> Noticed {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let working = scope.spawn(|| self.work(&done));
            let ended = catch_unwind(AssertUnwindSafe(attack));
            done.store(true, Ordering::Release);
            let noticed = working.join();
            match (ended, noticed) {
                (Ok(()), Ok(noticed)) => noticed,
                (Err(panic), _) | (_, Err(panic)) => resume_unwind(panic),
            }
        })
    }

    fn work(&mut self, done: &AtomicBool) -> Noticed {
        let (mut longest, before) = (Duration::ZERO, self.rounds);
        loop {
            let last = done.load(Ordering::Acquire);
            longest = longest.max(self.round());
            if last {
                let longest_ms = longest.as_secs_f64() * 1000.0;
                return Noticed { longest_ms, rounds: self.rounds - before };
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Opens, maps, touches and syncs the object; how long the longest step took.
    fn round(&mut self) -> Duration {
        let seed = |round| page::mix(round, 3) % 1000;
        let (former, seed) = (self.rounds.checked_sub(1).map(seed), seed(self.rounds));
        let mut lines = vec!["open b /bystander rw".to_owned(), "map v b rw shared 0 0".to_owned()];
        // What was written in the round before, and nobody else may write, is there.
        lines.extend(former.map(|former| format!("check v 0 {PAGES} {former}")));
        lines.extend([
            format!("fill v 0 {PAGES} {seed}"),
            format!("check v 0 {PAGES} {seed}"),
            format!("sync b 0 {}", PAGES * 4096),
            "drop v".to_owned(),
            "close b".to_owned(),
        ]);
        let mut longest = Duration::ZERO;
        for line in lines {
            let start = Instant::now();
            self.worker.ok(&line);
            longest = longest.max(start.elapsed());
        }
        self.rounds += 1;
        longest
    }
}
