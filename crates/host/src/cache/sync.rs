//! Storing: `ordered` writes and flushes, `atomic` goes through the journal (`super::atomic`).

use super::{Cache, Inner, book, lock, read_frames};
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, PAGE_SIZE_BYTES, PageRange, Result, SyncMode};
use roaring::RoaringBitmap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Pages copied between two system calls of an ordered sync.
const COPY_PAGES: u64 = 256;
/// Up to so many pages are copied while writers are held, and written out afterwards: 16 MiB. Of more, writers wait
/// until they are written out.
const FROZEN_COPY_PAGES: u64 = 4096;

impl Cache {
    /// Makes the dirty pages of `range` what is stored. Gives how many they were. On an error the stored object
    /// is as before, the pages are dirty still, and it can be tried again.
    pub fn sync(self: &Arc<Self>, range: PageRange, freeze: bool) -> Result<u64> {
        self.store(freeze, |inner| {
            self.collect(inner, range);
            book::within(inner.book.dirty(), range.intersect(inner.whole()))
        })
    }

    /// As [`sync`](Self::sync), but of the pages that nobody holds.
    pub(super) fn sync_unheld(self: &Arc<Self>, range: PageRange) -> Result<u64> {
        self.store(false, |inner| {
            self.collect(inner, range);
            let mut free = book::within(inner.book.dirty(), range.intersect(inner.whole()));
            self.held_now().take_from(&mut free);
            free
        })
    }

    /// After an orderly unmap: stores those dirty pages of `pages` that nobody maps any more and nobody holds. Who may
    /// not write stores for others only what they left in order: what a killed writer did not sync is not his to store.
    pub fn sync_unmapped(self: &Arc<Self>, pages: PageRange, may_write: bool) -> Result<u64> {
        if self.is_copies() {
            return Ok(0); // what is newest here goes home when the object is closed, and is stored there
        }
        let alone = |inner: &Inner| {
            let mut alone = book::within(inner.book.dirty(), pages.intersect(inner.whole()));
            if !may_write {
                alone &= &inner.left_in_order;
            }
            inner.views.iter().for_each(|view| book::remove(&mut alone, view.pages));
            let held = self.held_now();
            alone -= held.elsewhere();
            held.take_from(&mut alone);
            alone
        };
        {
            let mut inner = self.lock();
            if may_write {
                let mut left = book::within(inner.book.dirty(), pages.intersect(inner.whole()));
                let writers = inner.views.iter().filter(|view| view.mapping.writes_object());
                writers.for_each(|view| book::remove(&mut left, view.pages));
                inner.left_in_order |= left;
            }
            if alone(&inner).is_empty() {
                return Ok(0);
            }
        }
        self.store(false, |inner| alone(inner))
    }

