//! Read-only images at fixed addresses (docs/IMAGES.md): code and data that have one address in every process, so that
//! references are resolved once, when they are made.
//!
//! Govindan, *Read-only Sharing in Operating Systems* (1989), section 6.6: the shared segment region of DASH, divided into a
//! homogeneous and a heterogeneous part.
//!
//! * [`ranges`]: the registry of address ranges.
//! * [`store`]: immutable images, and their versions.
//! * [`mod@format`]: what an image says of itself.
//! * [`mod@include`]: images become part of a process.
//! * [`data`]: structures with ordinary pointers, built as images.
//! * [`place`]: whether what is at a path is root's.
//! * [`verity`]: files that the file system itself keeps as they are.

pub mod data;
mod error;
#[cfg(test)]
mod golden;
pub mod include;
pub mod place;
pub mod ranges;
pub mod store;
pub mod verity;

pub use commonhold_image as format;
pub use error::{Error, Result};
