//! First fit, as Knuth has it (The Art of Computer Programming, volume 1, section 2.5, algorithms A
//! and C): free blocks in one list by their addresses, a word with the size before each block, and
//! neighbours that are free become one. Li's scheme for shared memory derives from it.

use super::load::Allocator;
use crate::failure::{Result, failed};

/// The list's end.
const NONE: usize = usize::MAX;
/// Words of the smallest block: its size, and a link while it is free.
const LEAST: usize = 2;

/// Memory of words, of which the first ones were ever used.
pub struct FirstFit {
    words: Vec<u64>,
    first: usize,
    used: usize,
}

impl FirstFit {
    /// Memory of so many bytes.
    pub fn new(bytes: usize) -> FirstFit {
        let mut words = vec![0; bytes / 8];
        (words[0], words[1]) = (words.len() as u64, NONE as u64);
        FirstFit { words, first: 0, used: 0 }
    }

    /// Bytes up to the last block that there ever was.
    pub fn bytes_used(&self) -> u64 {
        self.used as u64 * 8
    }

    fn size(&self, at: usize) -> usize {
        self.words[at] as usize
    }

    fn next(&self, at: usize) -> usize {
        if at == NONE { self.first } else { self.words[at + 1] as usize }
    }

    fn link(&mut self, at: usize, next: usize) {
        if at == NONE { self.first = next } else { self.words[at + 1] = next as u64 }
    }
}

impl Allocator for FirstFit {
    fn allocate(&mut self, bytes: u64) -> Result<u64> {
        // Rounded up to 16 bytes, with its word before.
        let wanted = (bytes.div_ceil(16) as usize * 2 + 1).max(LEAST);
        let (mut before, mut at) = (NONE, self.first);
        while at != NONE && self.size(at) < wanted {
            (before, at) = (at, self.next(at));
        }
        if at == NONE {
            return failed("first fit has no room");
        }
        let left = self.size(at) - wanted;
        if left < LEAST {
            let next = self.next(at);
            self.link(before, next);
        } else {
            let rest = at + wanted;
            (self.words[rest], self.words[rest + 1]) = (left as u64, self.words[at + 1]);
            self.link(before, rest);
            self.words[at] = wanted as u64;
        }
        self.used = self.used.max(at + self.size(at));
        self.words[at + 1] = bytes;
        Ok(at as u64 + 1)
    }

    fn free(&mut self, block: u64) -> Result<()> {
        let at = block as usize - 1;
        let (mut before, mut next) = (NONE, self.first);
        while next != NONE && next < at {
            (before, next) = (next, self.next(next));
        }
        self.words[at + 1] = next as u64;
        self.link(before, at);
        for one in [at, before] {
            let next = if one == NONE { NONE } else { self.next(one) };
            if next != NONE && one + self.size(one) == next {
                self.words[one] += self.words[next];
                self.words[one + 1] = self.words[next + 1];
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Random;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn blocks_do_not_overlap_and_all_become_one_again() {
        let mut memory = FirstFit::new(1 << 20);
        let mut random = Random::seed_from_u64(1);
        let mut blocks: Vec<(u64, u64)> = Vec::new();
        for _ in 0..5000 {
            if blocks.len() > 100 || !blocks.is_empty() && random.random_range(0..2) == 0 {
                let (block, _) = blocks.swap_remove(random.random_range(0..blocks.len()));
                memory.free(block).unwrap();
            }
            let bytes = random.random_range(1..4096);
            let block = memory.allocate(bytes).unwrap();
            let end = block + bytes.div_ceil(8);
            let overlaps = |(other, size): &(u64, u64)| *other < end && block < other + size.div_ceil(8);
            assert!(!blocks.iter().any(overlaps));
            blocks.push((block, bytes));
        }
        assert!(memory.bytes_used() < 1 << 20);
        blocks.into_iter().for_each(|(block, _)| memory.free(block).unwrap());
        assert_eq!((memory.first, memory.size(0), memory.next(0)), (0, 1 << 17, NONE));
    }
}
