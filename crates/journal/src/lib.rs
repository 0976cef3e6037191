//! The redo journal of one *atomic* object: what makes its `sync` failure-atomic.
//!
//! A sync appends one record (the changed pages) and flushes once; only then are the pages written to
//! the stored object. After a crash the valid records are redone, so the stored object is always exactly
//! what some sync left. The protocol, and why recovery is right, is told at the top of `format.rs`.
//!
//! The host calls, in this order:
//!
//! * **open**: [`Journal::open`], then [`Journal::replay_runs`] into the stored object, flush the stored
//!   object, [`Journal::finish_recovery`].
//! * **sync**: fill a [`RecordBuffer`], [`Journal::append`] (or [`Journal::begin_append`] for more than
//!   one buffer). Now the sync is durable. Write the pages to the stored object, no flush, and call
//!   [`Journal::applied`].
//! * **checkpoint**, when [`Journal::needs_checkpoint`]: [`Journal::begin_checkpoint`], flush the stored
//!   object (appends may go on meanwhile), [`Journal::finish_checkpoint`].
//! * **if the flush of the stored object fails**: its dirty pages may be gone from the page cache and a
//!   second flush would lie. [`Journal::replay_runs`] again, flush again, then finish the checkpoint.
//! * **if an append fails**: nothing was appended; free space or wait, and append again.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod aligned;
mod buffer;
mod checkpoint;
mod error;
mod format;
#[cfg(test)]
mod golden;
mod header;
mod journal;
mod judge;
mod part;
mod recover;
mod replay;
mod scan;
mod stats;
mod storage;
mod writer;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use buffer::{BufferError, RecordBuffer};
pub use checkpoint::{CheckpointRefused, Ticket};
pub use error::{Damage, Error, FileId, HeaderFault, IoOp, ReplayError, Result};
pub use format::{BLOCK_BYTES, FORMAT_VERSION, MAX_PART_PAGES, PAGE_BYTES, Uuid};
pub use journal::{Journal, Options};
pub use recover::{Recovery, TornTail};
pub use replay::Replayed;
pub use stats::Stats;
pub use storage::{FileStorage, Storage};
pub use writer::{Appended, Appender};
