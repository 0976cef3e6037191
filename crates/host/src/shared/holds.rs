//! Minimum holds: pages that were granted stay for a while, so that the instruction that faulted retires.

use super::Said;
use crate::seeing::Told;
use std::collections::{HashMap, VecDeque};
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
