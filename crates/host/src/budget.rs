//! The memory budget: how many frames of controlled objects may be in memory at once, and how many of them one user may
//! keep there by page-holding locks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
        self.try_take_beyond(pages, 0)
    }

    /// The same of a budget that is larger by so many.
    pub fn try_take_beyond(&self, pages: u64, beyond: u64) -> bool {
        self.used_pages
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                (used + pages <= self.limit_pages + beyond).then_some(used + pages)
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

/// Pages that users hold, counted for each user.
#[derive(Debug, Default)]
pub struct Holdings {
    of_user: Mutex<HashMap<u32, u64>>,
}

/// Pages counted against a user until it is dropped.
#[derive(Debug)]
pub struct Holding {
    all: Arc<Holdings>,
    uid: u32,
    pages: u64,
}

impl Holdings {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, u64>> {
        self.of_user.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts pages if the user then holds at most `limit`; else gives how many the user holds.
    pub fn take(self: &Arc<Self>, uid: u32, pages: u64, limit: u64) -> Result<Holding, u64> {
        let mut of_user = self.lock();
        let held = of_user.get(&uid).copied().unwrap_or(0);
        if held.saturating_add(pages) > limit {
            return Err(held);
        }
        of_user.insert(uid, held + pages);
        Ok(Holding { all: self.clone(), uid, pages })
    }

    /// Counts pages that are held already: a part of other held pages, or what the host before granted.
    pub fn take_anyway(self: &Arc<Self>, uid: u32, pages: u64) -> Holding {
        *self.lock().entry(uid).or_default() += pages;
        Holding { all: self.clone(), uid, pages }
    }
}

impl Holding {
    /// A part of it, counted for itself.
    pub fn part(&self, pages: u64) -> Holding {
        self.all.take_anyway(self.uid, pages)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut of_user = self.all.lock();
        if let Some(held) = of_user.get_mut(&self.uid) {
            *held -= self.pages;
            if *held == 0 {
                of_user.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_hold_is_counted_apart_and_given_back() {
        let all = Arc::new(Holdings::default());
        let first = all.take(1, 6, 10).unwrap();
        assert_eq!(all.take(1, 5, 10).err(), Some(6));
        drop(all.take(2, 10, 10).unwrap());
        let part = first.part(2);
        drop(first);
        assert_eq!(all.take(1, 9, 10).err(), Some(2));
        drop(part);
        assert!(all.lock().is_empty());
    }

    #[test]
    fn never_more_than_the_limit() {
        let budget = Budget::new(10);
        assert!(budget.try_take(10));
        assert!(!budget.try_take(1));
        budget.give(4);
        assert!(budget.try_take(4) && budget.is_low());
    }
}
