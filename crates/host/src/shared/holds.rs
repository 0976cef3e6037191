//! A clock that says when a page that was granted may be taken away again.

use super::Driver;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Instant;

/// What is to be said when.
type Due = Reverse<(Instant, u64)>;

#[derive(Default)]
struct Table {
    due: BinaryHeap<Due>,
    what: std::collections::HashMap<u64, (Weak<Driver>, u32)>,
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
        std::thread::Builder::new().name("holds".into()).spawn(move || {
            while let Some(holds) = weak.upgrade() {
                holds.turn();
            }
        })?;
        Ok(holds)
    }

    /// Says to the driver at that time that the page's hold is over.
    pub fn say_at(&self, when: Instant, driver: &Arc<Driver>, page: u32) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let number = table.next;
        table.next += 1;
        table.what.insert(number, (Arc::downgrade(driver), page));
        // Whom it waits for already is over before: it looks again then.
        let is_next = table.due.peek().is_none_or(|Reverse((next, _))| when < *next);
        table.due.push(Reverse((when, number)));
        if is_next {
            self.changed.notify_one();
        }
    }

    fn turn(&self) {
        /// Now and then it looks whether anybody has it still.
        const LONGEST: std::time::Duration = std::time::Duration::from_secs(1);
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
        for (driver, page) in over {
            if let Some(driver) = driver.upgrade() {
                driver.hold_over(page);
            }
        }
    }
}
