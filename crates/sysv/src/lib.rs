//! System V segments that are objects: `shmget`, `shmat`, `shmdt` and `shmctl` with the kernel's semantics
//! (`docs/UNMODIFIED.md`); and, in [`posix`], shared memory by `shm_open`.
//!
//! Beside each segment of ours stands a *twin*, a segment of the kernel's, of [`TWIN_BYTES`]. The twin has the key, the number,
//! owner and mode; each attach of ours attaches the twin, too. So the kernel itself counts who is attached, through fork, exec and
//! kill -9, and knows times, process numbers and namespaces. The bytes are in a direct object that is named after the twin.
//!
//! A process holds nothing of the host: what it asks, it asks on an errand. So a program may close whatever it does not know.
//! But for segments that other hosts have, too (`keys`): as long as one is attached, the client library serves the process.

mod anonymous;
mod attach;
mod control;
mod errands;
mod exports;
mod get;
pub mod kernel;
mod keys;
pub mod posix;
mod segment;
mod table;
mod wishes;

pub use anonymous::{map_anonymous, mapped_over, remap, unmap};
pub use attach::{attach, detach};
pub use control::{control, remove};
pub use get::get;
pub use keys::{all_of_cluster, remove_of_cluster};
pub use rustix::io::Errno;
pub use segment::{Segment, TWIN_BYTES, all};
pub use wishes::{LARGE_BYTES, Wishes};

/// `shmget`: the segment gets a table of pages that all share (Ko & Yoo, 3.2, the first operation). What no kernel knows, all
/// kernels ignore.
pub const IPC_SHARE_PAGE_TABLE: i32 = 0x20_0000;

/// `shmat`: attach by that table (the second operation). Solaris calls it `SHM_SHARE_MMU`.
pub const SHM_SHARE_PAGE_TABLE: i32 = 0x10_0000;
