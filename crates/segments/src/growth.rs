//! Sizes change by a call alone, at a segment's end (section 5.1 and 5.5).

use crate::arena::{Arena, SegmentId};
use crate::compaction::{Holes, Relocation};
use crate::error::Refused;
use crate::placement::Placement;
use crate::run::Run;
use crate::table::State;
use alloc::vec::Vec;

/// What a growth needs, the cheapest way first. The caller makes the moves, and then calls
/// [`Arena::grow`] where the segment does not grow by moving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Growth {
    /// The pages behind the segment are free: [`Arena::grow`] takes them.
    InPlace,
    /// These neighbours move first.
    Neighbours(Vec<Relocation>),
    /// The segment moves itself, to a place of the new size.
    Itself(Relocation),
}

impl<P: Placement> Arena<P> {
    /// What a segment needs to become `pages` pages long, at that alignment.
    ///
    /// Of moving the neighbours and moving itself it names what copies fewer pages. Refused if
    /// neither can be ([`Arena::make_room`] may help), if `pages` is no more than it has, if the
    /// segment is pinned and its neighbours cannot move, or while it is being moved.
    pub fn plan_growth(&self, id: SegmentId, pages: u32, align: u32) -> Result<Growth, Refused> {
        let node = self.busy(id)?;
        if node.state == State::Leaving {
            return Err(Refused::Leaving(id));
        }
        if pages <= node.pages || !align.is_power_of_two() {
            return Err(Refused::Size);
        }
        let stays = node.start.is_multiple_of(align) && pages <= self.pages() - node.start;
        let more = pages - node.pages;
        if stays && self.is_free(node.next) && self.table.node(node.next).pages >= more {
            return Ok(Growth::InPlace);
        }
        let room = Run::new(node.run().end(), more);
        let neighbours = stays.then(|| self.clear(room, &Holes::of(self))).flatten();
        let itself = self.itself(id, pages, align);
        match (neighbours, itself) {
            (Some(moves), Some(_)) if self.copied(&moves) <= node.filled => Ok(Growth::Neighbours(moves)),
            (_, Some(relocation)) => Ok(Growth::Itself(relocation)),
            (Some(moves), None) => Ok(Growth::Neighbours(moves)),
            (None, None) => Err(Refused::NoRoom { pages, free: self.free_pages() }),
        }
    }

    /// Lengthens a segment to `pages` pages into the free pages behind it. The new pages have no
    /// contents yet ([`Arena::fill_next`]). A pinned or mapped segment may grow so: it stays.
    pub fn grow(&mut self, id: SegmentId, pages: u32) -> Result<(), Refused> {
        let node = self.busy(id)?;
        if node.state == State::Leaving {
            return Err(Refused::Leaving(id));
        }
        let more = pages.checked_sub(node.pages).filter(|more| *more > 0).ok_or(Refused::Size)?;
        let next = node.next;
        if !self.is_free(next) || self.table.node(next).pages < more {
            return Err(Refused::NoRoom { pages: more, free: self.free_pages() });
        }
        let taken = self.claim(next, node.run().end(), more);
        self.table.merge_into_prev(taken);
        Ok(())
    }

    /// Shortens a segment to its first `pages` pages, one at least. The rest is free at once.
    /// Refused while it is pinned or being moved. Who maps it has let go of the rest before.
    pub fn shrink(&mut self, id: SegmentId, pages: u32) -> Result<(), Refused> {
        let node = self.settled(id)?;
        if pages == 0 || pages >= node.pages {
            return Err(Refused::Size);
        }
        let rest = Run::new(node.start + pages, node.pages - pages);
        let node = self.table.node_mut(id.index);
        node.pages = pages;
        node.filled = node.filled.min(pages);
        let tail = self.table.insert_after(id.index, rest);
        self.release(tail);
        Ok(())
    }

    /// Sets the alignment, in pages, that a segment keeps when it moves. It must have it now.
    pub fn set_align(&mut self, id: SegmentId, align: u32) -> Result<(), Refused> {
        if !align.is_power_of_two() || !self.busy(id)?.start.is_multiple_of(align) {
            return Err(Refused::Size);
        }
        self.table.node_mut(id.index).align_log2 = align.trailing_zeros() as u8;
        Ok(())
    }

    /// Pages that moves copy.
    fn copied(&self, moves: &[Relocation]) -> u32 {
        moves.iter().map(|relocation| self.table.node(relocation.segment.index).filled).sum()
    }

    fn itself(&self, id: SegmentId, pages: u32, align: u32) -> Option<Relocation> {
        let align = align.max(1 << self.table.node(id.index).align_log2);
        let free = self.may_leave(id.index).then(|| self.find(pages, align))??;
        let start = self.table.node(free).run().place(pages, align)?;
        Some(Relocation { segment: id, to: Run::new(start, pages) })
    }
}
