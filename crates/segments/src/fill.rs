//! Contents for new pages, a bounded number at a time (section 5.1: every page is initialised at
//! once, before any access).

use crate::arena::{Arena, SegmentId};
use crate::error::Refused;
use crate::placement::Placement;
use crate::run::Run;
use crate::table::State;

impl<P: Placement> Arena<P> {
    /// The next pages of a segment that have no contents, at most `at_most` (one at least). None if
    /// all have. The caller zeroes them, or brings them from a pager, and says so by
    /// [`Arena::filled`]; from the one to the other it keeps the segment pinned.
    pub fn fill_next(&self, id: SegmentId, at_most: u32) -> Result<Option<Run>, Refused> {
        let node = self.busy(id)?;
        let left = node.pages - node.filled;
        Ok((left > 0).then(|| node.run().part(node.filled, left.min(at_most.max(1)))))
    }

    /// Notes that the next `pages` pages of a segment have contents now. Refused while the segment
    /// is being moved: the move would leave them behind.
    pub fn filled(&mut self, id: SegmentId, pages: u32) -> Result<(), Refused> {
        let node = self.busy(id)?;
        if node.state == State::Leaving {
            return Err(Refused::Leaving(id));
        }
        if pages > node.pages - node.filled {
            return Err(Refused::Size);
        }
        self.table.node_mut(id.index).filled += pages;
        Ok(())
    }

    /// Pages of a segment that have contents, from its first on.
    pub fn filled_pages(&self, id: SegmentId) -> Result<u32, Refused> {
        self.busy(id).map(|node| node.filled)
    }
}
