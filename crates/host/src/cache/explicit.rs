//! The cache of an object under explicit coherence: pages here are this host's own versions, until it syncs them.
//!
//! What is not in the book as written stands protected in every page table: so the book is exact while writers are
//! stopped, and a page that another host has synced goes only if nobody here wrote it.

use super::{Cache, Inner, book};
use crate::shared::Driver;
use commonhold_coherence::Access;
use commonhold_object::error::Doing;
use commonhold_object::{ErrorKind, PageRange, Result};
use roaring::RoaringBitmap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a sync waits for a home that is away.
const HOME_AWAY: Duration = Duration::from_secs(30);
/// Between two attempts.
const AGAIN: Duration = Duration::from_millis(20);

impl Cache {
    /// From now on whoever writes a page for the first time waits. Gives those of `pages` that were written.
    pub fn stop_writers(&self, pages: &RoaringBitmap) -> RoaringBitmap {
        let mut inner = self.lock();
        inner.writers_stopped = true;
        pages & inner.book.dirty()
    }

    /// The first of these pages that processes here would have to fetch.
    pub fn first_absent(&self, pages: PageRange) -> Option<u64> {
        let inner = self.lock();
        let here = &inner.rights.as_ref()?.read;
        // All before it are here: so many are here up to there.
        let (mut from, mut to) = (pages.first, pages.end());
        while from < to {
            let middle = from + (to - from) / 2;
            let count = here.range_cardinality(pages.first as u32..=middle as u32);
            if count == middle + 1 - pages.first { from = middle + 1 } else { to = middle }
        }
        (from < pages.end()).then_some(from)
    }

    /// The end of [`stop_writers`](Self::stop_writers).
    pub fn let_writers_go(&self) {
        self.lock().writers_stopped = false;
        self.ask_again();
    }

    /// Pages that were not written here may have changed elsewhere unseen: they go. Gives the others.
    pub fn keep_written(&self) -> Result<RoaringBitmap> {
        let mut inner = self.lock();
        let written = inner.book.dirty() | inner.book.writing();
        let gone = &inner.resident - &written;
        for run in book::runs(&gone) {
            self.punch(run).doing("dropping frames")?;
        }
        inner.views.iter_mut().for_each(|view| view.forget(&gone));
        inner.resident -= &gone;
        inner.own(&written);
        self.give_back(gone.len());
        self.machine.has_changed(self.id);
        Ok(written)
    }

    /// What this host wrote of these pages is what everybody sees. Noted at once, so that a home that is lost in the next
    /// instant leaves nobody in doubt which pages are this host's own.
    pub fn is_synced(&self, pages: &RoaringBitmap) {
        let mut inner = self.lock();
        inner.book.written(pages);
        inner.left_in_order -= pages;
        // Who has copies of them on this host, apart from its frames.
        self.machine.has_changed(self.id);
    }

    /// Syncs replaced versions of other hosts that were not seen here.
    pub fn replaced_unseen(&self, conflicts: u32) {
        self.lock().conflicts += u64::from(conflicts);
    }

    /// Makes what was written here what everybody sees: the home stores it.
    pub(super) fn store_elsewhere(
        self: &Arc<Self>,
        driver: &Arc<Driver>,
        freeze: bool,
        mut choose: impl FnMut(&mut Inner) -> RoaringBitmap,
    ) -> Result<u64> {
        let deadline = Instant::now() + HOME_AWAY;
        loop {
            let mut pages = RoaringBitmap::new();
            let result = driver.sync(|| {
                let mut inner = self.lock();
                // Anew each time: those of an attempt before with what was written since are of no one instant.
                pages = choose(&mut inner);
                inner.book.start_writing(&pages)?;
                inner.frozen = freeze;
                self.protect_synchronous(&inner, &pages)?;
                Ok(pages.clone())
            });
            self.thaw();
            match self.end_writing(&pages, result) {
                Ok(()) => return Ok(pages.len()),
                // A home that is lost in the middle of it may be back in a moment.
                Err(error) if error.kind == ErrorKind::Disconnected && Instant::now() < deadline => {
                    std::thread::sleep(AGAIN);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The object's pages held here stay when another host syncs or wants them, until they are let go.
    pub(super) fn note_holds(&self, pages: PageRange, held: bool) {
        let Some(driver) = self.driver() else { return };
        if held {
            driver.lock(pages, true);
            return;
        }
        let free = {
            let mut free = book::set_of(pages);
            self.held_now().take_from(&mut free);
            free
        };
        book::runs(&free).into_iter().for_each(|run| driver.lock(run, false));
    }
}

impl Inner {
    /// Of the object's pages, processes here may use these alone.
    fn own(&mut self, pages: &RoaringBitmap) {
        let runs = book::runs(pages);
        if let Some(rights) = &mut self.rights {
            *rights = super::coherent::Rights::default();
            runs.into_iter().for_each(|run| rights.allow_too(run, Access::Write));
        }
    }
}
