//! Physical memory as busy and free segments (section 5.5).

use crate::bins::{Bins, List};
use crate::error::Refused;
use crate::placement::{Placement, Tlsf};
use crate::run::Run;
use crate::table::{NONE, Node, State, Table};
use core::fmt;
use core::marker::PhantomData;

/// Names a busy segment. The name outlives moves, and is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// What became of a segment whose mapping went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmapped {
    /// Others map it still.
    Mapped,
    /// Nobody maps it; it is cacheable and stays.
    Cached,
    /// Nobody maps it; the caller frees it when it likes.
    Unused,
}

/// One segment of an arena, as [`Arena::pieces`] shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its pages.
    pub run: Run,
    /// Who it is; nobody where it is free, or where a move goes.
    pub segment: Option<SegmentId>,
    /// Whether it is free.
    pub is_free: bool,
}

/// A fixed number of pages, divided into busy and free segments that `P` places.
///
/// Two free segments never adjoin. Allocation and freeing take constant time but for the
/// [`Placement::LOOKS`] and, with an alignment above 1, for a look through the free segments.
#[derive(Clone, Debug)]
pub struct Arena<P = Tlsf> {
    pub(crate) table: Table,
    pub(crate) bins: Bins,
    /// Segments that are cached, the oldest first.
    cached: List,
    pages: u32,
    free_pages: u32,
    /// A segment mapped more often than that does not move.
    pub(crate) movable_mappings: u32,
    placement: PhantomData<fn() -> P>,
}

impl<P: Placement> Arena<P> {
    /// An arena of `pages` pages, all of them free. At least one.
    pub fn new(pages: u32) -> Arena<P> {
        assert!(pages > 0, "an arena has pages");
        let mut arena = Arena {
            table: Table::new(pages),
            bins: Bins::new(P::BINS),
            cached: List::EMPTY,
            pages,
            free_pages: pages,
            movable_mappings: 1,
            placement: PhantomData,
        };
        arena.shelve(0);
        arena
    }

    /// For hardware that does not translate addresses: a mapped segment does not move either.
    pub fn fixed_when_mapped(mut self) -> Arena<P> {
        self.movable_mappings = 0;
        self
    }

    /// Pages in all.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Pages that no segment has.
    pub fn free_pages(&self) -> u32 {
        self.free_pages
    }

    /// Allocates a segment for `object`, a name of the caller's, from a page that is a multiple of
    /// `align`, a power of two. Its pages have no contents yet: [`Arena::fill_next`].
    pub fn alloc(&mut self, pages: u32, align: u32, object: u64) -> Result<SegmentId, Refused> {
        if pages == 0 || !align.is_power_of_two() {
            return Err(Refused::Size);
        }
        let no_room = Refused::NoRoom { pages, free: self.free_pages };
        let free = self.find(pages, align).ok_or(no_room)?;
        let start = match align {
            1 => self.table.node(free).start,
            _ => self.table.node(free).run().place(pages, align).ok_or(no_room)?,
        };
        Ok(self.make(free, Run::new(start, pages), align, object))
    }

    /// Allocates exactly those pages, all of which must be free. Looks through the segments.
    pub fn alloc_at(&mut self, run: Run, align: u32, object: u64) -> Result<SegmentId, Refused> {
        if run.pages == 0 || !align.is_power_of_two() || !run.start.is_multiple_of(align) {
            return Err(Refused::Size);
        }
        let no_room = Refused::NoRoom { pages: run.pages, free: self.free_pages };
        let free = self.free_at(run).ok_or(no_room)?;
        Ok(self.make(free, run, align, object))
    }

    /// Frees a segment: its pages merge with what is free beside it. Refused while it is pinned,
    /// mapped, or being moved.
    pub fn free(&mut self, id: SegmentId) -> Result<(), Refused> {
        let node = self.settled(id)?;
        if node.mapped > 0 {
            return Err(Refused::Mapped(node.mapped));
        }
        self.vacate(id);
        Ok(())
    }

    /// Where a segment lies.
    pub fn run(&self, id: SegmentId) -> Result<Run, Refused> {
        self.busy(id).map(Node::run)
    }

    /// The caller's name for what a segment holds.
    pub fn object(&self, id: SegmentId) -> Result<u64, Refused> {
        self.busy(id).map(|node| node.object)
    }

