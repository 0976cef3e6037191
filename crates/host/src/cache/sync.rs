//! Storing: `ordered` writes and flushes, `atomic` goes through the journal.
//!
//! Order of an atomic sync, and what a crash leaves after each step:
//! 1. collect, mark *writing* — the pages are dirty for the next host.
//! 2. the record is in the journal, flushed — the sync has happened: recovery redoes it.
//! 3. the pages are written into the stored object, unflushed — `read()` sees them; recovery redoes them.
//! 4. *writing* cleared, the caller is told.
//! 5. later, the checkpoint: stored object flushed, journal file reset.

use super::stored::{self, JournalStorage, of_journal};
use super::{Cache, Inner, book, lock, read_frames};
use commonhold_journal::{Appended, CheckpointRefused, Journal, Options, RecordBuffer, Ticket};
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, PAGE_SIZE_BYTES, PageRange, Result, SyncMode};
use roaring::RoaringBitmap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Pages copied between two system calls of an ordered sync.
const COPY_PAGES: u64 = 256;
/// Up to so many pages are copied while writers are held, and written out afterwards: 16 MiB. Of more, writers wait
/// until they are written out.
const FROZEN_COPY_PAGES: u64 = 4096;

/// What belongs to whoever syncs.
#[derive(Default)]
pub struct Turn {
    journal: Option<Journal<JournalStorage>>,
    buffer: Option<RecordBuffer>,
    /// A record that is durable but could not be written into the stored object yet.
    unapplied: Option<Appended>,
    /// A flush of the stored object failed. What it should have made durable may be gone from the page cache, and a
    /// second flush would lie: it has to be written from the journal again.
    in_doubt: bool,
    paths: Option<[PathBuf; 2]>,
}

