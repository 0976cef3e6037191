//! The words of one host, as one call of one of its threads, or of the host, sees them.

use commonhold_primitives::Memory;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// Bytes of a word.
const WORD: usize = 8;
/// Words of a mutex, or of a monitor: so many it has beside the table of processes, and one to spare.
pub(crate) const WORDS: usize = 8;
/// Bytes of them.
pub(crate) const BYTES: usize = WORDS * WORD;
/// In a mutex's word: threads sleep for it.
pub(crate) const SLEEPERS: u64 = 0x8000_0000;

/// Words, and what a call did beside changing them.
pub(crate) struct Words<'w> {
    words: &'w RefCell<Vec<u64>>,
    /// How many sleep on each word.
    sleepers: Vec<u32>,
    now: Cell<Instant>,
    /// A call ends where it would sleep, and is made anew.
    ends_asleep: bool,
    /// On which word it would have slept, and as long as its lower half is this.
    pub slept: Cell<Option<(usize, u32)>>,
    /// Words that a thread wants, or let go.
    pub told: RefCell<Vec<(usize, Told)>>,
    /// How many of those who sleep on a word were woken.
    pub woken: RefCell<Vec<(usize, u32)>>,
}

/// What a thread tells its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    /// It waits for a token.
    Wanted,
    /// It let a token go that is wanted elsewhere.
    Released,
}

impl<'w> Words<'w> {
    pub fn new(
        words: &'w RefCell<Vec<u64>>,
        sleepers: Vec<u32>,
        ends_asleep: bool,
        now: Instant,
    ) -> Words<'w> {
        let (told, woken) = (RefCell::default(), RefCell::default());
        Words { words, sleepers, now: Cell::new(now), ends_asleep, slept: Cell::new(None), told, woken }
    }

    /// Changes a mutex's word.
    pub fn set(&self, index: u32, change: impl Fn(u64) -> u64) {
        let word = &mut self.words.borrow_mut()[index as usize * WORDS];
        *word = change(*word);
    }
}

impl Memory for Words<'_> {
    const SPINS: u32 = 0;

    fn load(&self, at: usize) -> u64 {
        self.words.borrow()[at / WORD]
    }

    fn exchange(&self, at: usize, old: u64, new: u64) -> Result<(), u64> {
        let word = &mut self.words.borrow_mut()[at / WORD];
        if *word == old {
            *word = new;
            return Ok(());
        }
        Err(*word)
    }

    fn add(&self, at: usize, more: u64) -> u64 {
        let word = &mut self.words.borrow_mut()[at / WORD];
        std::mem::replace(word, word.wrapping_add(more))
    }

    /// Its time is over: the world knows that it sleeps.
    fn sleep(&self, at: usize, value: u32, at_most: Duration) {
        self.slept.set(Some((at / WORD, value)));
        self.now.set(self.now.get() + at_most);
    }

    fn wake(&self, at: usize, most: u32) -> u32 {
        let count = self.sleepers[at / WORD].min(most);
        self.woken.borrow_mut().push((at / WORD, count));
        count
    }

    fn has_sleepers(&self, at: usize) -> bool {
        self.sleepers[at / WORD] > 0
    }

    fn now(&self) -> Instant {
        self.now.get()
    }

    fn are_gone(&self) -> bool {
        self.ends_asleep && self.slept.get().is_some()
    }

    fn wanted(&self, at: usize) {
        self.told.borrow_mut().push((at / BYTES, Told::Wanted));
    }

    fn released(&self, at: usize) {
        self.told.borrow_mut().push((at / BYTES, Told::Released));
    }
}
