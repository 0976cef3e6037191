//! Minimum holds: pages that were granted stay for a while, so that the instruction that faulted retires.

use super::{Driver, Said};
use crate::seeing::Told;
use commonhold_points as points;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// So long after a hold its end is said though nobody is known to wait for it.
const LATER: Duration = Duration::from_millis(10);

/// Pages of one object within their minimum hold, the oldest first. That one is over the scheduler hears with the next
/// event; a clock is set only where somebody waits for it, and, by forwarding, once for all of them a little later: whoever
/// begins to wait without a message for the page (a round is over, the object is left) waits for that at most.
#[derive(Debug, Default)]
pub(super) struct Held {
    ends: VecDeque<(Instant, u32)>,
    /// When the last hold of a page ends.
    last: HashMap<u32, Instant>,
    /// When all that are over by then are to be looked at.
    look: Option<Instant>,
}

impl Held {
    /// A page was granted.
    pub fn begin(&mut self, page: u32, end: Instant) {
        self.ends.push_back((end, page));
        self.last.insert(page, end);
    }

    /// When somebody is to look, if that is not arranged already.
    pub fn look_later(&mut self, now: Instant) -> Option<Instant> {
        if self.look.is_some_and(|at| at > now) {
            return None;
        }
        self.look = self.ends.back().map(|(end, _)| *end + LATER);
        self.look
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// A page whose hold is over.
    pub fn next_over(&mut self, now: Instant) -> Option<u32> {
        let (end, page) = *self.ends.front().filter(|(end, _)| *end <= now)?;
        self.ends.pop_front();
        if self.last.get(&page) == Some(&end) {
            self.last.remove(&page);
        }
        Some(page)
    }

    /// When the last hold of the pages that a message is about ends.
    pub fn end_of(&self, message: &Said) -> Option<Instant> {
        if self.last.is_empty() {
            return None;
        }
        let end_of = |page| self.last.get(&page).copied();
        match message.run() {
            Some(run) => run.pages().filter_map(end_of).max(),
            None => message.pages().into_iter().filter_map(end_of).max(),
        }
    }
}

/// What is to be said when.
type Due = Reverse<(Instant, u64)>;

#[derive(Default)]
struct Table {
    due: BinaryHeap<Due>,
    what: HashMap<u64, Weak<Driver>>,
    next: u64,
}

/// One thread for all objects of a host. It ends when nobody else has this any more.
#[derive(Default)]
pub struct Holds {
    table: Mutex<Table>,
    changed: Condvar,
}

impl Holds {
    /// Starts the thread.
    pub fn start() -> std::io::Result<Arc<Holds>> {
        let holds = Arc::new(Holds::default());
        let weak = Arc::downgrade(&holds);
        points::thread(|| {
            std::thread::Builder::new().name("holds".into()).spawn(move || {
                // Without it whoever waits for the end of a hold waits longer, no more.
                let _ = commonhold_sys::slice::ask_for_short();
                while let Some(holds) = weak.upgrade() {
                    holds.turn();
                }
            })
        })?;
        Ok(holds)
    }

    /// Says to the driver at that time that a hold is over which somebody waits for.
    pub fn say_at(&self, when: Instant, driver: &Arc<Driver>) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let number = table.next;
        table.next += 1;
        table.what.insert(number, Arc::downgrade(driver));
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
            over.extend(table.what.remove(&number));
        }
        drop(table);
        for driver in over {
            if let Some(driver) = driver.upgrade() {
                driver.hold_over();
            }
        }
    }
}