    pub(super) fn store(
        self: &Arc<Self>,
        freeze: bool,
        choose: impl FnMut(&mut Inner) -> RoaringBitmap,
    ) -> Result<u64> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.machine.counters.syncs.fetch_add(1, Ordering::Relaxed);
        if self.pager.may_block() && !freeze && self.traits.sync != SyncMode::Atomic {
            self.store_in_parts(choose)
        } else {
            // As many as are known to be newer by now; more than one user's share are refused below.
            let pages = self.pays_for_pager().map_or(0, |_| self.numbers().dirty_pages.max(1));
            let _on_its_way = self.on_its_way(pages)?;
            self.store_at_once(freeze, choose)
        }
    }

    /// What is stored as a whole cannot be evicted until its pager has all of it, and a pager that
    /// is another process may never say so.
    fn check_share(&self, pages: &RoaringBitmap) -> Result<()> {
        let most = self.machine.arriving.of_one_user();
        match self.pays_for_pager().filter(|_| pages.len() > most) {
            None => Ok(()),
            Some(uid) => Err(Error::new(
                ErrorKind::TooMany,
                format!(
                    "a sync as a whole would keep {} pages in memory until the pager has all of them, and user {uid} may \
                     have {most} at once: sync more often, or start the host with a larger --budget",
                    pages.len()
                ),
            )),
        }
    }

    /// What is being stored cannot be evicted, and a pager that is another process may never say that it has it: a part at
    /// a time, which counts as being on its way.
    fn store_in_parts(self: &Arc<Self>, mut choose: impl FnMut(&mut Inner) -> RoaringBitmap) -> Result<u64> {
        let most = COPY_PAGES.min(self.machine.arriving.of_one_user());
        let (mut from, mut stored) = (0, 0);
        loop {
            let _on_its_way = self.on_its_way(most)?;
            let mut last = None;
            let count = self.store_at_once(false, |inner| {
                let chosen = choose(inner);
                let part: RoaringBitmap = chosen.range(from..).take(most as usize).collect();
                last = part.max();
                part
            })?;
            stored += count;
            match last.and_then(|last| last.checked_add(1)) {
                Some(next) if count == most => from = next,
                _ => return Ok(stored),
            }
        }
    }

    fn store_at_once(
        self: &Arc<Self>,
        freeze: bool,
        mut choose: impl FnMut(&mut Inner) -> RoaringBitmap,
    ) -> Result<u64> {
        let mut turn = lock(&self.turn);
        if let Some(driver) = self.syncs_elsewhere() {
            return self.store_elsewhere(&driver, freeze, choose);
        }
        if self.pager.is_anonymous() {
            return Ok(0); // succeeds, and promises nothing past the host
        }
        let (protected, pages) = {
            let mut inner = self.lock();
            self.pager.check(inner.size_bytes)?;
            // What an eviction is saving is neither read nor written by two at once.
            inner.sync_waits = true;
            while !inner.leaving.is_empty() {
                inner = self.wait_settled(inner);
            }
            inner.sync_waits = false;
            self.settled.ring();
            let pages = choose(&mut inner);
            self.check_share(&pages)?;
            inner.book.start_writing(&pages)?;
            self.pager.begins_writing(&pages);
            inner.frozen = freeze;
            (self.protect_synchronous(&inner, &pages), pages)
        };
        let result = protected.and_then(|()| match self.traits.sync {
            SyncMode::Atomic => self
                .check_journal_room(&pages)
                .and_then(|()| self.store_atomically(&mut turn, &pages, freeze)),
            SyncMode::Plain | SyncMode::Ordered => self.store_in_place(&pages, freeze),
        });
        self.thaw();
        self.end_writing(&pages, result)?;
        self.settle_replicas()?;
        drop(turn);
        self.checkpoint_if_due();
        Ok(pages.len())
    }

    pub(super) fn end_writing(&self, pages: &RoaringBitmap, result: Result<()>) -> Result<()> {
        if !pages.is_empty() {
            self.pager.wrote();
        }
        let mut inner = self.lock();
        if let Err(error) = result {
            // Of an object of another host some may be: then that was noted.
            let left = pages & inner.book.writing();
            if let Err(worse) = inner.book.not_written(&left) {
                self.machine.log(format_args!("object {}: {worse}", self.id.0));
            }
            return Err(error);
        }
        inner.book.written(pages);
        inner.left_in_order -= pages;
        if inner.views.is_empty() {
            self.note_stamp(&mut inner); // changed by this sync, not behind the host's back
        }
        // Spilled copies that were stored are no longer the newest there is.
        // (What is on its way from the spill file into memory is left there.)
        let stale = pages - inner.book.dirty() - &inner.in_flight;
        for run in inner.book.unspill(&stale) {
            lock(&self.spill).forget(run.first, run.count);
        }
        self.settled.ring();
        Ok(())
    }

    /// Lets writers go on that were held for a true instant.
    pub(super) fn thaw(&self) {
        let mut inner = self.lock();
        if !inner.frozen {
            return;
        }
        inner.frozen = false;
        for waiter in std::mem::take(&mut inner.waiting) {
            let address = waiter.mapping.address_of(waiter.page.into());
            let _ = waiter.mapping.uffd.wake(address, PAGE_SIZE_BYTES); // it faults anew
        }
    }

    /// The newest content of pages being written, from frames or the spill file.
    pub(super) fn copy_out(&self, run: PageRange, buffer: &mut [u8]) -> Result<()> {
        // Pages in *writing* are not evicted, so a frame seen here stays until it is read.
        let resident = book::within(&self.lock().resident, run);
        if resident.len() == run.count {
            return read_frames(&self.frames, run.first, buffer).doing("reading frames");
        }
        for page in run.first..run.end() {
            let at = ((page - run.first) * PAGE_SIZE_BYTES) as usize;
            self.copy_page(page, &mut buffer[at..at + PAGE_SIZE_BYTES as usize])?;
        }
        Ok(())
    }

    fn copy_page(&self, page: u64, slot: &mut [u8]) -> Result<()> {
        let at = page as u32;
        let mut inner = self.lock();
        loop {
            if inner.resident.contains(at) {
                drop(inner);
                return read_frames(&self.frames, page, slot).doing("reading frames");
            }
            if !inner.book.spilled().contains(at) {
                if !inner.in_flight.contains(at) {
                    let what = format!("page {page} is neither in memory nor in the spill file");
                    return Err(Error::new(ErrorKind::Lost, what));
                }
                // Its frame is there, its writer was faster than the bookkeeping.
                inner = self.wait_settled(inner);
                continue;
            }
            drop(inner);
            let read = lock(&self.spill).read(page, slot);
            inner = self.lock();
            // Brought in and written meanwhile: the spill file's copy no longer counts, and may be gone.
            if inner.book.spilled().contains(at) {
                return read;
            }
        }
    }

    fn store_in_place(&self, pages: &RoaringBitmap, freeze: bool) -> Result<()> {
        let mut copies = Vec::new();
        let mut buffer = Vec::new();
        let failed_before = self.flushes.failed();
        let copy_first = freeze && pages.len() <= FROZEN_COPY_PAGES;
        for run in book::runs(pages) {
            for part in parts(run, COPY_PAGES) {
                buffer.resize(part.length_bytes() as usize, 0);
                self.copy_out(part, &mut buffer)?;
                if copy_first {
                    copies.push((part, std::mem::take(&mut buffer)));
                } else {
                    self.pager.page_out(part.offset_bytes(), &buffer)?;
                }
            }
        }
        self.thaw();
        for (part, copy) in copies {
            self.pager.page_out(part.offset_bytes(), &copy)?;
        }
        if pages.is_empty() { Ok(()) } else { self.flushes.flush(&*self.pager, failed_before) }
    }

    /// Drops what was not synced: the frames go, the next touch brings back what is stored.
    pub fn revert(self: &Arc<Self>) -> Result<u64> {
        self.drop_unsynced(false)
    }

    /// The same, unless somebody has mapped the object meanwhile.
    pub fn revert_if_unmapped(self: &Arc<Self>) -> Result<u64> {
        self.drop_unsynced(true)
    }

    fn drop_unsynced(self: &Arc<Self>, only_unmapped: bool) -> Result<u64> {
        if self.pager.is_anonymous() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "an anonymous object has no stored copy to go back to: remove it and create it again",
            ));
        }
        if self.is_incomplete() {
            return Err(Error::new(
                ErrorKind::Busy,
                "processes that have newer pages of this object are expected back: try again in a moment",
            ));
        }
        // Whatever size it has by then.
        let mut turn = self.turn_without_snapshots(PageRange::new(0, u32::MAX.into()));
        // A sync that failed after it was in the journal has happened: what is stored is what it made.
        self.apply_left_over(&mut turn)?;
        let mut inner = self.lock();
        if only_unmapped && !inner.views.is_empty() {
            return Ok(0);
        }
        let whole = inner.whole();
        self.collect(&mut inner, whole);
        while !(&inner.in_flight & inner.book.dirty()).is_empty() {
            inner = self.wait_settled(inner);
        }
        let pages = inner.book.dirty().clone();
        self.drop_dirty(&mut inner, &pages)?;
        Ok(pages.len())
    }

    fn drop_dirty(&self, inner: &mut Inner, pages: &RoaringBitmap) -> Result<()> {
        for run in book::runs(pages) {
            self.punch(run).doing("dropping frames")?;
        }
        for view in &mut inner.views {
            view.forget(pages);
        }
        let gone = pages & &inner.resident;
        inner.resident -= &gone;
        self.give_back(gone.len());
        inner.book.forget(pages);
        for run in inner.book.unspill(pages) {
            lock(&self.spill).forget(run.first, run.count);
        }
        Ok(())
    }
}

/// A run in parts of at most `most` pages.
pub(super) fn parts(run: PageRange, most: u64) -> impl Iterator<Item = PageRange> {
    (run.first..run.end()).step_by(most as usize).map(move |at| PageRange::new(at, most.min(run.end() - at)))
}