    /// Keeps a segment where it is while I/O goes to or from it. Refused while it is being moved.
    pub fn pin(&mut self, id: SegmentId) -> Result<Run, Refused> {
        if self.busy(id)?.state == State::Leaving {
            return Err(Refused::Leaving(id));
        }
        let node = self.table.node_mut(id.index);
        node.pins += 1;
        Ok(node.run())
    }

    /// Takes one pin back.
    pub fn unpin(&mut self, id: SegmentId) -> Result<(), Refused> {
        let pins = self.busy(id)?.pins.checked_sub(1).ok_or(Refused::Size)?;
        self.table.node_mut(id.index).pins = pins;
        Ok(())
    }

    /// Counts one more virtual segment that maps a segment. Refused until every page has contents
    /// (section 5.1: pages are initialised before any access), and while it is being moved.
    pub fn map(&mut self, id: SegmentId) -> Result<Run, Refused> {
        let node = self.busy(id)?;
        if node.state == State::Leaving {
            return Err(Refused::Leaving(id));
        }
        if node.filled < node.pages {
            return Err(Refused::NotFilled(node.filled));
        }
        self.change(id.index, |node| node.mapped += 1);
        Ok(self.table.node(id.index).run())
    }

    /// Counts one virtual segment less.
    pub fn unmap(&mut self, id: SegmentId) -> Result<Unmapped, Refused> {
        let mapped = self.busy(id)?.mapped.checked_sub(1).ok_or(Refused::Size)?;
        self.change(id.index, |node| node.mapped = mapped);
        Ok(match self.table.node(id.index) {
            node if node.mapped > 0 => Unmapped::Mapped,
            node if node.cacheable => Unmapped::Cached,
            _ => Unmapped::Unused,
        })
    }

    /// Says whether a segment stays when its last mapping goes (section 5.5).
    pub fn set_cacheable(&mut self, id: SegmentId, cacheable: bool) -> Result<(), Refused> {
        self.busy(id)?;
        self.change(id.index, |node| node.cacheable = cacheable);
        Ok(())
    }

    /// The cached segment that has been unmapped for longest, to be freed when room is short.
    pub fn oldest_cached(&self) -> Option<SegmentId> {
        self.cached.iter(&self.table).find(|index| self.may_leave(*index)).map(|index| self.id(index))
    }

    /// Whether a segment may be moved now: not pinned, not mapped more than once, not on its way.
    pub fn is_movable(&self, id: SegmentId) -> Result<bool, Refused> {
        self.busy(id).map(|_| self.may_leave(id.index))
    }

    /// All segments in order of address.
    pub fn pieces(&self) -> impl Iterator<Item = Piece> {
        self.table.iter().map(|(index, node)| Piece {
            run: node.run(),
            segment: matches!(node.state, State::Busy | State::Leaving).then(|| self.id(index)),
            is_free: node.state == State::Free,
        })
    }
}

/// What the other files of the crate share.
impl<P: Placement> Arena<P> {
    pub(crate) fn id(&self, index: u32) -> SegmentId {
        SegmentId { index, generation: self.table.node(index).generation }
    }

    /// The busy segment of that name.
    pub(crate) fn busy(&self, id: SegmentId) -> Result<&Node, Refused> {
        self.table
            .nodes
            .get(id.index as usize)
            .filter(|node| node.generation == id.generation)
            .filter(|node| matches!(node.state, State::Busy | State::Leaving))
            .ok_or(Refused::NoSegment(id))
    }

    /// The busy segment of that name, if no I/O and no move is at work on it.
    pub(crate) fn settled(&self, id: SegmentId) -> Result<&Node, Refused> {
        let node = self.busy(id)?;
        match node.state {
            State::Leaving => Err(Refused::Leaving(id)),
            _ if node.pins > 0 => Err(Refused::Pinned(id)),
            _ => Ok(node),
        }
    }

    /// Whether a segment's contents may leave its place (section 5.5).
    pub(crate) fn may_leave(&self, index: u32) -> bool {
        let node = self.table.node(index);
        node.state == State::Busy && node.pins == 0 && node.mapped <= self.movable_mappings
    }

    /// Frees a busy segment whatever is said of it.
    pub(crate) fn vacate(&mut self, id: SegmentId) {
        if self.table.node(id.index).is_cached() {
            self.cached.remove(&mut self.table, id.index);
        }
        self.release(id.index);
    }

