//! What a queue needs of its memory.

use std::time::{Duration, Instant};

/// Memory that others change at any time, seen by one process. Offsets are bytes, those of words
/// are multiples of 4; one that is outside is a panic, and no queue gives one.
pub trait Memory {
    /// How often to look again before sleeping for the lock.
    const SPINS: u32;

    /// Its size.
    fn bytes(&self) -> usize;

    /// A word; what was written before it was stored can be seen now.
    fn load(&self, at: usize) -> u32;

    /// Stores a word; whoever loads it sees what was written before.
    fn store(&self, at: usize, value: u32);

    /// Replaces a word if it is `old`; else gives what it is.
    fn exchange(&self, at: usize, old: u32, new: u32) -> Result<(), u32>;

    /// Copies bytes in.
    fn write(&self, at: usize, bytes: &[u8]);

    /// Copies bytes out, each once.
    fn read(&self, at: usize, bytes: &mut [u8]);

    /// Sleeps while the word is `value`, so long at most; it may also wake without a reason.
    fn sleep(&self, at: usize, value: u32, at_most: Duration);

    /// Wakes so many that sleep on a word.
    fn wake(&self, at: usize, most: u32);

    /// This thread's number: from 1 to 2^30 - 1.
    fn thread(&self) -> u32;

    /// From now on, if this thread dies while its number is in the word, somebody is woken who
    /// sleeps on it, and the word says so. Gives what to call [`done`](Self::done) with.
    fn about_to_lock(&self, at: usize) -> usize;

    /// The word is not this thread's any more, nor will be.
    fn done(&self, before: usize);

    /// The time.
    fn now(&self) -> Instant;
}
