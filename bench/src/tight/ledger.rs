//! What each writer was about to write, has written, and has synced; and what it found that it did
//! not leave so.
//!
//! A plain file that writers and judge map. A writer that is killed at any instant leaves notes
//! that bound what it did.

use crate::failure::Result;
use crate::view::{PAGE, RawMapping};
use std::fs::File;
use std::path::Path;

/// Writers at most, and pages.
pub const SLOTS: usize = 8;
/// Pages of an object.
pub const PAGES: usize = 6;
/// Where the word of a slot lies in its page.
pub const WORD_BYTES: usize = 64;

const WISH: usize = 0;
const NOTES: usize = PAGE;
const OF_A_SLOT: usize = 2 * PAGE;
const STEPS: usize = 0;
const PAUSED: usize = 8;
const SYNCS: usize = 16;
const FOUND: usize = 24;
const SYNCED_AT: usize = 32;
const SYNCING: usize = 40;
const WORDS: usize = 48;
const EVENTS: usize = PAGE;
const EVENT_WORDS: usize = 7;
const EVENTS_KEPT: u64 = (PAGE / (EVENT_WORDS * 8)) as u64;

/// What a writer found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its own word was older than what it left there.
    Lost,
    /// Its own word was newer.
    Wrong,
    /// A word of another was older than what that writer had said to be done.
    Stale,
}

/// One thing that a writer found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// By whom.
    pub by: usize,
    /// What.
    pub kind: Kind,
    /// Of whose word, on which page.
    pub of: usize,
    /// The page.
    pub page: usize,
    /// What it should have been at least.
    pub expected: u64,
    /// What it was.
    pub found: u64,
    /// What of the word was synced before.
    pub synced: u64,
    /// When the last sync of the word's writer returned that did so without an error.
    pub synced_at: u64,
}

/// A mapped ledger.
pub struct Ledger(RawMapping);

