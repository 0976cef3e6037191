//! What a host does later: ends of minimum holds, and of what mutexes that hosts share wait for.

use commonhold_points as points;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// It must not wait for anybody.
type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Table {
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    jobs: HashMap<u64, Job>,
    next: u64,
}

/// One thread for all objects of a host. It ends when nobody else has this any more.
#[derive(Default)]
pub struct Clock {
    table: Mutex<Table>,
    changed: Condvar,
}

impl Clock {
    /// Starts the thread.
    pub fn start() -> std::io::Result<Arc<Clock>> {
        let clock = Arc::new(Clock::default());
        let weak = Arc::downgrade(&clock);
        points::thread(|| {
            std::thread::Builder::new().name("clock".into()).spawn(move || {
                // Without it whoever waits for the end of a hold waits longer, no more.
                let _ = commonhold_sys::slice::ask_for_short();
                while let Some(clock) = weak.upgrade() {
                    clock.turn();
                }
            })
        })?;
        Ok(clock)
    }

    /// Does something at that time.
    pub fn at(&self, when: Instant, job: impl FnOnce() + Send + 'static) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let number = table.next;
        table.next += 1;
        table.jobs.insert(number, Box::new(job));
        // Whom it waits for already is over before: it looks again then.
        let is_next = table.due.peek().is_none_or(|Reverse((next, _))| when < *next);
        table.due.push(Reverse((when, number)));
        if is_next {
            self.changed.notify_one();
        }
    }

    fn turn(&self) {
        /// Now and then it looks whether anybody has it still.
        const LONGEST: Duration = Duration::from_secs(1);
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let next = table.due.peek().map(|Reverse((when, _))| when.saturating_duration_since(Instant::now()));
        let wait = next.unwrap_or(LONGEST).min(LONGEST);
        let mut table = if wait.is_zero() {
            table
        } else {
            self.changed.wait_timeout(table, wait).unwrap_or_else(PoisonError::into_inner).0
        };
        let mut over = Vec::new();
        while let Some(Reverse((when, number))) = table.due.peek().copied()
            && when <= Instant::now()
        {
            table.due.pop();
            over.extend(table.jobs.remove(&number));
        }
        drop(table);
        over.into_iter().for_each(|job| job());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn what_is_due_first_is_done_first() {
        let clock = Clock::start().unwrap();
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
