//! What is chosen when an object is mapped.

use serde::{Deserialize, Serialize};

/// What a mapping may be used for. Executing is not offered: images are a later part of Commonhold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Protection {
    /// Reading alone.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// Who sees the writes of a mapping (Shirriff, section 6, the `sharing` argument of mmap).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Sharing {
    /// Everybody who maps the object.
    Shared,
    /// Nobody else: written pages are copied.
    Private,
}

/// Further wishes for a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MapFlags {
    /// Hold and pin each page as it comes in (Shirriff, section 8.2, last but one paragraph). It keeps nobody out.
    pub lock: bool,
    /// Fail rather than move when the hinted address is taken.
    pub fixed: bool,
    /// Begin to bring all pages in, without waiting for them.
    pub prefetch: bool,
    /// The faulting thread serves itself where the page can be had without asking anybody.
    pub in_thread: bool,
    /// Of an object with shared page tables: by tables of this process's own, for protections of its own, or a part of it
    /// (Ko & Yoo, 5.3).
    pub own_tables: bool,
    /// Of an object with a fixed address: not there, but wherever there is room. Pointers in it are of no use then.
    pub anywhere: bool,
}
