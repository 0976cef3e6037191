//! The segments of an arena, linked by address; free and cached ones also in lists of their own.

use crate::run::Run;
use alloc::vec;
use alloc::vec::Vec;

/// No segment.
pub(crate) const NONE: u32 = u32::MAX;

/// What a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No segment: a place in the table to use again.
    Vacant,
    Free,
    Busy,
    /// Busy, while its contents go to the segment `peer`, or, if that is [`NONE`], out of the
    /// arena.
    Leaving,
    /// Where the contents of the segment `peer` go.
    Arriving,
}

/// One segment: the paper's `struct seg` (section 5.5), with numbers for pointers. A cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Node {
    pub start: u32,
    pub pages: u32,
    /// Neighbours by address.
    pub prev: u32,
    pub next: u32,
    /// Neighbours in a bin, or among the cached.
    pub before: u32,
    pub after: u32,
    pub generation: u32,
    pub state: State,
    pub align_log2: u8,
    pub cacheable: bool,
    /// Pages from the first on that have contents.
    pub filled: u32,
    pub pins: u32,
    pub mapped: u32,
    pub peer: u32,
    pub object: u64,
}

impl Node {
    pub fn run(&self) -> Run {
        Run::new(self.start, self.pages)
    }

    pub fn is_cached(&self) -> bool {
        matches!(self.state, State::Busy | State::Leaving) && self.cacheable && self.mapped == 0
    }
}

const VACANT: Node = Node {
    start: 0,
    pages: 0,
    prev: NONE,
    next: NONE,
    before: NONE,
    after: NONE,
    generation: 0,
    state: State::Vacant,
    align_log2: 0,
    cacheable: false,
    filled: 0,
    pins: 0,
    mapped: 0,
    peer: NONE,
    object: 0,
};

/// All segments of an arena.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub nodes: Vec<Node>,
    /// Chain of vacant places, by `next`.
    vacant: u32,
    /// The segment at page 0.
    pub first: u32,
}

impl Table {
    /// One free segment of so many pages.
    pub fn new(pages: u32) -> Table {
        let node = Node { pages, state: State::Free, ..VACANT };
        Table { nodes: vec![node], vacant: NONE, first: 0 }
    }

    pub fn node(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    pub fn node_mut(&mut self, index: u32) -> &mut Node {
        &mut self.nodes[index as usize]
    }

    /// Makes a free segment of a run, after the segment `prev` by address.
    pub fn insert_after(&mut self, prev: u32, run: Run) -> u32 {
        let next = self.node(prev).next;
        let index = self.vacancy();
        let node = self.node_mut(index);
        let generation = node.generation;
        *node = Node { start: run.start, pages: run.pages, prev, next, generation, ..VACANT };
        node.state = State::Free;
        self.node_mut(prev).next = index;
        if next != NONE {
            self.node_mut(next).prev = index;
        }
        index
    }

    fn vacancy(&mut self) -> u32 {
        if self.vacant == NONE {
            self.nodes.push(VACANT);
            return self.nodes.len() as u32 - 1;
        }
        let index = self.vacant;
        self.vacant = self.node(index).next;
        index
    }

    /// Takes a segment out; the one before it takes its pages.
    pub fn merge_into_prev(&mut self, index: u32) {
        let Node { prev, next, pages, .. } = *self.node(index);
        let before = self.node_mut(prev);
        before.pages += pages;
        before.next = next;
        if next != NONE {
            self.node_mut(next).prev = prev;
        }
        let vacant = self.vacant;
        let node = self.node_mut(index);
        node.state = State::Vacant;
        node.next = vacant;
        self.vacant = index;
    }

    /// Exchanges the places of two segments: runs, and neighbours by address.
    pub fn exchange(&mut self, a: u32, b: u32) {
        let other = |index| match index {
            _ if index == a => b,
            _ if index == b => a,
            _ => index,
        };
        let (of_a, of_b) = (self.node(a).clone(), self.node(b).clone());
        for (index, place) in [(a, of_b), (b, of_a)] {
            let node = self.node_mut(index);
            (node.start, node.pages) = (place.start, place.pages);
            (node.prev, node.next) = (other(place.prev), other(place.next));
        }
        self.first = other(self.first);
        for index in [a, b] {
            let Node { prev, next, .. } = *self.node(index);
            if prev != NONE {
                self.node_mut(prev).next = index;
            }
            if next != NONE {
                self.node_mut(next).prev = index;
            }
        }
    }

    /// The segments in order of address.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Node)> {
        chain(self.first, |index| self.node(index).next).map(|index| (index, self.node(index)))
    }
}

/// The segments of a list from `first` on.
pub(crate) fn chain(first: u32, next: impl Fn(u32) -> u32) -> impl Iterator<Item = u32> {
    let some = |index| (index != NONE).then_some(index);
    core::iter::successors(some(first), move |index| some(next(*index)))
}
