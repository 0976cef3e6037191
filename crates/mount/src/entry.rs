//! What an object is as a file.

use crate::fuse::Attributes;
use commonhold::{Coherence, EntryInfo, ObjectInfo, Ownership, Translation};

/// Number and kind of the root directory, for users who may see nothing else of it.
pub const ROOT_MODE: u32 = libc::S_IFDIR | 0o1777;

/// How a file's bytes get to who reads, writes and maps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The kernel reaches the object's own pages, and nobody is in the way.
    Direct,
    /// The kernel has copies of pages: `msync` publishes them, another host's sync ends them (Sprite; Shirriff, 4.3).
    Explicit,
    /// Each `read` and `write` comes to the server, and goes on to a mapping of the object; shared mappings cannot be made.
    Served,
}

impl Route {
    /// That of an object.
    pub fn of(info: &ObjectInfo) -> Route {
        match info.options.coherence {
            Coherence::Explicit => Route::Explicit,
            _ if info.controlled || info.options.translation != Translation::Paged => Route::Served,
            _ => Route::Direct,
        }
    }
}

/// By what an object is the same file wherever its name is, and no other object is. A directory is its name.
pub fn identity(entry: &EntryInfo) -> Option<u128> {
    match entry {
        EntryInfo::Object(info) => Some(info.uuid),
        EntryInfo::Directory { .. } => None,
    }
}

/// What `stat` shows of it as node `node`.
pub fn attributes(entry: &EntryInfo, node: u64) -> Attributes {
    match entry {
        EntryInfo::Object(info) => Attributes {
            node,
            size: info.options.size_bytes,
            blocks: info.resident_bytes / 512,
            modified_ns: info.modified_ns,
            mode: libc::S_IFREG | info.ownership.mode,
            uid: info.ownership.uid,
            gid: info.ownership.gid,
        },
        EntryInfo::Directory { name, ownership } => Attributes {
            node,
            size: 0,
            blocks: 0,
            modified_ns: 0,
            mode: if name.as_str() == "/" { ROOT_MODE } else { libc::S_IFDIR | ownership.mode },
            uid: ownership.uid,
            gid: ownership.gid,
        },
    }
}

/// Owner, group and mode.
pub fn ownership(entry: &EntryInfo) -> Ownership {
    match entry {
        EntryInfo::Object(info) => info.ownership,
        EntryInfo::Directory { ownership, .. } => *ownership,
    }
}

/// Extended attributes: what the object is.
pub fn extended(entry: &EntryInfo) -> Vec<(&'static str, String)> {
    let EntryInfo::Object(info) = entry else { return Vec::new() };
    let options = &info.options;
    let words = [
        ("user.commonhold.pager", options.pager.word()),
        ("user.commonhold.sync", options.sync.word()),
        ("user.commonhold.coherence", options.coherence.word()),
        ("user.commonhold.translation", options.translation.word()),
        ("user.commonhold.home", &info.home),
        ("user.commonhold.description", &options.description),
    ];
    words
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name, value.to_owned()))
        .collect()
}
