//! Why a call was refused. A refused call has changed nothing.

use crate::arena::SegmentId;
use core::fmt;

/// Why an arena refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No free segment holds so many pages at that alignment. Moves may make one: `free` pages are
    /// free in all.
    NoRoom {
        /// Pages asked for.
        pages: u32,
        /// Pages that are free in the arena.
        free: u32,
    },
    /// A size of no pages, a size that is no growth or no shrinking, or an alignment that is not a
    /// power of two.
    Size,
    /// The segment was freed, or never was.
    NoSegment(SegmentId),
    /// The segment is busy with I/O.
    Pinned(SegmentId),
    /// So many virtual segments map it, more than the call allows.
    Mapped(u32),
    /// The segment's contents are on their way to another place.
    Leaving(SegmentId),
    /// The segment does not move at present, or not to there.
    NotThere(SegmentId),
    /// Only so many pages of the segment have contents.
    NotFilled(u32),
    /// The records name pages twice, or pages that the arena does not have.
    Records,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NoRoom { pages, free } => {
                write!(f, "no free segment of {pages} pages; {free} pages are free in all")
            }
            Refused::Size => f.write_str("not a size or an alignment for this call"),
            Refused::NoSegment(id) => write!(f, "there is no segment {id}"),
            Refused::Pinned(id) => write!(f, "segment {id} is busy with I/O"),
            Refused::Mapped(times) => write!(f, "the segment is mapped {times} times"),
            Refused::Leaving(id) => write!(f, "segment {id} is being moved"),
            Refused::NotThere(id) => write!(f, "segment {id} does not move, or not to there"),
            Refused::NotFilled(pages) => write!(f, "only {pages} pages of the segment have contents"),
            Refused::Records => f.write_str("the records do not fit the arena, or each other"),
        }
    }
}

impl core::error::Error for Refused {}
