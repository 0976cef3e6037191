//! What a heap needs of its memory.

use commonhold_futex::Mapped;
use std::sync::atomic::Ordering;

/// Memory that others change at any time. A place is a number of bytes, a multiple of 8; one that is
/// outside is a panic, and the heap gives none: it makes places by the object's size alone.
pub trait Words {
    /// A word. What was stored before it is seen, too.
    fn load(&self, at: u64) -> u64;

    /// Stores a word, after all that was stored before.
    fn store(&self, at: u64, value: u64);

    /// Replaces a word if it is `old`; else gives what it is.
    fn exchange(&self, at: u64, old: u64, new: u64) -> Result<(), u64>;

    /// Sets bits of a word; gives what it was.
    fn set(&self, at: u64, bits: u64) -> u64;

    /// Clears bits of a word; gives what it was.
    fn clear(&self, at: u64, bits: u64) -> u64;

    /// Lets others run, while one waits for them.
    fn pause(&self);

    /// Is told of pages that have data of one type from now on: where an object is shared with
    /// machines of other formats, its host is to know.
    fn typed(&self, _at: u64, _bytes: u64, _tag: u16) {}
}

impl Words for Mapped {
    #[inline]
    fn load(&self, at: u64) -> u64 {
        self.long_word(at as usize).load(Ordering::Acquire)
    }

    #[inline]
    fn store(&self, at: u64, value: u64) {
        self.long_word(at as usize).store(value, Ordering::Release);
    }

    fn exchange(&self, at: u64, old: u64, new: u64) -> Result<(), u64> {
        let word = self.long_word(at as usize);
        word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).map(drop)
    }

    fn set(&self, at: u64, bits: u64) -> u64 {
        self.long_word(at as usize).fetch_or(bits, Ordering::SeqCst)
    }

    fn clear(&self, at: u64, bits: u64) -> u64 {
        self.long_word(at as usize).fetch_and(!bits, Ordering::SeqCst)
    }

    fn pause(&self) {
        std::thread::sleep(std::time::Duration::from_micros(50));
    }
}
