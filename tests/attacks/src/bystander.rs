//! Another user who goes on working while an attack runs.

use commonhold_tests::{TestHost, Worker, page};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pages of the bystander's object.
const PAGES: u64 = 16;

/// The bystander's thread.
pub struct Bystander {
    done: Arc<AtomicBool>,
    thread: JoinHandle<Noticed>,
}

/// What the bystander noticed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noticed {
    /// The longest time that one open, map, touch or sync took.
    pub longest: Duration,
    /// How many rounds of these were done.
    pub rounds: u64,
}

impl Bystander {
    /// Starts one, a process of that user, with an object of their own in a file.
    pub fn start(host: &TestHost, (uid, gid): (u32, u32)) -> Bystander {
        let worker = host.worker_of(uid, gid);
        let file = host.scratch().file("bystander", PAGES * 4096);
        std::os::unix::fs::chown(&file, Some(uid), Some(gid)).expect("a file of the bystander");
        worker.ok(&format!("create b /bystander file={} sync=atomic mode=600", file.display()));
        worker.ok("close b");
        Self::go_on(worker)
    }

    /// Starts one that uses an object that is there already.
    pub fn go_on(worker: Worker) -> Bystander {
        let done = Arc::new(AtomicBool::new(false));
        let until = done.clone();
        let thread = std::thread::spawn(move || work(&worker, &until));
        Bystander { done, thread }
    }

    /// Ends it; panics if something of it failed.
    pub fn end(self) -> Noticed {
        self.done.store(true, Ordering::Release);
        match self.thread.join() {
            Ok(noticed) => noticed,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Opens, maps, touches and syncs the object until told to end, one round at least after that.
fn work(worker: &Worker, done: &AtomicBool) -> Noticed {
    let mut noticed = Noticed::default();
    loop {
        let last = done.load(Ordering::Acquire);
        let seed = page::mix(noticed.rounds, 3) % 1000;
        for line in [
            "open b /bystander rw",
            "map v b rw shared 0 0",
            &format!("fill v 0 {PAGES} {seed}"),
            &format!("check v 0 {PAGES} {seed}"),
            &format!("sync b 0 {}", PAGES * 4096),
            "drop v",
            "close b",
        ] {
            let start = Instant::now();
            worker.ok(line);
            noticed.longest = noticed.longest.max(start.elapsed());
        }
        noticed.rounds += 1;
        if last {
            return noticed;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
