//! What a memory object is: its name, its options, its pages, what can go wrong with it, and the messages
//! in which host and client speak of it. No I/O and no unsafe code; everything else depends on this.
#![forbid(unsafe_code)]

pub mod address_map;
pub mod coherence;
pub mod counts;
pub mod error;
pub mod fixed;
pub mod format;
#[cfg(test)]
mod golden;
pub mod info;
pub mod letters;
pub mod limits;
pub mod map_options;
pub mod name;
pub mod options;
pub mod page;
pub mod page_size;
pub mod permission;
pub mod system_v;
pub mod tagging;
pub mod wire;

pub use commonhold_tags as tags;

pub use address_map::{AddressMap, Region};
pub use coherence::{Coherence, OnLoss, Scheduler};
pub use counts::{
    Counts, MessageCount, MessageKind, ObjectCounts, PageCount, Seen, TraceLine, TracePlace, Traced,
};
pub use error::{Error, ErrorKind, Result};
pub use fixed::{Fixed, Part, Places};
pub use format::Format;
pub use info::{
    ClusterHost, ClusterStatus, EntryInfo, HostStatus, Losses, MappingInfo, ObjectInfo, PageState, Place,
    Synced, Trouble,
};
pub use letters::misleads;
pub use map_options::{MapFlags, Protection, Sharing};
pub use name::Name;
pub use options::{
    CHANNEL_DESCRIPTION, CreateOptions, HEAP_DESCRIPTION, OnLastDeath, PagerKind, SyncMode, Translation,
};
pub use page::{PAGE_SIZE_BYTES, PageRange, page_aligned, pages_of};
pub use page_size::PageSize;
pub use permission::{Access, Credentials, Ownership};
pub use tagging::Tagging;

/// Identifies an object for as long as its host's state directory exists; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct ObjectId(pub u64);

/// Identifies one mapping of one client. Chosen by the client, so that a request repeated after the host was
/// replaced means the same mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct MappingId(pub u64);

/// Identifies a client's session with its host, past the death of that host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct SessionId(pub u64);
