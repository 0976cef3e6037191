//! Memory that is mapped from a file.

use crate::memory::Memory;
use crate::thread;
use commonhold_futex::{Mapped, copy_once};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Memory for Mapped {
    const SPINS: u32 = 100;

    fn bytes(&self) -> usize {
        self.bytes()
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
        let target = self.address(at, bytes.len());
        // SAFETY: the target is inside, and a slice of Rust's own memory does not overlap it.
        unsafe { copy_once(bytes.as_ptr(), target, bytes.len()) };
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        let source = self.address(at, bytes.len());
        // SAFETY: as above, the other way.
        unsafe { copy_once(source, bytes.as_mut_ptr(), bytes.len()) };
    }

    fn sleep(&self, at: usize, value: u32, at_most: Duration) {
        self.sleep(at, value, at_most);
    }

    fn wake(&self, at: usize, most: u32) {
        self.wake(at, most);
    }

    fn thread(&self) -> u32 {
        commonhold_futex::thread()
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
