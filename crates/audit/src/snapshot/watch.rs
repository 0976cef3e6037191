//! Work that may hang (a file system of a network, a process whose address space is locked) in a thread that is left
//! behind when it makes no progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::time::Duration;

/// Signs of life of a worker, and the word that nobody waits for it any more.
#[derive(Debug, Default)]
pub struct Progress {
    beats: AtomicU64,
    place: AtomicU64,
    left: AtomicBool,
}

impl Progress {
    /// Something was done.
    pub fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// The worker is at this piece of its work now: what is named if it hangs.
    pub fn at(&self, place: u64) {
        self.place.store(place, Ordering::Relaxed);
        self.beat();
    }

    /// Where it is.
    pub fn place(&self) -> u64 {
        self.place.load(Ordering::Relaxed)
    }

    /// Nobody waits any more: stop.
    pub fn left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }
}

/// Where a worker puts what it has done.
pub struct Outlet<T> {
    sender: SyncSender<T>,
    progress: Arc<Progress>,
}

impl<T> Outlet<T> {
    /// Hands a result over; false when nobody wants it any more.
    pub fn put(&self, item: T) -> bool {
        !self.progress.left() && self.sender.send(item).is_ok()
    }

    /// Its signs of life.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The same, for what outlives a loan.
    pub fn signs(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All done.
    Done,
    /// It made no progress for the deadline, at this place, and was left behind.
    Hung(u64),
}

/// Runs `job` in a thread and gives each result to `each`, until the job is done or hangs.
pub fn stream<T, J, F>(deadline: Duration, job: J, mut each: F) -> End
where
    T: Send + 'static,
    J: FnOnce(&Outlet<T>) + Send + 'static,
    F: FnMut(T),
{
    let progress = Arc::new(Progress::default());
    let (sender, receiver) = mpsc::sync_channel(16);
    let outlet = Outlet { sender, progress: Arc::clone(&progress) };
    let worker = std::thread::Builder::new().name("audit-reader".into()).spawn(move || job(&outlet));
    let Ok(worker) = worker else { return End::Hung(0) };
    loop {
        let beats = progress.beats.load(Ordering::Relaxed);
        match receiver.recv_timeout(deadline) {
            Ok(item) => each(item),
            Err(RecvTimeoutError::Disconnected) => {
                // The worker's end is dropped: it is done, or it panicked, which must not be taken for done.
                if let Err(panic) = worker.join() {
                    std::panic::resume_unwind(panic);
                }
                return End::Done;
            }
            Err(RecvTimeoutError::Timeout) => {
                if progress.beats.load(Ordering::Relaxed) == beats {
                    progress.left.store(true, Ordering::Relaxed);
                    return End::Hung(progress.place());
                }
            }
        }
    }
}

/// Runs one piece of work; none: it hung, and was left behind.
pub fn one<T, J>(deadline: Duration, job: J) -> Option<T>
where
    T: Send + 'static,
    J: FnOnce(&Progress) -> T + Send + 'static,
{
    let mut result = None;
    let end = stream(
        deadline,
        move |outlet| {
            let value = job(outlet.progress());
            outlet.put(value);
        },
        |value| result = Some(value),
    );
    if end == End::Done { result } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_the_end_is_told() {
        let mut seen = Vec::new();
        let end = stream(
            Duration::from_secs(60),
            |out| (0..100).for_each(|n| assert!(out.put(n))),
            |n| seen.push(n),
        );
        assert_eq!((end, seen), (End::Done, (0..100).collect()));
    }

    #[test]
    fn a_worker_that_hangs_is_left_behind_and_its_place_is_told() {
        let (release, wait) = mpsc::channel::<()>();
        let (told, heard) = mpsc::channel();
        let mut seen = Vec::new();
        let end = stream(
            Duration::from_millis(50),
            move |out| {
                out.put(1);
                out.progress().at(42);
                let _ = wait.recv();
                let _ = told.send(out.put(2));
            },
            |n| seen.push(n),
        );
        assert_eq!((end, seen), (End::Hung(42), vec![1]));
        drop(release);
        assert!(
            !heard.recv().expect("the worker runs on"),
            "a result of a worker that was left is not taken"
        );
    }

    #[test]
    fn progress_keeps_a_slow_worker_alive() {
        let value = one(Duration::from_secs(1), |progress| {
            for _ in 0..30 {
                std::thread::sleep(Duration::from_millis(50));
                progress.beat();
            }
            7
        });
        assert_eq!(value, Some(7));
    }
}