    /// A free segment for `pages` pages, as the placement prefers.
    pub(crate) fn find(&self, pages: u32, align: u32) -> Option<u32> {
        let roomy = P::roomy(pages);
        if align > 1 {
            return self.look(P::bin(pages), P::BINS, usize::MAX, |run| run.place(pages, align).is_some());
        }
        self.look(P::bin(pages), roomy, P::LOOKS, |run| run.pages >= pages)
            .or_else(|| self.bins.next(roomy).map(|bin| self.bins.list(bin).head))
    }

    /// The first of at most `looks` segments of the bins from `first` to before `end` that fits.
    fn look(&self, first: usize, end: usize, looks: usize, fits: impl Fn(Run) -> bool) -> Option<u32> {
        let mut left = looks;
        let mut bin = first;
        while left > 0 {
            bin = self.bins.next(bin).filter(|bin| *bin < end)?;
            for index in self.bins.list(bin).iter(&self.table).take(left) {
                if fits(self.table.node(index).run()) {
                    return Some(index);
                }
                left -= 1;
            }
            bin += 1;
        }
        None
    }

    /// The free segment that has all of a run.
    pub(crate) fn free_at(&self, run: Run) -> Option<u32> {
        let end = u64::from(run.start) + u64::from(run.pages);
        self.table
            .iter()
            .find(|(_, node)| run.start < node.run().end())
            .filter(|(_, node)| node.state == State::Free && node.start <= run.start)
            .filter(|(_, node)| end <= u64::from(node.run().end()))
            .map(|(index, _)| index)
    }

    /// Makes a segment of pages of a free one.
    fn make(&mut self, free: u32, run: Run, align: u32, object: u64) -> SegmentId {
        let index = self.claim(free, run.start, run.pages);
        let node = self.table.node_mut(index);
        node.object = object;
        node.align_log2 = align.trailing_zeros() as u8;
        SegmentId { index, generation: node.generation }
    }

    /// Makes pages of a free segment a busy one. What is left stays free, last in its bin, so that
    /// the new segment may grow into it (section 5.5).
    pub(crate) fn claim(&mut self, free: u32, start: u32, pages: u32) -> u32 {
        self.unshelve(free);
        let run = self.table.node(free).run();
        let index = match start - run.start {
            0 => free,
            front => {
                self.table.node_mut(free).pages = front;
                let index = self.table.insert_after(free, Run::new(start, run.pages - front));
                self.shelve(free);
                index
            }
        };
        let rest = run.end() - (start + pages);
        if rest > 0 {
            self.table.node_mut(index).pages = pages;
            let tail = self.table.insert_after(index, Run::new(start + pages, rest));
            self.shelve(tail);
        }
        self.table.node_mut(index).state = State::Busy;
        self.free_pages -= pages;
        index
    }

    /// Makes a segment free, and merges it with its free neighbours.
    pub(crate) fn release(&mut self, index: u32) {
        let node = self.table.node_mut(index);
        node.generation = node.generation.wrapping_add(1);
        node.state = State::Free;
        (node.filled, node.mapped, node.cacheable) = (0, 0, false);
        let (prev, next, pages) = (node.prev, node.next, node.pages);
        self.free_pages += pages;
        if self.is_free(next) {
            self.unshelve(next);
            self.table.merge_into_prev(next);
        }
        let mut whole = index;
        if self.is_free(prev) {
            self.unshelve(prev);
            self.table.merge_into_prev(index);
            whole = prev;
        }
        self.shelve(whole);
    }

    pub(crate) fn is_free(&self, index: u32) -> bool {
        index != NONE && self.table.node(index).state == State::Free
    }

    /// Puts a free segment last into the bin of its size.
    pub(crate) fn shelve(&mut self, index: u32) {
        let bin = P::bin(self.table.node(index).pages);
        self.bins.push_back(&mut self.table, bin, index);
    }

    pub(crate) fn unshelve(&mut self, index: u32) {
        let bin = P::bin(self.table.node(index).pages);
        self.bins.remove(&mut self.table, bin, index);
    }

    /// Changes a segment, and keeps the list of the cached right.
    fn change(&mut self, index: u32, change: impl FnOnce(&mut Node)) {
        let node = self.table.node_mut(index);
        let was = node.is_cached();
        change(node);
        match (was, node.is_cached()) {
            (false, true) => self.cached.push_back(&mut self.table, index),
            (true, false) => self.cached.remove(&mut self.table, index),
            _ => {}
        }
    }
}
