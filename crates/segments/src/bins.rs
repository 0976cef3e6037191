//! Lists of segments, one a bin, and two levels of bits that say which bins have any.

use crate::table::{NONE, Table, chain};
use alloc::vec;
use alloc::vec::Vec;

/// Both ends of a list that runs through the segments' `before` and `after`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub head: u32,
    tail: u32,
}

impl List {
    pub const EMPTY: List = List { head: NONE, tail: NONE };

    pub fn push_back(&mut self, table: &mut Table, index: u32) {
        let node = table.node_mut(index);
        (node.before, node.after) = (self.tail, NONE);
        match self.tail {
            NONE => self.head = index,
            tail => table.node_mut(tail).after = index,
        }
        self.tail = index;
    }

    pub fn remove(&mut self, table: &mut Table, index: u32) {
        let node = table.node(index);
        let (before, after) = (node.before, node.after);
        match before {
            NONE => self.head = after,
            _ => table.node_mut(before).after = after,
        }
        match after {
            NONE => self.tail = before,
            _ => table.node_mut(after).before = before,
        }
    }

    pub fn iter<'a>(&self, table: &'a Table) -> impl Iterator<Item = u32> + 'a {
        chain(self.head, |index| table.node(index).after)
    }
}

/// The bins of free segments.
#[derive(Clone, Debug)]
pub(crate) struct Bins {
    lists: Vec<List>,
    /// Bit b of word w: bin 64 w + b has segments.
    words: [u64; 64],
    /// Bit w: word w is not 0.
    summary: u64,
}

impl Bins {
    pub fn new(bins: usize) -> Bins {
        assert!(bins <= 64 * 64, "{bins} bins are more than two levels of bits hold");
        Bins { lists: vec![List::EMPTY; bins], words: [0; 64], summary: 0 }
    }

    pub fn list(&self, bin: usize) -> List {
        self.lists[bin]
    }

    /// Adds a free segment as the last of its bin.
    pub fn push_back(&mut self, table: &mut Table, bin: usize, index: u32) {
        self.lists[bin].push_back(table, index);
        self.words[bin / 64] |= 1 << (bin % 64);
        self.summary |= 1 << (bin / 64);
    }

    pub fn remove(&mut self, table: &mut Table, bin: usize, index: u32) {
        self.lists[bin].remove(table, index);
        if self.lists[bin].head == NONE {
            self.words[bin / 64] &= !(1 << (bin % 64));
            if self.words[bin / 64] == 0 {
                self.summary &= !(1 << (bin / 64));
            }
        }
    }

    /// The first bin from `bin` on that has segments.
    pub fn next(&self, bin: usize) -> Option<usize> {
        let word = bin / 64;
        if word >= 64 {
            return None;
        }
        let here = self.words[word] & (u64::MAX << (bin % 64));
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        let above = self.summary & u64::MAX.checked_shl(word as u32 + 1).unwrap_or(0);
        (above != 0).then(|| {
            let word = above.trailing_zeros() as usize;
            word * 64 + self.words[word].trailing_zeros() as usize
        })
    }
}
