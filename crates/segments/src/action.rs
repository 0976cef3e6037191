//! What a [`Machine`](crate::Machine) asks its caller to do.

use crate::hardware::{Descriptor, TaskId};
use crate::recovery::{Note, Record};
use crate::run::Run;

/// One thing to do to memory, to the hardware or to what outlives a crash.
///
/// The actions of one call are carried out in order, and those of an earlier call before those of a
/// later one. No action works on more than the machine's chunk of pages, so that the caller may
/// serve others between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Pages of memory become zero.
    Zero(Run),
    /// Pages of memory are copied; the runs are equally long and do not overlap.
    Copy {
        /// From these pages.
        from: Run,
        /// To these.
        to: Run,
    },
    /// The object's pager fills pages of memory with what the object has from page `offset` on.
    PageIn {
        /// Whose contents.
        object: u64,
        /// The first page, counted from the object's.
        offset: u32,
        /// Where to.
        to: Run,
    },
    /// The object's pager stores pages of memory, all of which are about to be given away.
    PageOut {
        /// Whose contents.
        object: u64,
        /// The first page, counted from the object's.
        offset: u32,
        /// From where.
        from: Run,
    },
    /// Pages of memory go to swap space.
    SwapOut {
        /// From these pages of memory.
        from: Run,
        /// To these of swap space.
        to: Run,
    },
    /// Pages of swap space come back.
    SwapIn {
        /// From these pages of swap space.
        from: Run,
        /// To these of memory.
        to: Run,
    },
    /// A segment of a task becomes valid, or is replaced.
    Load {
        /// Whose.
        task: TaskId,
        /// Which.
        slot: u32,
        /// What it is.
        descriptor: Descriptor,
    },
    /// A segment of a task becomes invalid.
    Unload {
        /// Whose.
        task: TaskId,
        /// Which.
        slot: u32,
    },
    /// The object's record, where a crash leaves it, says this; `swapped`: of swap space.
    Keep {
        /// What it says.
        record: Record,
        /// Whether the run is one of swap space.
        swapped: bool,
    },
    /// The object's record goes.
    Drop {
        /// Whose.
        object: u64,
    },
    /// The note of the transfer in flight, where a crash leaves it, says this.
    Note(Note),
    /// The note goes.
    Forget,
}
