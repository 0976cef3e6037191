//! Swapping whole segments (the paper's section 9 leaves it out). Swap space is an arena too.

use crate::arena::{Arena, SegmentId};
use crate::error::Refused;
use crate::placement::Placement;
use crate::run::Run;
use crate::table::{NONE, State};

/// A segment on its way from one arena to another, begun and not finished: swapped out from memory
/// to swap space, or in. The contents are whole at `from` until the copy is whole at `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Who leaves, in the arena that it leaves.
    pub leaving: SegmentId,
    /// Who it becomes, in the arena that it goes to.
    pub arriving: SegmentId,
    /// Where it lies.
    pub from: Run,
    /// Where it will lie.
    pub to: Run,
    /// How many pages from the first on have contents: these are copied.
    pub pages: u32,
}

impl Transfer {
    /// Begins to transfer a segment to one that the caller has allocated for it in `goal`, equally
    /// long and without contents. Until [`Transfer::finish`] or [`Transfer::abandon`] the one that
    /// leaves cannot be pinned, mapped, resized, freed or moved, and the one that arrives is
    /// pinned.
    ///
    /// Refused as a move is: while the segment is pinned, mapped more than once or moving.
    pub fn begin<P: Placement, Q: Placement>(
        source: &mut Arena<P>,
        goal: &mut Arena<Q>,
        leaving: SegmentId,
        arriving: SegmentId,
    ) -> Result<Transfer, Refused> {
        let node = source.settled(leaving)?;
        if node.mapped > source.movable_mappings {
            return Err(Refused::Mapped(node.mapped));
        }
        let (from, pages) = (node.run(), node.filled);
        let node = goal.settled(arriving)?;
        if (node.pages, node.filled) != (from.pages, 0) {
            return Err(Refused::NotThere(arriving));
        }
        let to = goal.pin(arriving)?;
        let node = source.table.node_mut(leaving.index);
        (node.state, node.peer) = (State::Leaving, NONE);
        Ok(Transfer { leaving, arriving, from, to, pages })
    }

    /// The segment is in `goal`, unmapped; its old place is free. The caller has copied.
    pub fn finish<P: Placement, Q: Placement>(
        &self,
        source: &mut Arena<P>,
        goal: &mut Arena<Q>,
    ) -> Result<(), Refused> {
        self.check(source)?;
        goal.unpin(self.arriving)?;
        goal.filled(self.arriving, self.pages)?;
        goal.set_cacheable(self.arriving, source.busy(self.leaving)?.cacheable)?;
        source.vacate(self.leaving);
        Ok(())
    }

    /// The segment stays where it was. What was copied is worth nothing.
    pub fn abandon<P: Placement, Q: Placement>(
        &self,
        source: &mut Arena<P>,
        goal: &mut Arena<Q>,
    ) -> Result<(), Refused> {
        self.check(source)?;
        goal.unpin(self.arriving)?;
        goal.free(self.arriving)?;
        source.table.node_mut(self.leaving.index).state = State::Busy;
        Ok(())
    }

    fn check<P: Placement>(&self, source: &Arena<P>) -> Result<(), Refused> {
        let node = source.busy(self.leaving)?;
        let on_its_way = node.state == State::Leaving && node.peer == NONE;
        on_its_way.then_some(()).ok_or(Refused::NotThere(self.leaving))
    }
}
