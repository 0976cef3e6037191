//! Memory that is mapped from a file.

use rustix::thread::futex;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// Memory at some addresses of this process. A place in it is a number of bytes; one that is outside
/// is a panic.
#[derive(Debug)]
pub struct Mapped {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: all use of the memory is by atomic words and by copies; other processes do the same.
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

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of a place from which on there are so many bytes.
    #[inline]
    pub fn address(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(at <= self.bytes && bytes <= self.bytes - at, "outside of the memory");
        // SAFETY: inside, by the check.
        unsafe { self.start.as_ptr().add(at) }
    }

    /// A word of 32 bits, at a multiple of 4.
    #[inline]
    pub fn word(&self, at: usize) -> &AtomicU32 {
        let address = self.address(at, size_of::<u32>());
        assert!(at.is_multiple_of(4), "words are aligned");
        // SAFETY: inside and aligned, by the checks; mapped as long as `self`. Any bits are a number.
        unsafe { AtomicU32::from_ptr(address.cast()) }
    }

    /// A word of 64 bits, at a multiple of 8.
    #[inline]
    pub fn long_word(&self, at: usize) -> &AtomicU64 {
        let address = self.address(at, size_of::<u64>());
        assert!(at.is_multiple_of(8), "words are aligned");
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(address.cast()) }
    }

    /// Where the less significant half of a word of 64 bits is: for `sleep` and `wake` alone, as
    /// the kernel compares 32 bits.
    pub fn lower_half(at: usize) -> usize {
        at + if cfg!(target_endian = "big") { 4 } else { 0 }
    }

    /// Sleeps while a word of 32 bits is `value`, so long at most; it may also wake without a reason.
    pub fn sleep(&self, at: usize, value: u32, at_most: Duration) {
        let at_most = futex::Timespec::try_from(at_most).ok(); // longer than the kernel's clock: for ever
        // Woken, out of time, another value, a signal: each is for the caller to find out.
        let _ = futex::wait(self.word(at), futex::Flags::empty(), value, at_most.as_ref());
    }

    /// Wakes so many that sleep on a word; gives how many slept.
    pub fn wake(&self, at: usize, most: u32) -> u32 {
        // The kernel takes the number as signed. A wake of memory that is there cannot fail.
        let most = most.min(i32::MAX as u32);
        futex::wake(self.word(at), futex::Flags::empty(), most).unwrap_or(0) as u32
    }

    /// Whether somebody sleeps on a word. None is woken, and all stay in their order.
    pub fn has_sleepers(&self, at: usize) -> bool {
        let word = self.word(at);
        // One is moved from the word's queue to the same queue, which leaves it where it is, and counted.
        futex::requeue(word, futex::Flags::empty(), 0, 1, word).unwrap_or(0) > 0
    }
}
