//! Memory that is mapped from a file.

use crate::memory::Memory;
use commonhold_futex::Mapped;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Memory for Mapped {
    const SPINS: u32 = 100;

    #[inline]
    fn load(&self, at: usize) -> u64 {
        self.long_word(at).load(Ordering::SeqCst)
    }

    #[inline]
    fn exchange(&self, at: usize, old: u64, new: u64) -> Result<(), u64> {
        self.long_word(at).compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).map(drop)
    }

    #[inline]
    fn add(&self, at: usize, more: u64) -> u64 {
        self.long_word(at).fetch_add(more, Ordering::SeqCst)
    }

    fn sleep(&self, at: usize, value: u32, at_most: Duration) {
        self.sleep(Mapped::lower_half(at), value, at_most);
    }

    fn wake(&self, at: usize, most: u32) -> u32 {
        self.wake(Mapped::lower_half(at), most)
    }

    fn has_sleepers(&self, at: usize) -> bool {
        self.has_sleepers(Mapped::lower_half(at))
    }

    fn now(&self) -> Instant {
        Instant::now()
    }
}