impl Turn {
    pub(super) fn remove_files(&mut self) {
        self.journal = None;
        for path in self.paths.take().iter().flatten() {
            let _ = std::fs::remove_file(path);
        }
    }
}

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
            inner.holds.iter().for_each(|hold| book::remove(&mut free, hold.pages));
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
            alone -= &inner.held_elsewhere;
            inner.holds.iter().for_each(|hold| book::remove(&mut alone, hold.pages));
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
        choose: impl FnOnce(&mut Inner) -> RoaringBitmap,
    ) -> Result<u64> {
        let mut turn = lock(&self.turn);
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.machine.counters.syncs.fetch_add(1, Ordering::Relaxed);
        if let Some(driver) = self.syncs_elsewhere() {
            return self.store_elsewhere(&driver, freeze, choose);
        }
        if self.pager.is_anonymous() {
            return Ok(0); // succeeds, and promises nothing past the host
        }
        let pages = {
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
            inner.book.start_writing(&pages)?;
            inner.frozen = freeze;
            self.protect_synchronous(&inner, &pages);
            pages
        };
        let result = match self.traits.sync {
            SyncMode::Atomic => self
                .check_journal_room(&pages)
                .and_then(|()| self.store_atomically(&mut turn, &pages, freeze)),
            SyncMode::Plain | SyncMode::Ordered => self.store_in_place(&pages, freeze),
        };
        self.thaw();
        self.end_writing(&pages, result)?;
        drop(turn);
        self.checkpoint_if_due();
        Ok(pages.len())
    }

    pub(super) fn end_writing(&self, pages: &RoaringBitmap, result: Result<()>) -> Result<()> {
        let mut inner = self.lock();
        if let Err(error) = result {
            if let Err(worse) = inner.book.not_written(pages) {
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
    fn copy_out(&self, run: PageRange, buffer: &mut [u8]) -> Result<()> {
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

    fn store_atomically(&self, turn: &mut Turn, pages: &RoaringBitmap, freeze: bool) -> Result<()> {
        if pages.is_empty() && turn.journal.is_none() {
            return Ok(()); // what may have to be redone is done by whoever needs it
        }
        self.open_journal(turn)?;
        self.apply_left_over(turn)?;
        if pages.is_empty() {
            return Ok(());
        }
        let runs = book::runs(pages);
        if !self.traits.space_reserved {
            for run in &runs {
                self.pager.reserve(run.offset_bytes(), run.length_bytes())?;
            }
        }
        let mut buffer = turn.buffer.take().unwrap_or_default();
        let result = self.commit(turn, &mut buffer, &runs, freeze);
        let one_part = pages.len() as usize <= buffer.pages();
        let applied = result.and_then(|record| {
            turn.unapplied = Some(record);
            if one_part {
                self.apply_buffer(&buffer).and_then(|()| mark_applied(turn))
            } else {
                self.apply_left_over(turn)
            }
        });
        turn.buffer = Some(buffer);
        applied
    }

    /// Puts the pages into one record; when this returns they are durable.
    fn commit(
        &self,
        turn: &mut Turn,
        buffer: &mut RecordBuffer,
        runs: &[PageRange],
        freeze: bool,
    ) -> Result<Appended> {
        let journal = turn.journal.as_mut().ok_or_else(|| Error::new(ErrorKind::Io, "no journal"))?;
        let mut appender = journal.begin_append().map_err(|e| of_journal(&e))?;
        buffer.begin();
        for run in runs {
            let mut left = *run;
            while !left.is_empty() {
                if buffer.free_pages() == 0 {
                    appender = appender.write(buffer).map_err(|e| of_journal(&e))?;
                    buffer.begin();
                }
                let now = PageRange::new(left.first, left.count.min(buffer.free_pages() as u64));
                let slot = buffer
                    .push_run(now.first as u32, now.count as usize)
                    .map_err(|e| Error::new(ErrorKind::Io, e.to_string()))?;
                self.copy_out(now, slot)?;
                left = PageRange::new(now.end(), left.count - now.count);
            }
        }
        if freeze {
            self.thaw();
        }
        appender.commit(buffer).map_err(|e| of_journal(&e))
    }

    fn apply_buffer(&self, buffer: &RecordBuffer) -> Result<()> {
        let mut pages = buffer.iter().peekable();
        let mut run = Vec::new();
        while let Some((first, bytes)) = pages.next() {
            run.clear();
            run.extend_from_slice(bytes);
            let mut next = first + 1;
            while let Some((_, more)) = pages.next_if(|(page, _)| *page == next) {
                run.extend_from_slice(more);
                next += 1;
            }
            self.pager.page_out(u64::from(first) * PAGE_SIZE_BYTES, &run)?;
        }
        Ok(())
    }

    /// A record that an earlier sync made durable but could not write into the stored object.
    fn apply_left_over(&self, turn: &mut Turn) -> Result<()> {
        let (Some(record), Some(journal)) = (&turn.unapplied, turn.journal.as_mut()) else { return Ok(()) };
        let size = self.size_bytes();
        journal.replay_record(record, |page, bytes| stored::redo(&*self.pager, page, bytes, size)).map_err(
            |e| Error::new(ErrorKind::Io, format!("writing a journalled sync into the stored object: {e}")),
        )?;
        mark_applied(turn)
    }

    fn open_journal(&self, turn: &mut Turn) -> Result<()> {
        if turn.journal.is_none() {
            let size = self.size_bytes();
            turn.journal = Some(stored::open_journal(&self.machine, self.id, self.uuid, size, &*self.pager)?);
            turn.paths = Some(self.machine.journal_paths(self.id));
        }
        self.whole.store(true, Ordering::Release);
        Ok(())
    }

    /// Redoes what the journal holds: at start, before anybody reads the object. With a pager that is another
    /// process, it is done before the first page is read: at start that process is not connected yet.
    pub fn recover_at_start(&self) -> Result<()> {
        if self.pager.may_block() { Ok(()) } else { self.make_whole() }
    }

    /// Makes sure that the stored object is what the last sync made it.
    pub(super) fn make_whole(&self) -> Result<()> {
        if self.traits.sync != SyncMode::Atomic || self.whole.load(Ordering::Acquire) {
            return Ok(());
        }
        // One that never synced has no journal yet, and gets it with its first sync.
        if !self.machine.journal_paths(self.id).iter().any(|path| path.exists()) {
            return Ok(());
        }
        self.open_journal(&mut lock(&self.turn))
    }

    /// Uses a journal in `storages` instead of the state directory, written in parts of `part_pages`, and redoes what
    /// it holds.
    pub fn use_journal(
        &self,
        storages: [JournalStorage; 2],
        options: Options,
        part_pages: usize,
    ) -> Result<()> {
        let size = self.size_bytes();
        let journal =
            stored::recover(&self.machine, self.id, self.uuid, size, &*self.pager, storages, options)?;
        let mut turn = lock(&self.turn);
        turn.journal = Some(journal);
        turn.buffer = Some(RecordBuffer::with_capacity(part_pages));
        self.whole.store(true, Ordering::Release);
        Ok(())
    }

    /// Flushes the stored object and empties the journal, in the background, when enough has gathered.
    fn checkpoint_if_due(self: &Arc<Self>) {
        let due = {
            let turn = lock(&self.turn);
            turn.in_doubt || turn.journal.as_ref().is_some_and(Journal::needs_checkpoint)
        };
        if !due || self.checkpointing.swap(true, Ordering::Relaxed) {
            return;
        }
        let this = self.clone();
        self.workers().run(move || {
            if let Err(error) = this.checkpoint().map(drop) {
                this.machine.log(format_args!("object {}: checkpoint: {error}", this.id.0));
            }
            this.checkpointing.store(false, Ordering::Relaxed);
        });
    }

    /// Frees the older part of the journal: flushes the stored object, then resets that part. Whether there was any.
    pub fn checkpoint(&self) -> Result<bool> {
        let _one_at_a_time = lock(&self.checkpoint_turn);
        let ticket = {
            let mut turn = lock(&self.turn);
            self.apply_left_over(&mut turn)?;
            let Some(journal) = turn.journal.as_mut() else { return Ok(false) };
            match journal.begin_checkpoint() {
                Ok(ticket) | Err(CheckpointRefused::Busy(ticket)) => ticket,
                Err(CheckpointRefused::Nothing) => return Ok(false),
                Err(other) => return Err(Error::new(ErrorKind::Io, format!("checkpoint: {other}"))),
            }
        };
        if let Err(error) = self.pager.flush() {
            // The page cache may have dropped what it could not write, and a second flush would lie.
            self.machine.log(format_args!("object {}: {error}; writing from the journal again", self.id.0));
            lock(&self.turn).in_doubt = true;
        }
        self.redo_if_in_doubt()?;
        self.finish_checkpoint(ticket)?;
        Ok(true)
    }

    /// Makes the stored object whole without the journal.
    pub fn checkpoint_all(&self) -> Result<()> {
        while self.checkpoint()? {}
        Ok(())
    }

    fn finish_checkpoint(&self, ticket: Ticket) -> Result<()> {
        let mut turn = lock(&self.turn);
        let Some(journal) = turn.journal.as_mut() else { return Ok(()) };
        journal.finish_checkpoint(ticket).map_err(|e| of_journal(&e))
    }

    /// After a failed flush, of this checkpoint or of one before: everything that the journal holds is written once
    /// more, then flushed.
    fn redo_if_in_doubt(&self) -> Result<()> {
        let size = self.size_bytes();
        let mut turn = lock(&self.turn);
        if !turn.in_doubt {
            return Ok(());
        }
        let Some(journal) = turn.journal.as_mut() else { return Ok(()) };
        journal
            .replay_runs(|page, bytes| stored::redo(&*self.pager, page, bytes, size))
            .map_err(|e| Error::new(ErrorKind::Io, format!("redoing the journal: {e}")))?;
        self.pager.flush()?;
        turn.in_doubt = false;
        Ok(())
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
        let mut turn = lock(&self.turn);
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
            commonhold_sys::frames::punch(&*self.frames, run.offset_bytes(), run.length_bytes())
                .doing("dropping frames")?;
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

/// The journalled record is in the stored object too.
fn mark_applied(turn: &mut Turn) -> Result<()> {
    let (Some(record), Some(journal)) = (turn.unapplied.take(), turn.journal.as_mut()) else { return Ok(()) };
    journal.applied(&record).map_err(|e| of_journal(&e))
}

/// A run in parts of at most `most` pages.
pub(super) fn parts(run: PageRange, most: u64) -> impl Iterator<Item = PageRange> {
    (run.first..run.end()).step_by(most as usize).map(move |at| PageRange::new(at, most.min(run.end() - at)))
}
