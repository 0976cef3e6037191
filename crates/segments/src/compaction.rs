//! Which moves make room. A plan is a proposal: nothing changes until [`Arena::begin_move`].

use crate::arena::{Arena, SegmentId};
use crate::placement::Placement;
use crate::run::Run;
use crate::table::{NONE, Node, State};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// A move that would help: who, and to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Who moves.
    pub segment: SegmentId,
    /// The free pages to move to.
    pub to: Run,
}

/// Room for a segment, once these moves are made: then [`Arena::alloc_at`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The pages that will be free.
    pub run: Run,
    /// Who moves out of them.
    pub moves: Vec<Relocation>,
}

impl<P: Placement> Arena<P> {
    /// Room for `pages` pages at that alignment, by moves of at most `at_most` pages in all. None
    /// if no plan was found.
    ///
    /// Each move goes from the room into a hole outside of it, so the moves may be made in any
    /// order, and each that is made stays useful. Of the rooms considered (they begin or end where
    /// a segment does) the cheapest wins whose segments all find holes, the largest segment first,
    /// each in the smallest hole that holds it.
    pub fn make_room(&self, pages: u32, align: u32, at_most: u32) -> Option<Room> {
        if pages == 0 || pages > self.free_pages() || !align.is_power_of_two() {
            return None;
        }
        let mut rooms: Vec<(u32, Run)> = self
            .table
            .iter()
            .flat_map(|(index, node)| {
                let rooms = rooms_at(node, pages, align, self.pages());
                rooms.into_iter().flatten().filter_map(move |room| Some((self.cost(index, room)?, room)))
            })
            .filter(|(cost, _)| *cost <= at_most)
            .collect();
        rooms.sort_unstable_by_key(|(cost, room)| (*cost, room.start));
        let holes = Holes::of(self);
        rooms.into_iter().find_map(|(_, run)| Some(Room { run, moves: self.clear(run, &holes)? }))
    }

    /// The next move of a compaction in the background, of at most `at_most` pages: the highest
    /// segment that fits in a hole below it goes to the smallest such hole. None when no segment
    /// does. Every move brings a segment nearer to page 0, so a compaction ends.
    pub fn compact(&self, at_most: u32) -> Option<Relocation> {
        let holes = Holes::of(self);
        let mut movable: Vec<u32> = self
            .table
            .iter()
            .filter(|(index, node)| node.pages <= at_most && self.may_leave(*index))
            .map(|(index, _)| index)
            .collect();
        movable.reverse();
        movable.into_iter().find_map(|index| {
            let node = self.table.node(index);
            let start = holes.best(node.pages, 1 << node.align_log2, node.start)?.1;
            Some(Relocation { segment: self.id(index), to: Run::new(start, node.pages) })
        })
    }

    /// Moves that free all of a run.
    pub(crate) fn clear(&self, room: Run, holes: &Holes) -> Option<Vec<Relocation>> {
        let mut holes = holes.without(room);
        let mut leaving: Vec<(u32, &Node)> = self
            .table
            .iter()
            .skip_while(|(_, node)| node.run().end() <= room.start)
            .take_while(|(_, node)| node.start < room.end())
            .filter(|(_, node)| node.state != State::Free)
            .collect();
        leaving.sort_by_key(|(_, node)| Reverse(node.pages));
        leaving
            .into_iter()
            .map(|(index, node)| {
                let start = self.may_leave(index).then(|| holes.take(node.pages, 1 << node.align_log2))??;
                Some(Relocation { segment: self.id(index), to: Run::new(start, node.pages) })
            })
            .collect()
    }

    /// Pages that must be copied to clear a room that begins or ends in the segment `index`. None
    /// if one in it may not move.
    fn cost(&self, index: u32, room: Run) -> Option<u32> {
        let forward = room.end() > self.table.node(index).run().end();
        let mut cost = 0;
        let mut at = index;
        while at != NONE {
            let node = self.table.node(at);
            let past = if forward { node.start >= room.end() } else { node.run().end() <= room.start };
            if past {
                break;
            }
            if node.state != State::Free && node.run().overlaps(room) {
                cost += self.may_leave(at).then_some(node.pages)?;
            }
            at = if forward { node.next } else { node.prev };
        }
        Some(cost)
    }
}

/// The rooms of `pages` pages that begin where a segment does, and that end where it does.
fn rooms_at(node: &Node, pages: u32, align: u32, arena_pages: u32) -> [Option<Run>; 2] {
    let run = node.run();
    let begins = Run::new(run.start, arena_pages - run.start).place(pages, align);
    let ends = run.end().checked_sub(pages).map(|start| start / align * align);
    [begins.map(|start| Run::new(start, pages)), ends.map(|start| Run::new(start, pages))]
}

/// The free runs: pages and start of each, the smallest first.
pub(crate) struct Holes(Vec<(u32, u32)>);

impl Holes {
    pub fn of<P: Placement>(arena: &Arena<P>) -> Holes {
        let free = arena.table.iter().filter(|(_, node)| node.state == State::Free);
        let mut holes: Vec<_> = free.map(|(_, node)| (node.pages, node.start)).collect();
        holes.sort_unstable();
        Holes(holes)
    }

    /// The holes, with the pages of a room left out.
    fn without(&self, room: Run) -> Holes {
        let mut holes = Holes(Vec::with_capacity(self.0.len() + 1));
        holes.0.extend(self.0.iter().filter(|(pages, start)| !Run::new(*start, *pages).overlaps(room)));
        for (pages, start) in &self.0 {
            let hole = Run::new(*start, *pages);
            if hole.overlaps(room) {
                holes.add(hole.start, room.start);
                holes.add(room.end(), hole.end());
            }
        }
        holes
    }

    fn add(&mut self, start: u32, end: u32) {
        if start < end {
            let hole = (end - start, start);
            let place = self.0.partition_point(|other| *other < hole);
            self.0.insert(place, hole);
        }
    }

    /// The smallest hole that holds so many pages below page `below`: its index, and where in it.
    fn best(&self, pages: u32, align: u32, below: u32) -> Option<(usize, u32)> {
        let from = self.0.partition_point(|hole| hole.0 < pages);
        self.0[from..].iter().enumerate().find_map(|(n, (hole, start))| {
            let at = Run::new(*start, *hole).place(pages, align)?;
            (at + pages <= below).then_some((from + n, at))
        })
    }

    /// Takes pages from the smallest hole that holds them.
    fn take(&mut self, pages: u32, align: u32) -> Option<u32> {
        let (index, at) = self.best(pages, align, u32::MAX)?;
        let (hole, start) = self.0.remove(index);
        self.add(start, at);
        self.add(at + pages, start + hole);
        Some(at)
    }
}
