//! The segment manager of a machine without pages: Bernadat & Black, *Mach on real memory* (1993).
//!
//! Where the hardware has segments, or no memory management at all, the pages of an object must
//! follow one another in physical memory, and must all be there before the first access. So each
//! object is one physical segment, and allocation means to fit segments into an arena.
//!
//! Everything here is a value. Nothing touches memory, starts a thread or reads a clock. What must
//! happen to memory comes out as a value that the caller carries out: a [`Run`] to zero, a
//! [`Move`] to copy, a list of [`Action`]s.
//!
//! | layer | the paper's | here |
//! |---|---|---|
//! | physical segments | 5.5 | [`Arena`], placed by a [`Placement`] |
//! | objects, map entries, virtual segments | 5.1 to 5.3 | [`Machine`] |
//! | hardware | 2, 5.7 | [`Rules`] say what it can do, [`Hardware`] does it |
//! | crashes, which the paper leaves out | – | [`Note`] and [`Arena::recover`] |
//! | multiprocessors, which it leaves out | – | `Shared`, with the feature `std` |
//!
//! `docs/SEGMENTS.md` has the design.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod action;
mod anonymous;
mod arena;
mod bins;
mod checking;
mod compaction;
mod error;
mod fill;
mod growth;
mod hardware;
mod machine;
mod moves;
mod placement;
mod recovery;
mod residency;
mod restart;
mod run;
#[cfg(feature = "std")]
mod shared;
mod space;
mod swap;
mod table;

pub use action::Action;
pub use arena::{Arena, Piece, SegmentId, Unmapped};
pub use checking::{CheckingTable, LoadError, Trap};
pub use compaction::{Relocation, Room};
pub use error::Refused;
pub use growth::Growth;
pub use hardware::{Descriptor, Hardware, Protection, Rules, Shape, TaskId};
pub use machine::{Error, Limits, Machine, Source};
pub use moves::Move;
pub use placement::{NextBucket, Placement, ScannedBuckets, Tlsf};
pub use recovery::{Note, Passage, Record};
pub use restart::Remains;
pub use run::Run;
#[cfg(feature = "std")]
pub use shared::{Lock, Monitor, Pinned, Shared};
pub use space::{Entry, Inheritance, ObjectId, VirtualSegment};
pub use swap::Transfer;
