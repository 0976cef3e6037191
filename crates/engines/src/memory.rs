//! Physical memory: pages of a file without a name, which the engines show to tasks.

use commonhold_segments::Run;
use commonhold_sys::frames;
use commonhold_sys::shared::Shared;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Words of a page.
pub const WORDS: usize = PAGE / size_of::<u64>();

/// A fixed number of pages.
#[derive(Debug)]
pub struct Memory {
    file: OwnedFd,
    mapped: Shared,
    pages: u32,
}

impl Memory {
    /// `pages` pages of zeros.
    pub fn new(pages: u32) -> io::Result<Memory> {
        let bytes = pages as usize * PAGE;
        let file = frames::create("commonhold-physical", bytes as u64)?;
        let mapped = Shared::map(&file, 0, bytes)?;
        Ok(Memory { file, mapped, pages })
    }

    /// How many.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// The file, for whoever maps pages of it.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A word of a page.
    pub fn word(&self, page: u32, n: usize) -> u64 {
        let mut bytes = [0; size_of::<u64>()];
        self.mapped.read(place(page, n), &mut bytes);
        u64::from_ne_bytes(bytes)
    }

    /// Changes a word of a page.
    pub fn set(&mut self, page: u32, n: usize, word: u64) {
        self.mapped.write(place(page, n), &word.to_ne_bytes());
    }

    /// Copies pages onto others, which are none of them.
    pub fn copy(&mut self, from: Run, to: Run) {
        let mut bytes = vec![0; from.pages as usize * PAGE];
        self.mapped.read(place(from.start, 0), &mut bytes);
        self.mapped.write(place(to.start, 0), &bytes);
    }
}

fn place(page: u32, n: usize) -> usize {
    assert!(n < WORDS, "a page has fewer words");
    page as usize * PAGE + n * size_of::<u64>()
}
