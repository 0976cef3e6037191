//! Memory that is mapped from a file.

use crate::memory::Memory;
use rustix::thread::futex;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Memory at some addresses of this process.
#[derive(Debug)]
pub struct Mapped {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: all use of the memory is by atomic words; other processes do the same.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Memory from `start` on.
    ///
    /// # Safety
    /// The bytes must be mapped shared, readable and writable, for as long as this lives, from a
    /// multiple of 8 on, and the file must not become shorter. No Rust reference may point there.
    pub unsafe fn new(start: NonNull<u8>, bytes: usize) -> Mapped {
        assert!(start.cast::<u64>().is_aligned(), "words are aligned");
        Mapped { start, bytes }
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at < self.bytes && self.bytes - at >= 8, "no word of the object");
        // SAFETY: inside and aligned, by the check; mapped as long as `self`. Any bits are a number.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) }
    }

    /// The half that the kernel compares: it touches that alone, and nobody else touches halves.
    fn lower_half(&self, at: usize) -> &AtomicU32 {
        let half = if cfg!(target_endian = "big") { 4 } else { 0 };
        let word = std::ptr::from_ref(self.word(at)).cast::<u8>().cast_mut();
        // SAFETY: inside the word; only its address is used here, by the kernel.
        unsafe { AtomicU32::from_ptr(word.add(half).cast()) }
    }
}

impl Memory for Mapped {
    const SPINS: u32 = 100;

    #[inline]
    fn load(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::SeqCst)
    }

    #[inline]
    fn exchange(&self, at: usize, old: u64, new: u64) -> Result<(), u64> {
        self.word(at).compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).map(drop)
    }

    #[inline]
    fn add(&self, at: usize, more: u64) -> u64 {
        self.word(at).fetch_add(more, Ordering::SeqCst)
    }

    fn sleep(&self, at: usize, value: u32, at_most: Duration) {
        let at_most = futex::Timespec::try_from(at_most).ok();
        // Woken, out of time, another value, a signal: each is for the caller to find out.
        let _ = futex::wait(self.lower_half(at), futex::Flags::empty(), value, at_most.as_ref());
    }

    fn wake(&self, at: usize, most: u32) -> u32 {
        // The kernel takes the number as signed. A wake of memory that is there cannot fail.
        let most = most.min(i32::MAX as u32);
        futex::wake(self.lower_half(at), futex::Flags::empty(), most).unwrap_or(0) as u32
    }

    fn now(&self) -> Instant {
        Instant::now()
    }
}
