//! A bitmap in a file, shared with whoever maps it next: it survives the death of its writer.
//!
//! Blocks of the file are allocated before the first bit in them is set, so a full disk is an error here and
//! never SIGBUS. Bits are changed by atomic operations on whole words: a writer killed between two of them
//! leaves each bit either old or new.

use crate::memory;
use commonhold_points as points;
use rustix::mm::{MapFlags, ProtFlags};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

const BLOCK_BYTES: u64 = 4096;
const BITS_PER_BLOCK: u64 = BLOCK_BYTES * 8;

/// `bits` bits at `base` of a file.
#[derive(Debug)]
pub struct BitFile {
    file: Arc<File>,
    base: u64,
    bits: u64,
    /// Mapped with the first block: a bitmap in which no bit was ever set costs no mapping.
    words: Option<NonNull<AtomicU64>>,
    allocated: HashSet<u64>,
}

// SAFETY: the mapping is owned by this value alone and reached only through atomic operations.
unsafe impl Send for BitFile {}
// SAFETY: as above; methods that change more than words take `&mut self`.
unsafe impl Sync for BitFile {}

impl BitFile {
    /// Opens the bitmap, which the file may not hold yet (then all bits are clear). `base` must be a multiple of
    /// 4096.
    pub fn open(file: &Arc<File>, base: u64, bits: u64) -> io::Result<Self> {
        let bytes = Self::bytes(bits);
        if file.metadata()?.len() < base + bytes {
            file.set_len(base + bytes)?;
        }
        let mut this = BitFile { file: file.clone(), base, bits, words: None, allocated: HashSet::new() };
        this.find_allocated()?;
        if !this.allocated.is_empty() {
            this.map()?;
        }
        Ok(this)
    }

