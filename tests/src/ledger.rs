//! What a client had done, in a file of the test's own: known to others after the client was killed.

use rustix::mm::{MapFlags, ProtFlags};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pairs of numbers: what was begun, and what was done.
pub struct Ledger {
    words: &'static [AtomicU64],
}

impl Ledger {
    /// Opens (or makes) a ledger of `entries` pairs.
    pub fn open(path: &Path, entries: usize) -> Ledger {
        Ledger { words: words_of(path, entries * 2) }
    }

    /// Notes that version `value` is about to be.
    pub fn begin(&self, entry: usize, value: u64) {
        self.words[entry * 2].store(value, Ordering::SeqCst);
    }

    /// Notes that it is.
    pub fn done(&self, entry: usize, value: u64) {
        self.words[entry * 2 + 1].store(value, Ordering::SeqCst);
    }

    /// What is certain, and what may be.
    pub fn get(&self, entry: usize) -> (u64, u64) {
        (self.words[entry * 2 + 1].load(Ordering::SeqCst), self.words[entry * 2].load(Ordering::SeqCst))
    }
}

/// Words of a file that processes share, for as long as each lives. It is made if it is not there.
pub fn words_of(path: &Path, count: usize) -> &'static [AtomicU64] {
    let file = std::fs::File::options().read(true).write(true).create(true).truncate(false).open(path);
    let file = file.expect("ledger");
    let bytes = count * 8;
    if file.metadata().expect("ledger").len() < bytes as u64 {
        file.set_len(bytes as u64).expect("ledger");
    }
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping of a regular file of at least that length, never unmapped; atomics alone touch it.
    unsafe {
        let start = rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &file, 0);
        std::slice::from_raw_parts(start.expect("ledger").cast::<AtomicU64>(), count)
    }
}
