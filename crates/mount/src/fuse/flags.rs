//! Numbers of the protocol.

/// Major version of the protocol.
pub const MAJOR: u32 = 7;
/// The minor version spoken here: passthrough and resending came with it (Linux 6.9).
pub const MINOR: u32 = 40;
/// The number of the root directory's node.
pub const ROOT: u64 = 1;

/// Bits of INIT.
pub mod init {
    /// Reads may come before those before them are answered.
    pub const ASYNC_READ: u64 = 1 << 0;
    /// Writes may be longer than a page.
    pub const BIG_WRITES: u64 = 1 << 5;
    /// The server applies the umask.
    pub const DONT_MASK: u64 = 1 << 6;
    /// Several lookups and listings of one directory at once.
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    /// `max_pages` counts.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// `flags2` counts.
    pub const INIT_EXT: u64 = 1 << 30;
    /// Files can be given through.
    pub const PASSTHROUGH: u64 = 1 << 37;
    /// What was under way can be sent again.
    pub const HAS_RESEND: u64 = 1 << 39;
}

/// Bits of the answer to OPEN.
pub mod open {
    /// `read` and `write` come to the server.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Pages that the kernel has stay.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// Nothing is to be done when a descriptor is closed.
    pub const NOFLUSH: u32 = 1 << 5;
    /// The kernel reads, writes and maps the file behind.
    pub const PASSTHROUGH: u32 = 1 << 7;
}

/// Bits that say what SETATTR changes.
pub mod set {
    /// Mode.
    pub const MODE: u32 = 1 << 0;
    /// Owner.
    pub const UID: u32 = 1 << 1;
    /// Group.
    pub const GID: u32 = 1 << 2;
    /// Size.
    pub const SIZE: u32 = 1 << 3;
    /// Time of modification.
    pub const MTIME: u32 = 1 << 5;
    /// An open file is named.
    pub const FH: u32 = 1 << 6;
    /// Time of modification: now.
    pub const MTIME_NOW: u32 = 1 << 8;
}

/// What the server tells unasked.
pub mod notify {
    /// Pages of a node are not what they were.
    pub const INVAL_INODE: i32 = 2;
    /// Send again what was not answered.
    pub const RESEND: i32 = 7;
}

/// In the number of a request: it was sent before.
pub const RESENT: u64 = 1 << 63;
/// The user of what the kernel does by itself.
pub const NOBODY: u32 = u32::MAX;
/// GETATTR names an open file.
pub const GETATTR_FH: u32 = 1 << 0;
/// A WRITE brings back what was written through a mapping.
pub const WRITE_CACHE: u32 = 1 << 0;