    fn map(&mut self) -> io::Result<()> {
        if self.words.is_some() {
            return Ok(());
        }
        let bytes = Self::bytes(self.bits) as usize;
        // SAFETY: a fresh mapping at an address the kernel chooses, of a file that only this program opens.
        let map = || unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &*self.file,
                self.base,
            )
        };
        let address = points::mmap(map)?;
        let words = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at null"))?;
        self.words = Some(words);
        // The file is sparse: reading ahead would fill the page cache with megabytes of zeros at each first touch. What
        // is advice alone may fail.
        // SAFETY: the mapping was just made with this length; the advice changes none of its bytes.
        let _ = unsafe { rustix::mm::madvise(words.as_ptr().cast(), bytes, rustix::mm::Advice::Random) };
        Ok(())
    }

    fn bytes(bits: u64) -> u64 {
        bits.div_ceil(BITS_PER_BLOCK).max(1) * BLOCK_BYTES
    }

    fn find_allocated(&mut self) -> io::Result<()> {
        let (base, end) = (self.base, self.base + Self::bytes(self.bits));
        let mut blocks = HashSet::new();
        crate::frames::resident_runs_in(&self.file, base..end, |start, length| {
            let to = (start + length).min(end);
            blocks.extend((start - base) / BLOCK_BYTES..(to - base).div_ceil(BLOCK_BYTES));
        })?;
        self.allocated = blocks;
        Ok(())
    }

    /// Makes sure that bits of `first .. first + count` can be set.
    pub fn prepare(&mut self, first: u64, count: u64) -> io::Result<()> {
        if count == 0 {
            return Ok(());
        }
        self.map()?; // first: an allocated block is one whose bits can be reached
        for block in first / BITS_PER_BLOCK..=(first + count - 1) / BITS_PER_BLOCK {
            if !self.allocated.contains(&block) {
                let (begin, none) = (self.base + block * BLOCK_BYTES, rustix::fs::FallocateFlags::empty());
                // In memory it is cut short by a signal.
                rustix::io::retry_on_intr(|| {
                    rustix::fs::fallocate(self.file.as_fd(), none, begin, BLOCK_BYTES)
                })?;
                self.allocated.insert(block);
            }
        }
        Ok(())
    }

    fn word(&self, index: u64) -> &AtomicU64 {
        assert!(index < Self::bytes(self.bits) / 8, "bit outside the bitmap");
        let words = self.words.expect("mapped before its first block was allocated for use");
        // SAFETY: the mapping has bytes/8 words and lives as long as self; the index was checked. All access is
        // atomic. The block was allocated by `prepare`, so touching it cannot raise SIGBUS.
        unsafe { words.add(index as usize).as_ref() }
    }

    /// Sets (or clears) the bits of a run, as far as they lie in the bitmap. Blocks never prepared hold no set bit, so
    /// clearing skips them.
    pub fn write(&self, first: u64, count: u64, value: bool) {
        let end = (first + count).min(Self::bytes(self.bits) * 8);
        let mut at = first;
        while at < end {
            let within = at % 64;
            let n = (64 - within).min(end - at);
            let mask = if n == 64 { u64::MAX } else { ((1 << n) - 1) << within };
            if self.allocated.contains(&(at / BITS_PER_BLOCK)) {
                if value {
                    self.word(at / 64).fetch_or(mask, Ordering::Relaxed);
                } else {
                    self.word(at / 64).fetch_and(!mask, Ordering::Relaxed);
                }
            } else {
                assert!(!value, "bit set in a block that was not prepared");
            }
            at += n;
        }
    }

    /// How many there are.
    pub fn bits(&self) -> u64 {
        self.bits
    }

    /// The bits from `64 * index` on, the first one lowest. Blocks never prepared hold no set bit.
    pub fn word_at(&self, index: u64) -> u64 {
        let prepared = self.allocated.contains(&(index / (BITS_PER_BLOCK / 64)));
        if prepared { self.word(index).load(Ordering::Relaxed) } else { 0 }
    }

    /// Writes those 64 bits, which need [`prepare`](Self::prepare) first. A process that is killed later has written them
    /// after whatever it wrote before, and before whatever it wrote next.
    pub fn set_word(&self, index: u64, value: u64) {
        assert!(self.allocated.contains(&(index / (BITS_PER_BLOCK / 64))), "a word that was not prepared");
        compiler_fence(Ordering::SeqCst);
        self.word(index).store(value, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }

    /// Calls `each` with every set bit, in order.
    pub fn each_set(&self, mut each: impl FnMut(u64)) {
        let mut blocks: Vec<u64> = self.allocated.iter().copied().collect();
        blocks.sort_unstable();
        for block in blocks {
            for index in block * (BITS_PER_BLOCK / 64)..(block + 1) * (BITS_PER_BLOCK / 64) {
                let mut word = self.word(index).load(Ordering::Relaxed);
                while word != 0 {
                    let bit = index * 64 + u64::from(word.trailing_zeros());
                    if bit < self.bits {
                        each(bit);
                    }
                    word &= word - 1;
                }
            }
        }
    }
}

impl Drop for BitFile {
    fn drop(&mut self) {
        let Some(words) = self.words else { return };
        // SAFETY: the mapping was made in `map` with this length, and no reference outlives self.
        let _ = unsafe { memory::unmap(words.cast(), Self::bytes(self.bits) as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_there_for_the_next_who_opens() {
        let path = std::env::temp_dir().join(format!("commonhold-bits-{}", std::process::id()));
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        let file = Arc::new(file);
        let mut bits = BitFile::open(&file, 4096, 100_000).unwrap();
        bits.prepare(10, 90).unwrap();
        bits.prepare(99_990, 10).unwrap();
        bits.write(10, 90, true);
        bits.write(99_990, 10, true);
        bits.write(20, 60, false);
        bits.write(50_000, 100, false);
        bits.prepare(64_000, 64).unwrap();
        bits.set_word(1000, 1 << 63);
        drop(bits);
        let again = BitFile::open(&file, 4096, 100_000).unwrap();
        let mut found = Vec::new();
        again.each_set(|bit| found.push(bit));
        let expected: Vec<u64> = (10..20).chain(80..100).chain([64_063]).chain(99_990..100_000).collect();
        assert_eq!(found, expected);
        assert_eq!((again.word_at(1000), again.word_at(1001), again.word_at(700)), (1 << 63, 0, 0));
        std::fs::remove_file(path).unwrap();
    }
}
