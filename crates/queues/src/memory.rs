//! What the queues need of their memory.

use std::time::Duration;

/// Memory that another process changes at any time. Offsets are bytes, those of words are multiples
/// of 4; one that is outside is a panic, and no queue gives one.
pub trait Memory {
    /// A word; what was written before it was stored can be seen now.
    fn load(&self, at: usize) -> u32;

    /// Stores a word; whoever loads it sees what was written before.
    fn store(&self, at: usize, value: u32);

    /// Stores a word, and gives what it was, in one step: both of `load` and `store`.
    fn swap(&self, at: usize, value: u32) -> u32;

    /// Copies bytes in.
    fn write(&self, at: usize, bytes: &[u8]);

    /// Copies bytes out, each once.
    fn read(&self, at: usize, bytes: &mut [u8]);

    /// Sleeps while the word is `value`, so long at most; it may also wake without a reason.
    fn sleep(&self, at: usize, value: u32, at_most: Duration);

    /// Wakes whoever sleeps on a word.
    fn wake(&self, at: usize);
}