impl Ledger {
    /// Opens it, or makes it.
    pub fn open(path: &Path) -> Result<Ledger> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let length = NOTES + SLOTS * OF_A_SLOT;
        file.set_len(length as u64)?;
        Ok(Ledger(RawMapping::shared(&file, length)?))
    }

    fn get(&self, offset: usize) -> u64 {
        self.0.view().load(offset)
    }

    fn set(&self, offset: usize, value: u64) {
        self.0.view().store(offset, value);
    }

    fn word(slot: usize, page: usize) -> usize {
        NOTES + slot * OF_A_SLOT + WORDS + page * 24
    }

    /// What is being written, what is done, and what is synced.
    pub fn versions(&self, slot: usize, page: usize) -> [u64; 3] {
        [0, 8, 16].map(|at| self.get(Ledger::word(slot, page) + at))
    }

    /// Notes what is about to be written.
    pub fn begin(&self, slot: usize, page: usize, value: u64) {
        self.set(Ledger::word(slot, page), value);
    }

    /// Notes that it is written.
    pub fn done(&self, slot: usize, page: usize, value: u64) {
        self.set(Ledger::word(slot, page) + 8, value);
    }

    /// Notes that it is synced.
    pub fn synced(&self, slot: usize, page: usize, value: u64) {
        self.set(Ledger::word(slot, page) + 16, value);
    }

    /// Additions so far.
    pub fn steps(&self, slot: usize) -> u64 {
        self.get(NOTES + slot * OF_A_SLOT + STEPS)
    }

    /// One more.
    pub fn step(&self, slot: usize) {
        self.0.view().increment(NOTES + slot * OF_A_SLOT + STEPS);
    }

    /// Syncs that returned without an error.
    pub fn syncs(&self, slot: usize) -> u64 {
        self.get(NOTES + slot * OF_A_SLOT + SYNCS)
    }

    /// When the last of them returned.
    pub fn synced_at(&self, slot: usize) -> u64 {
        self.get(NOTES + slot * OF_A_SLOT + SYNCED_AT)
    }

    /// One more, which returned then.
    pub fn note_sync(&self, slot: usize, at: u64) {
        self.set(NOTES + slot * OF_A_SLOT + SYNCED_AT, at);
        self.0.view().increment(NOTES + slot * OF_A_SLOT + SYNCS);
    }

    /// Notes whether a writer waits for a sync.
    pub fn set_syncing(&self, slot: usize, syncing: bool) {
        self.set(NOTES + slot * OF_A_SLOT + SYNCING, syncing.into());
    }

    /// Whether it does.
    pub fn is_syncing(&self, slot: usize) -> bool {
        self.get(NOTES + slot * OF_A_SLOT + SYNCING) == 1
    }

    /// Asks all writers to hold still.
    pub fn ask_pause(&self) {
        self.set(WISH, 1);
    }

    /// Whether a writer does.
    pub fn is_paused(&self, slot: usize) -> bool {
        self.get(NOTES + slot * OF_A_SLOT + PAUSED) == 1
    }

    /// Holds still for good, if that is asked for.
    pub fn pause_if_asked(&self, slot: usize) {
        if self.get(WISH) == 0 {
            return;
        }
        self.set(NOTES + slot * OF_A_SLOT + PAUSED, 1);
        loop {
            std::thread::park();
        }
    }

    /// Notes what was found.
    pub fn note(&self, found: Found) {
        let base = NOTES + found.by * OF_A_SLOT;
        let count = self.get(base + FOUND);
        let at = base + EVENTS + (count % EVENTS_KEPT) as usize * EVENT_WORDS * 8;
        let [of, page] = [found.of as u64, found.page as u64];
        let words = [found.kind as u64, of, page, found.expected, found.found, found.synced, found.synced_at];
        words.into_iter().enumerate().for_each(|(n, word)| self.set(at + n * 8, word));
        self.set(base + FOUND, count + 1);
    }

    /// How much a writer has found so far, and what of it is new since it was `known`: the latest,
    /// as many as are kept.
    pub fn found_since(&self, slot: usize, known: u64) -> (u64, Vec<Found>) {
        let base = NOTES + slot * OF_A_SLOT;
        let count = self.get(base + FOUND);
        let first = known.max(count.saturating_sub(EVENTS_KEPT));
        let read = |number: u64| {
            let at = base + EVENTS + (number % EVENTS_KEPT) as usize * EVENT_WORDS * 8;
            let word = |n: usize| self.get(at + n * 8);
            let kind = [Kind::Lost, Kind::Wrong, Kind::Stale][word(0).min(2) as usize];
            let (of, page) = (word(1) as usize, word(2) as usize);
            {
                let [expected, found, synced, synced_at] = [3, 4, 5, 6].map(word);
                Found { by: slot, kind, of, page, expected, found, synced, synced_at }
            }
        };
        (count, (first..count).map(read).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_read_by_the_judge() {
        let directory = tempfile::tempdir().unwrap();
        let [one, other] = [0, 1].map(|_| Ledger::open(&directory.path().join("ledger")).unwrap());
        one.begin(7, 5, 3);
        one.done(7, 5, 2);
        one.synced(7, 5, 1);
        assert_eq!(other.versions(7, 5), [3, 2, 1]);
        let found = Found {
            by: 7,
            kind: Kind::Stale,
            of: 2,
            page: 5,
            expected: 9,
            found: 8,
            synced: 7,
            synced_at: 1,
        };
        (0..3 + EVENTS_KEPT).for_each(|_| one.note(found));
        let (count, all) = other.found_since(7, 0);
        assert_eq!((count, all.len() as u64), (3 + EVENTS_KEPT, EVENTS_KEPT));
        assert_eq!((all[0].kind, all[0].of, all[0].synced), (Kind::Stale, 2, 7));
        assert!(other.found_since(7, count).1.is_empty());
        assert_eq!(one.versions(7, 4), [0; 3], "notes of pages do not overlap");
    }
}
