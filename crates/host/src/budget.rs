//! The memory budget: how many frames of controlled objects may be in memory at once.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number of frames and how many of them are taken.
#[derive(Debug)]
pub struct Budget {
    limit_pages: u64,
    used_pages: AtomicU64,
}

impl Budget {
    /// Room for `limit_pages` frames.
    pub fn new(limit_pages: u64) -> Budget {
        Budget { limit_pages, used_pages: AtomicU64::new(0) }
    }

    /// The limit.
    pub fn limit_pages(&self) -> u64 {
        self.limit_pages
    }

    /// Frames taken.
    pub fn used_pages(&self) -> u64 {
        self.used_pages.load(Ordering::Relaxed)
    }

    /// Takes room for `pages` frames if there is as much.
    pub fn try_take(&self, pages: u64) -> bool {
        self.used_pages
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                (used + pages <= self.limit_pages).then_some(used + pages)
            })
            .is_ok()
    }

    /// Takes room whether there is any or not: for frames that exist already (take-over).
    pub fn take_anyway(&self, pages: u64) {
        self.used_pages.fetch_add(pages, Ordering::Relaxed);
    }

    /// Gives room back.
    pub fn give(&self, pages: u64) {
        self.used_pages.fetch_sub(pages, Ordering::Relaxed);
    }

    /// Whether so little is left that eviction should begin before somebody has to wait for it.
    pub fn is_low(&self) -> bool {
        self.used_pages() > self.limit_pages.saturating_sub((self.limit_pages / 16).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_than_the_limit() {
        let budget = Budget::new(10);
        assert!(budget.try_take(10));
        assert!(!budget.try_take(1));
        budget.give(4);
        assert!(budget.try_take(4) && budget.is_low());
    }
}
