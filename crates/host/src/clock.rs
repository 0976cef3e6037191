//! What is to be done later, by one thread, each in a moment.

use commonhold_points as points;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where there is no thread, another attempt to begin one is made with the next job.
type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Table {
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    jobs: HashMap<u64, Job>,
    next: u64,
    runs: bool,
}

/// The thread, which begins with the first job.
#[derive(Default)]
pub struct Clock {
    table: Mutex<Table>,
    changed: Condvar,
}

/// So long it sleeps when there is nothing to do, before it ends.
const IDLE: Duration = Duration::from_secs(60);

impl Clock {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something at that time, or a little later. It must not wait for anybody.
    pub fn at(self: &Arc<Self>, when: Instant, job: impl FnOnce() + Send + 'static) {
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        let is_next = table.due.peek().is_none_or(|Reverse((next, _))| when < *next);
        table.due.push(Reverse((when, number)));
        table.jobs.insert(number, Box::new(job));
        if table.runs {
            if is_next {
                self.changed.notify_one();
            }
            return;
        }
        let this = self.clone();
        let thread = std::thread::Builder::new().name("clock".into()).stack_size(128 << 10);
        // No thread is to be had: the next job tries again, and does this one, too.
        table.runs = points::thread(|| thread.spawn(move || this.run())).is_ok();
    }

    fn run(&self) {
        let mut table = self.table();
        loop {
            let now = Instant::now();
            if let Some(Reverse((when, number))) = table.due.peek().copied()
                && when <= now
            {
                table.due.pop();
                let job = table.jobs.remove(&number);
                drop(table);
                job.into_iter().for_each(|job| job());
                table = self.table();
                continue;
            }
            let wait = table.due.peek().map_or(IDLE, |Reverse((when, _))| *when - now);
            let slept = self.changed.wait_timeout(table, wait).unwrap_or_else(PoisonError::into_inner);
            table = slept.0;
            if slept.1.timed_out() && table.due.is_empty() {
                table.runs = false;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn what_is_due_first_is_done_first() {
        let clock = Arc::new(Clock::default());
        let (done, order) = channel();
        let now = Instant::now();
        for (number, after) in [(2, 40), (1, 20), (3, 60), (0, 0)] {
            let done = done.clone();
            clock.at(now + Duration::from_millis(after), move || done.send(number).unwrap_or_default());
        }
        drop(done);
        assert_eq!(order.iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(now.elapsed() >= Duration::from_millis(60));
    }
}
