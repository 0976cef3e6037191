//! Storing all or nothing: by way of the journal.
//!
//! The order, and what a crash leaves after each step:
//! 1. collect, mark *writing* — the pages are dirty for the next host.
//! 2. the record is in the journal, flushed — the sync has happened: recovery redoes it.
//! 3. the pages are written into the stored object, unflushed — `read()` sees them; recovery redoes them.
//! 4. *writing* cleared, the caller is told.
//! 5. later, the checkpoint: stored object flushed, journal file reset.

use super::stored::{self, JournalStorage, of_journal};
use super::{Cache, book, lock};
use commonhold_journal::{Appended, CheckpointRefused, Journal, Options, RecordBuffer, Ticket};
use commonhold_object::{Error, ErrorKind, PAGE_SIZE_BYTES, PageRange, Result, SyncMode};
use roaring::RoaringBitmap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
    pub(super) fn store_atomically(
        &self,
        turn: &mut Turn,
        pages: &RoaringBitmap,
        freeze: bool,
    ) -> Result<()> {
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
                self.pager.as_stored(now.offset_bytes(), slot);
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
            self.pager.page_out_stored(u64::from(first) * PAGE_SIZE_BYTES, &run)?;
        }
        Ok(())
    }

    /// A record that an earlier sync made durable but could not write into the stored object.
    pub(super) fn apply_left_over(&self, turn: &mut Turn) -> Result<()> {
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
    /// The same where a client keeps its file from being written while a host takes over.
    pub fn recover_at_start(self: &Arc<Self>) -> Result<()> {
        if self.pager.may_block() || self.is_whole() {
            return Ok(());
        }
        let this = self.clone();
        self.machine.soon(self.traits.uid, move || this.make_whole()).unwrap_or_else(|| {
            self.machine.log(format_args!(
                "object {}: its journal is redone later: somebody keeps its file from being written",
                self.id.0
            ));
            Ok(())
        })
    }

    /// Whether the stored object is what the last sync made it.
    pub(super) fn is_whole(&self) -> bool {
        if self.traits.sync != SyncMode::Atomic || self.whole.load(Ordering::Acquire) {
            return true;
        }
        // One that never synced has no journal yet, and gets it with its first sync.
        let has_journal = self.machine.journal_paths(self.id).iter().any(|path| path.exists());
        if !has_journal {
            self.whole.store(true, Ordering::Release);
        }
        !has_journal
    }

    /// Makes sure that the stored object is what the last sync made it.
    pub(super) fn make_whole(&self) -> Result<()> {
        if self.is_whole() { Ok(()) } else { self.open_journal(&mut lock(&self.turn)) }
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
    pub(super) fn checkpoint_if_due(self: &Arc<Self>) {
        let due = {
            let turn = lock(&self.turn);
            turn.in_doubt || turn.journal.as_ref().is_some_and(Journal::needs_checkpoint)
        };
        if !due || self.checkpointing.swap(true, Ordering::Relaxed) {
            return;
        }
        let this = self.clone();
        self.run_request(None, move || {
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
        if !self.pager.may_block() {
            self.make_whole()?;
        }
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
}

/// The journalled record is in the stored object too.
fn mark_applied(turn: &mut Turn) -> Result<()> {
    let (Some(record), Some(journal)) = (turn.unapplied.take(), turn.journal.as_mut()) else { return Ok(()) };
    journal.applied(&record).map_err(|e| of_journal(&e))
}
