//! The size of a shared object, which its home changes: what a host was told of it, and how far messages may reach.

use super::driver::Driver;
use super::part::Part;
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Result, pages_of};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A size, as the home tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Grows with each change at that home process.
    pub change: u64,
    /// The size, bytes.
    pub size_bytes: u64,
    /// Messages may speak of pages up to here: before an object grows all hosts know that it may have.
    pub room_bytes: u64,
    /// It is about to grow: nobody has written past the end yet, where all know that it has.
    pub grows: bool,
}

/// What one host knows.
pub(super) struct SizeKnown {
    /// Pages up to here may be spoken of. It never shrinks: what was said before a shrinking comes after it.
    room: AtomicU64,
    /// Where the object ends for processes of this host, in pages.
    end: AtomicU64,
    /// What was told last, and by which home.
    last: Mutex<Option<(HostId, Told)>>,
}

impl SizeKnown {
    pub fn new(pages: u64) -> SizeKnown {
        SizeKnown { room: AtomicU64::new(pages), end: AtomicU64::new(pages), last: Mutex::default() }
    }

    pub fn room(&self) -> u64 {
        self.room.load(Ordering::Relaxed)
    }

    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }
}

impl Driver {
    /// The home says, or this host says as the home, that this is the size. Whether nothing newer was said before.
    pub fn told_size(&self, home: HostId, told: Told) -> bool {
        self.size.room.fetch_max(pages_of(told.room_bytes.max(told.size_bytes)), Ordering::Relaxed);
        let mut last = self.size.last.lock().unwrap_or_else(PoisonError::into_inner);
        let older = last.is_some_and(|(by, last)| by == home && last.change > told.change);
        if !older {
            *last = Some((home, told));
        }
        !older
    }

    /// Processes of this host ask for no page from here on.
    pub fn set_end(&self, pages: u64) {
        self.size.end.store(pages, Ordering::Relaxed);
    }

    /// Of processes of this host: the object is about to grow, or not any more.
    pub fn about_to_grow(&self, grows: bool) -> Result<()> {
        self.cache().map_or(Ok(()), |cache| cache.about_to_grow(grows))
    }

    /// What was told last.
    pub fn size_told(&self) -> Option<Told> {
        self.size.last.lock().unwrap_or_else(PoisonError::into_inner).map(|(_, told)| told)
    }

    /// The scheduler stands still until the guard is dropped.
    pub fn still(&self) -> impl Drop + '_ {
        self.state()
    }

    /// At the home, before the object shrinks: forwarding says to nobody which pages are lost but to all.
    pub fn check_may_shrink(&self, pages: u64) -> Result<()> {
        match &self.state().part {
            Part::Forwarding(node)
                if node.lost_pages().iter().any(|page| u64::from(*page) >= self.plan.sizes.pages(pages)) =>
            {
                Err(Error::new(
                    ErrorKind::Lost,
                    "pages past the new end were lost with a host: `commonhold revert` first, then try again",
                ))
            }
            _ => Ok(()),
        }
    }

    /// At the home, when it has shrunk: of pages past the end nothing is lost, for there is nothing.
    pub fn forget_lost_from(&self, pages: u64) {
        if let Part::Central(node) = &mut self.state().part {
            node.revert_from(self.plan.sizes.pages(pages).min(u32::MAX.into()) as u32);
        }
    }
}
