//! What is kept: a key, a small blob, and perhaps a descriptor; and how much of it there may be.

use commonhold_object::{Error, Result};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A thing that outlives the host's process.
#[derive(Clone, Debug)]
pub struct Kept {
    /// What it is called.
    pub key: Key,
    /// What the host wrote of it.
    pub blob: Vec<u8>,
    /// The descriptor, if it has one.
    pub fd: Option<Arc<OwnedFd>>,
}

/// What a kept thing is called: `listener`, `session/17/uffd/0`, `object/5/frames`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub String);

impl Key {
    /// Makes a key; its length is checked when it is used.
    pub fn new(key: impl Into<String>) -> Self {
        Key(key.into())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How many host processes have been started on this state directory's present keeper and the keepers before it.
pub type Generation = u64;

/// The key of the state directory's lock: kept from the start, and handed to every next keeper.
pub const LOCK_KEY: &str = "lock";
/// Begins the keys of pidfds of hosts that were killed and cannot end yet. The keeper keeps them,
/// the host that has heard of their end forgets them.
pub const STUCK_PART: &str = "stuck/";
/// Longest key, in bytes.
pub const KEY_BYTES: usize = 128;
/// Longest blob, in bytes.
pub const BLOB_BYTES: usize = 64 * 1024;
/// Most things kept at once.
pub const KEPT_THINGS: usize = 200_000;
/// Most bytes of blobs kept at once.
pub const BLOBS_BYTES: usize = 256 << 20;

/// Checks the length of a key.
pub(crate) fn check_key(key: &str) -> Result<()> {
    if key.is_empty() || key.len() > KEY_BYTES {
        return Err(Error::invalid(format!(
            "a key of {} bytes cannot be kept: use 1 to {KEY_BYTES} bytes",
            key.len()
        )));
    }
    Ok(())
}
