//! Clusters under load whose hosts are killed, stopped and cut off, for `crash.cluster_failures`.
//!
//! A *life* is a cluster with clients on every host, which read, write and sync a few words of one shared object and note
//! all of it (crate `linear`). A *trial* strikes one host, waits until every client has used every word again, and checks
//! all that was noted so far.

pub mod life;
pub mod plan;
pub mod tally;
