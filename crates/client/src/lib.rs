#![doc = include_str!("../README.md")]
//!
//! # The library
//!
//! Memory that other processes share is never handed out as `&[u8]` or `&mut [u8]`: a mapping gives a raw
//! pointer, and what it points to may change at any time. Use atomics or volatile access, or
//! [`Object::read_at`] and [`Object::write_at`], which copy.

mod addresses;
pub mod c_api;
mod channel;
pub mod classical;
mod controlled;
mod copying;
mod direct;
mod errand;
mod exit;
mod fixed;
mod fork;
mod heap;
mod host;
pub mod image;
mod in_thread;
mod inherit;
mod inheriting;
mod link;
mod locate;
mod mapping;
mod movable;
mod object;
mod own;
mod pager;
mod reflink;
mod segments;
mod serving;
mod snapshots;
mod start;
mod sync;
mod third_party;
mod watch;
mod watching;
mod wired;

pub use channel::{Channel, ChannelOptions, Message, Received, Region};
pub use commonhold_channel::{Buffer, Landing};
pub use commonhold_heap::{Problem, Report as HeapReport, Tagged};
pub use commonhold_object::tags;
pub use commonhold_object::wire::Sizing;
pub use commonhold_object::{
    Access, ClusterHost, ClusterStatus, Coherence, Counts, CreateOptions, EntryInfo, Error, ErrorKind, Fixed,
    HostStatus, Losses, MapFlags, MappingId, MappingInfo, MessageCount, MessageKind, Name, ObjectCounts,
    ObjectId, ObjectInfo, OnLastDeath, OnLoss, Ownership, PAGE_SIZE_BYTES, PageCount, PageSize, PageState,
    PagerKind, Protection, Result, Scheduler, Seen, Sharing, SyncMode, TraceLine, TracePlace, Traced,
    Translation, Trouble,
};
pub use errand::{Errand, PATIENCE};
pub use fork::register_handlers;
pub use heap::{Heap, HeapArena, HeapType};
pub use host::Host;
pub use inherit::Inherit;
pub use locate::{default_state_directory, own_state_directory};
pub use mapping::{MapOptions, Mapping};
pub use movable::Guard;

pub use object::Object;
pub use own::{forget_own, is_own};
pub use pager::Pager;
pub use snapshots::SnapshotOptions;
#[doc(hidden)]
pub use sync::Wait;
pub use sync::{
    Barrier, Condition, Counter, Mutex, MutexGuard, ReadGuard, RwLock, Semaphore, SyncOptions, WriteGuard,
};
pub use third_party::FileRead;
pub use watch::Watch;
pub use watching::{Heard, Watcher};

/// Says on standard error what no call can return: one line, in one write, without any lock.
fn complain(text: &str) {
    let line = format!("commonhold: {}\n", text.replace('\n', " "));
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}
