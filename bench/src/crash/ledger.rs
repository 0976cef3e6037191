//! The ledger: what each writer was about to do, and what it has done.
//!
//! A plain file mapped shared by the writers and by the judge. One page of words for each writer, one for the
//! judge's wishes, then two words for each page of the object: the version that was *started* there (noted
//! before the first word is written) and the version that is *done* (noted after the last). A writer killed
//! at any instant leaves notes that bound what it did.

use crate::failure::Result;
use crate::view::{PAGE, RawMapping};
use std::fs::File;
use std::path::Path;

/// How many writers there are.
pub const WRITERS: usize = 2;

const PROGRESS: usize = 0;
const ACKNOWLEDGED: usize = 8;
const SYNCING: usize = 16;
const PAUSED: usize = 24;
const SYNC_ERRORS: usize = 32;
const WRONG: usize = 40;
const WISHES: usize = WRITERS * PAGE;
const NOTES: usize = (WRITERS + 1) * PAGE;

/// A mapped ledger.
pub struct Ledger(RawMapping);

impl Ledger {
    /// Makes a ledger for `pages` pages.
    pub fn create(path: &Path, pages: usize) -> Result<Ledger> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        let length = (NOTES + pages * 16).next_multiple_of(PAGE);
        file.set_len(length as u64)?;
        Ok(Ledger(RawMapping::shared(&file, length)?))
    }

    /// Opens an existing one.
    pub fn open(path: &Path) -> Result<Ledger> {
        let file = File::options().read(true).write(true).open(path)?;
        let length = file.metadata()?.len() as usize;
        Ok(Ledger(RawMapping::shared(&file, length)?))
    }

    fn get(&self, offset: usize) -> u64 {
        self.0.view().load(offset)
    }

    fn set(&self, offset: usize, value: u64) {
        self.0.view().store(offset, value);
    }

    /// Operations that a writer has finished.
    pub fn progress(&self, writer: usize) -> u64 {
        self.get(writer * PAGE + PROGRESS)
    }

    /// One more is finished.
    pub fn advance(&self, writer: usize) {
        self.0.view().increment(writer * PAGE + PROGRESS);
    }

    /// The generation whose sync has returned.
    pub fn acknowledged(&self, writer: usize) -> u64 {
        self.get(writer * PAGE + ACKNOWLEDGED)
    }

    /// Notes that the sync of a generation has returned.
    pub fn acknowledge(&self, writer: usize, generation: u64) {
        self.set(writer * PAGE + ACKNOWLEDGED, generation);
    }

    /// The generation whose sync was called last.
    pub fn syncing(&self, writer: usize) -> u64 {
        self.get(writer * PAGE + SYNCING)
    }

    /// Notes that the sync of a generation is about to be called.
    pub fn begin_sync(&self, writer: usize, generation: u64) {
        self.set(writer * PAGE + SYNCING, generation);
    }

    /// Syncs that returned an error and were tried again.
    pub fn sync_errors(&self) -> u64 {
        (0..WRITERS).map(|writer| self.get(writer * PAGE + SYNC_ERRORS)).sum()
    }

    /// One more.
    pub fn note_sync_error(&self, writer: usize) {
        self.0.view().increment(writer * PAGE + SYNC_ERRORS);
    }

    /// Pages that the writers themselves found other than they had left them.
    pub fn wrong(&self) -> u64 {
        (0..WRITERS).map(|writer| self.get(writer * PAGE + WRONG)).sum()
    }

    /// One more.
    pub fn note_wrong(&self, writer: usize) {
        self.0.view().increment(writer * PAGE + WRONG);
    }

    /// Asks all writers to hold still, or to go on.
    pub fn ask_pause(&self, pause: bool) {
        self.set(WISHES, pause.into());
    }

    /// Whether a writer holds still.
    pub fn is_paused(&self, writer: usize) -> bool {
        self.get(writer * PAGE + PAUSED) == 1
    }

    /// A writer calls this between any two steps: it holds still as long as the judge wishes.
    pub fn pause_if_asked(&self, writer: usize) {
        if self.get(WISHES) == 0 {
            return;
        }
        self.set(writer * PAGE + PAUSED, 1);
        while self.get(WISHES) == 1 {
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
        self.set(writer * PAGE + PAUSED, 0);
    }

    /// A killed writer does not hold still: it is gone.
    pub fn forget_pause(&self, writer: usize) {
        self.set(writer * PAGE + PAUSED, 0);
    }

    /// Started and done version of a page.
    pub fn versions(&self, page: usize) -> (u64, u64) {
        (self.get(NOTES + page * 16), self.get(NOTES + page * 16 + 8))
    }

    /// Notes that a version of a page is about to be written.
    pub fn start(&self, page: usize, version: u64) {
        self.set(NOTES + page * 16, version);
    }

    /// Notes that it has been written.
    pub fn finish(&self, page: usize, version: u64) {
        self.set(NOTES + page * 16 + 8, version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_seen_by_whoever_opens_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        let one = Ledger::create(&path, 1000).unwrap();
        let other = Ledger::open(&path).unwrap();
        one.start(999, 7);
        one.acknowledge(1, 3);
        one.advance(0);
        assert_eq!(other.versions(999), (7, 0));
        assert_eq!((other.acknowledged(1), other.acknowledged(0), other.progress(0)), (3, 0, 1));
        other.ask_pause(true);
        assert!(!one.is_paused(0));
        std::thread::scope(|scope| {
            scope.spawn(|| Ledger::open(&path).unwrap().pause_if_asked(0));
            while !one.is_paused(0) {
                std::thread::yield_now();
            }
            other.ask_pause(false);
        });
        assert!(!one.is_paused(0));
    }
}
