//! Memory of queues, mapped from its file.

use crate::answering::{Answering, Given};
use crate::layout::BYTES;
use crate::memory::Memory;
use commonhold_futex::{Mapped, copy_once};
use commonhold_sys::frames;
use commonhold_sys::memory::FileWindow;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Mapped for as long as it lives.
#[derive(Debug)]
pub struct Shared {
    mapped: Mapped,
    _window: FileWindow,
}

/// Makes a file for two queues, which keeps its size whoever may write to it.
pub fn create() -> io::Result<OwnedFd> {
    frames::create_of_fixed_size("commonhold-queues", BYTES as u64)
}

impl Shared {
    /// Maps such a file.
    pub fn map(file: impl AsFd) -> io::Result<Arc<Shared>> {
        let window = FileWindow::for_writing(file, 0, BYTES)?;
        let start = NonNull::new(window.as_ptr().cast_mut());
        let start = start.ok_or_else(|| io::Error::other("queues were mapped nowhere"))?;
        // SAFETY: mapped shared, to read and to write, for as long as the window is kept beside it.
        // The host made the file with that size, and sealed it. The one reference that is ever made
        // into it is that of `fill`, to bytes that nobody else of this process touches meanwhile.
        let mapped = unsafe { Mapped::new(start, BYTES) };
        Ok(Arc::new(Shared { mapped, _window: window }))
    }
}

impl Memory for Arc<Shared> {
    fn load(&self, at: usize) -> u32 {
        self.mapped.word(at).load(Ordering::Acquire)
    }

    fn store(&self, at: usize, value: u32) {
        self.mapped.word(at).store(value, Ordering::Release);
    }

    fn swap(&self, at: usize, value: u32) -> u32 {
        self.mapped.word(at).swap(value, Ordering::AcqRel)
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        let target = self.mapped.address(at, bytes.len());
        // SAFETY: the target is inside, and a slice of Rust's own memory does not overlap it.
        unsafe { copy_once(bytes.as_ptr(), target, bytes.len()) };
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        let source = self.mapped.address(at, bytes.len());
        // SAFETY: as above, the other way.
        unsafe { copy_once(source, bytes.as_mut_ptr(), bytes.len()) };
    }

    fn sleep(&self, at: usize, value: u32, at_most: Duration) {
        self.mapped.sleep(at, value, at_most);
    }

    fn wake(&self, at: usize) {
        self.mapped.wake(at, 1); // an end is one thread
    }
}

impl Answering<Arc<Shared>> {
    /// Has the place of a question filled, which is zeros before: what lay there may be of an object
    /// that others must not read.
    pub fn fill<T>(&mut self, question: &Given, with: impl FnOnce(&mut [u8]) -> T) -> T {
        let place = question.place;
        let start = self.memory().mapped.address(place.at, place.length);
        // SAFETY: inside of the mapping, which lives as long as `self`. The host gave the place to
        // this question alone, and neither reads nor writes it until it is answered. In this process
        // whoever has the pager's end, exclusively here, is the only one to touch it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start, place.length) };
        bytes.fill(0);
        with(bytes)
    }
}
