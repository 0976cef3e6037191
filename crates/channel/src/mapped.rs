//! Memory that is mapped from a file.

use crate::memory::Memory;
use crate::thread;
use rustix::thread::futex;
use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Memory at some addresses of this process.
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
    /// multiple of 4 on, and the file must not become shorter. No Rust reference may point there.
    pub unsafe fn new(start: NonNull<u8>, bytes: usize) -> Mapped {
        assert!(start.cast::<u32>().is_aligned(), "words are aligned");
        Mapped { start, bytes }
    }

    fn check(&self, at: usize, bytes: usize) {
        assert!(at <= self.bytes && bytes <= self.bytes - at, "outside of the channel");
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        self.check(at, size_of::<u32>());
        assert!(at.is_multiple_of(4), "words are aligned");
        // SAFETY: inside, by the check; aligned; mapped as long as `self`. Any bits are a number.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(at).cast()) }
    }
}

/// Copies bytes by a call that the compiler cannot look into, so that it reads none of them again
/// later: another process may have changed it by then.
///
/// # Safety
/// `source` is valid for reads and `target` for writes of so many bytes, and they do not overlap.
pub unsafe fn copy_once(source: *const u8, target: *mut u8, bytes: usize) {
    type Copy = unsafe extern "C" fn(*mut libc::c_void, *const libc::c_void, usize) -> *mut libc::c_void;
    let copy: Copy = black_box(libc::memcpy);
    // SAFETY: the caller's promise.
    unsafe { copy(target.cast(), source.cast(), bytes) };
}

impl Memory for Mapped {
    const SPINS: u32 = 100;

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn load(&self, at: usize) -> u32 {
        self.word(at).load(Ordering::Acquire)
    }

    fn store(&self, at: usize, value: u32) {
        self.word(at).store(value, Ordering::Release);
    }

    fn exchange(&self, at: usize, old: u32, new: u32) -> Result<(), u32> {
        self.word(at).compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        self.check(at, bytes.len());
        // SAFETY: the target is inside, and a slice of Rust's own memory does not overlap it.
        unsafe { copy_once(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len()) };
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        self.check(at, bytes.len());
        // SAFETY: as above, the other way.
        unsafe { copy_once(self.start.as_ptr().add(at), bytes.as_mut_ptr(), bytes.len()) };
    }

    fn sleep(&self, at: usize, value: u32, at_most: Duration) {
        let at_most = futex::Timespec::try_from(at_most).ok();
        // Woken, out of time, another value, a signal: each is for the caller to find out.
        let _ = futex::wait(self.word(at), futex::Flags::empty(), value, at_most.as_ref());
    }

    fn wake(&self, at: usize, most: u32) {
        // The kernel takes the number as signed. A wake of memory that is there cannot fail.
        let _ = futex::wake(self.word(at), futex::Flags::empty(), most.min(i32::MAX as u32));
    }

    fn thread(&self) -> u32 {
        thread::number()
    }

    fn about_to_lock(&self, at: usize) -> usize {
        thread::expect_lock(std::ptr::from_ref(self.word(at)) as usize)
    }

    fn done(&self, before: usize) {
        thread::expect(before);
    }

    fn now(&self) -> Instant {
        Instant::now()
    }
}
