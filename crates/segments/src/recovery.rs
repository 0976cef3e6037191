//! What outlives a crash: one record for each object, and a note of the transfer in flight.
//!
//! The caller keeps both where a crash leaves them. The order is the protocol:
//!
//! 1. the note is written, `done` false; then the first byte is copied;
//! 2. all is copied; then the note says `done`: from here on the object is at `to`;
//! 3. the object's record says `to`; 4. the old place is freed, and the note goes.
//!
//! `from` and `to` never overlap, and nobody gets either while the note stands. Whoever is killed
//! before step 2 is over leaves the object whole at `from`; later, whole at `to`.

use crate::arena::{Arena, SegmentId};
use crate::error::Refused;
use crate::placement::Placement;
use crate::run::Run;
use crate::table::{Node, State};
use alloc::vec::Vec;

/// Where an object's contents are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The caller's name for it.
    pub object: u64,
    /// Its pages.
    pub run: Run,
    /// Pages from the first on that have contents.
    pub filled: u32,
    /// The alignment it keeps when it moves, in pages.
    pub align: u32,
    /// Whether it stays when nobody maps it.
    pub cacheable: bool,
}

/// A transfer of an object within an arena, or between memory and swap space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// From one place in memory to another.
    Move(Passage),
    /// From memory to swap space.
    SwapOut(Passage),
    /// From swap space to memory.
    SwapIn(Passage),
}

/// From where to where an object goes, and whether it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The caller's name for it.
    pub object: u64,
    /// Where it was.
    pub from: Run,
    /// Where it will be.
    pub to: Run,
    /// Whether all of it is copied.
    pub done: bool,
}

impl Note {
    /// The records of memory and of swap space after a crash, made right: the object of the note is
    /// at one place, the one where it is whole.
    pub fn settle(&self, memory: &mut Vec<Record>, swap: &mut Vec<Record>) {
        let (passage, source, goal) = match self {
            Note::Move(passage) => {
                return passage.settle_within(memory);
            }
            Note::SwapOut(passage) => (passage, memory, swap),
            Note::SwapIn(passage) => (passage, swap, memory),
        };
        let of_it = |record: &Record| record.object == passage.object;
        let Some(record) = source.iter().chain(goal.iter()).find(|record| of_it(record)).copied() else {
            return;
        };
        source.retain(|record| !of_it(record));
        goal.retain(|record| !of_it(record));
        match passage.done {
            true => goal.push(Record { run: passage.to, ..record }),
            false => source.push(Record { run: passage.from, ..record }),
        }
    }
}

impl Passage {
    fn settle_within(&self, records: &mut [Record]) {
        for record in records.iter_mut().filter(|record| record.object == self.object) {
            record.run = if self.done { self.to } else { self.from };
        }
    }
}

impl<P: Placement> Arena<P> {
    /// What the arena holds, for a caller to keep: one record a segment, in order of address. A
    /// segment that is being moved is where it was.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        let busy = |node: &&Node| matches!(node.state, State::Busy | State::Leaving);
        self.table.iter().map(|(_, node)| node).filter(busy).map(record)
    }

    /// The record of one segment.
    pub fn record(&self, id: SegmentId) -> Result<Record, Refused> {
        self.busy(id).map(record)
    }

    /// An arena of `pages` pages with those segments, unmapped and not pinned; each with its new
    /// name. Notes that were left are settled before ([`Note::settle`]).
    pub fn recover(
        pages: u32,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<(Arena<P>, Vec<SegmentId>), Refused> {
        let mut records: Vec<Record> = records.into_iter().collect();
        records.sort_unstable_by_key(|record| record.run.start);
        let mut arena = Arena::new(pages);
        let mut last = arena.table.first;
        let mut segments = Vec::with_capacity(records.len());
        for record in records {
            let run = record.run;
            // What is free behind the last segment: the only place where a sorted record may lie.
            let free = if arena.is_free(last) { last } else { arena.table.node(last).next };
            let fits = arena.is_free(free) && run.pages > 0 && {
                let hole = arena.table.node(free).run();
                hole.start <= run.start
                    && u64::from(run.start) + u64::from(run.pages) <= u64::from(hole.end())
            };
            let sound = record.align.is_power_of_two()
                && run.start.is_multiple_of(record.align)
                && record.filled <= run.pages;
            if !fits || !sound {
                return Err(Refused::Records);
            }
            last = arena.claim(free, run.start, run.pages);
            let id = arena.id(last);
            let node = arena.table.node_mut(last);
            (node.object, node.filled) = (record.object, record.filled);
            node.align_log2 = record.align.trailing_zeros() as u8;
            arena.set_cacheable(id, record.cacheable)?;
            segments.push(id);
        }
        Ok((arena, segments))
    }
}

fn record(node: &Node) -> Record {
    Record {
        object: node.object,
        run: node.run(),
        filled: node.filled,
        align: 1 << node.align_log2,
        cacheable: node.cacheable,
    }
}
