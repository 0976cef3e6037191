//! Stated limits. Each is checked where the thing is made, and the error names the limit and what was asked.

/// Longest name of an object, in bytes, with all its slashes.
pub const NAME_BYTES: usize = 1024;
/// Longest part of a name between two slashes, in bytes.
pub const NAME_PART_BYTES: usize = 255;
/// Longest description of an object, in bytes.
pub const DESCRIPTION_BYTES: usize = 4096;
/// Largest object: page numbers are 32 bits wide.
pub const OBJECT_PAGES: u64 = 1 << 32;
/// Largest object, in bytes.
pub const OBJECT_BYTES: u64 = OBJECT_PAGES * crate::PAGE_SIZE_BYTES;
/// Objects that root, or who runs the host, may have, unless the host was started with another number.
pub const OBJECTS_PER_USER: u64 = 65_536;
/// Objects that any other user may have, unless the host was started with another number; fewer where the host may
/// open few descriptors.
pub const OBJECTS_PER_ORDINARY_USER: u64 = 16_384;
/// Clients a host serves at once. One user may have half of them, root and who runs the host all.
pub const CLIENTS: u64 = 4_096;
/// Objects with shared page tables of a host; each takes two of the mappings that its process may have.
pub const SEGMENTS: u64 = 8_192;
/// The same, of a user other than root and who runs the host.
pub const SEGMENTS_PER_ORDINARY_USER: u64 = 256;
/// Mappings one client may have at once (after splits).
pub const MAPPINGS_PER_CLIENT: u64 = 16_384;
/// Objects one client may have open at once.
pub const OPEN_OBJECTS_PER_CLIENT: u64 = 4_096;
/// Page-holding locks one client may have at once on one object.
pub const LOCKS_PER_CLIENT: u64 = 16_384;
/// Watches that one client may have at once.
pub const WATCHES_PER_CLIENT: usize = 1024;
/// The same of all clients of one user other than root and who runs the host; fewer where the host may open few descriptors.
pub const WATCHES_PER_ORDINARY_USER: usize = 4096;
/// Longest message between host and client, in bytes: it must fit the default socket buffer.
pub const MESSAGE_BYTES: usize = 160 * 1024;
/// Most descriptors in one message.
pub const MESSAGE_DESCRIPTORS: usize = 8;
/// Pages whose state one `incore` message answers.
pub const INCORE_PAGES: u64 = 65_536;
/// Names one `list` message answers.
pub const LIST_ENTRIES: usize = 256;
/// Bytes one message of an external pager carries.
pub const PAGER_BYTES: u64 = 128 * 1024;
/// Longest time that an external pager may be given to answer: an hour.
pub const PAGER_DEADLINE_MS: u32 = 3_600_000;
/// Smallest memory budget of an object, in bytes.
pub const BUDGET_BYTES_MIN: u64 = 1 << 20;

/// Hottest pages of one object that a host knows, and tells at once.
pub const HOTTEST_PAGES: usize = 1024;
/// Hottest pages of each object that it tells of many.
pub const HOTTEST_PAGES_OF_MANY: usize = 32;
/// Objects whose numbers it tells at once.
pub const COUNTED_OBJECTS: usize = 32;
/// Lines of a trace that it keeps.
pub const TRACE_LINES: usize = 8192;
/// Lines of a trace that it tells at once.
pub const TRACE_LINES_AT_ONCE: usize = 512;

/// SIGBUS after so long in a fault of an object that hosts share, unless it was created with another deadline.
pub const SHARED_FAULT_DEADLINE_MS: u32 = 60_000;
/// Most further hosts that keep each version of a page.
pub const REPLICAS: u32 = 8;

/// Bytes of the addresses of local objects that one user may have of a host, other than root and who runs it.
pub const FIXED_BYTES_PER_ORDINARY_USER: u64 = 1 << 38;
/// Bytes of the addresses of a cluster's objects that one user may have, other than root.
pub const SHARED_FIXED_BYTES_PER_USER: u64 = 1 << 39;
/// The same of all objects whose home is one host.
pub const SHARED_FIXED_BYTES_PER_HOST: u64 = 1 << 42;
/// Objects with fixed addresses that a cluster has.
pub const SHARED_FIXED_OBJECTS: usize = 16_384;
