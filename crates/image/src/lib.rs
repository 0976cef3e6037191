//! What an image says of itself: its first page, its table of roots, and how versions are named (docs/IMAGES.md).
//!
//! Written by the store of images, and read by whoever includes one, also in programs without a C library: so it is flat,
//! is read where it lies, needs no memory, and every number in it is checked.
#![no_std]
#![forbid(unsafe_code)]

mod bytes;
mod encode;
mod header;
mod id;
mod roots;
mod version;

pub use encode::{Fields, encode, encode_with_roots, room_for_roots};
pub use header::{
    ARCHITECTURE_HERE, FORMAT, Fault, GROUP_AT, GROUP_BYTES, Header, Import, Kind, MAGIC, MOST_IMPORTS,
    MOST_SEGMENTS, PAGE_BYTES, Segment,
};
pub use id::Id;
pub use roots::{ROOT_BYTES, Root, RootKind, Roots};
pub use version::{MOST_NAME_BYTES, Version, Wanted, is_name};

/// For [`Segment::protection`]: may be read.
pub const READ: u32 = 1;
/// May be written: each process has its own copy.
pub const WRITE: u32 = 2;
/// May be run.
pub const EXECUTE: u32 = 4;
