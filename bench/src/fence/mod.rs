//! What a process can still read of an object's pages when its host is cut off, stopped or dead,
//! for `fence.stale_ms`.

pub mod strike;
pub mod trial;
