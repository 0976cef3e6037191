//! Moving a segment, in two steps: room is taken, the caller copies, the old place is freed.

use crate::arena::{Arena, SegmentId};
use crate::compaction::Relocation;
use crate::error::Refused;
use crate::placement::Placement;
use crate::run::Run;
use crate::table::{NONE, State};

/// A move that was begun. The caller notes it ([`Note::Move`](crate::Note)), copies, notes that it
/// is done, and says [`Arena::finish_move`], or [`Arena::abandon_move`] at any time before.
///
/// The two runs never overlap, so the contents are whole at `from` until the copy is whole at `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Who moves.
    pub segment: SegmentId,
    /// Where it lies.
    pub from: Run,
    /// Where it will lie; longer than `from` if it grows by moving.
    pub to: Run,
    /// How many pages from the first on have contents: these are copied.
    pub pages: u32,
}

impl<P: Placement> Arena<P> {
    /// Takes the room for a relocation. Until the move is finished or abandoned the segment cannot
    /// be pinned, mapped, resized, freed or moved.
    ///
    /// Refused if the segment is pinned, mapped more than once or already moving (section 5.5), if
    /// its new size is smaller, or if not all of the new place is free and aligned.
    pub fn begin_move(&mut self, relocation: Relocation) -> Result<Move, Refused> {
        let Relocation { segment: id, to } = relocation;
        let node = self.settled(id)?;
        if node.mapped > self.movable_mappings {
            return Err(Refused::Mapped(node.mapped));
        }
        if to.pages < node.pages || !to.start.is_multiple_of(1 << node.align_log2) {
            return Err(Refused::Size);
        }
        let (from, pages) = (node.run(), node.filled);
        let free = self.free_at(to).ok_or(Refused::NoRoom { pages: to.pages, free: self.free_pages() })?;
        let target = self.claim(free, to.start, to.pages);
        let node = self.table.node_mut(target);
        (node.state, node.peer) = (State::Arriving, id.index);
        let node = self.table.node_mut(id.index);
        (node.state, node.peer) = (State::Leaving, target);
        Ok(Move { segment: id, from, to, pages })
    }

    /// The segment lies at its new place, and the old one is free. The caller has copied.
    pub fn finish_move(&mut self, moved: &Move) -> Result<(), Refused> {
        let target = self.target(moved)?;
        let index = moved.segment.index;
        self.table.exchange(index, target);
        self.settle(index, target);
        Ok(())
    }

    /// The segment stays where it was. What was copied is worth nothing.
    pub fn abandon_move(&mut self, moved: &Move) -> Result<(), Refused> {
        let target = self.target(moved)?;
        self.settle(moved.segment.index, target);
        Ok(())
    }

    fn settle(&mut self, index: u32, target: u32) {
        let node = self.table.node_mut(index);
        (node.state, node.peer) = (State::Busy, NONE);
        self.release(target);
    }

    /// The segment that keeps the room for a move.
    fn target(&self, moved: &Move) -> Result<u32, Refused> {
        let node = self.busy(moved.segment)?;
        let of_this_move = node.state == State::Leaving && node.peer != NONE && {
            (node.run(), self.table.node(node.peer).run()) == (moved.from, moved.to)
        };
        of_this_move.then_some(node.peer).ok_or(Refused::NotThere(moved.segment))
    }
}
