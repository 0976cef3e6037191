//! Wired objects: memory in which no fault ever happens (Bernadat & Black, "Real Memory Mach").
//!
//! An *arena* is an object with shared page tables, of huge pages that are all there. A wired object is a *place* in one.
//! Whoever maps an arena maps all of it, once, and has every object in it: so an arena is for objects that the same users
//! may use. `docs/REAL-MEMORY.md`.
//!
//! | module | what |
//! |---|---|
//! | `arenas` | which object lies where, as a value |
//! | `guards` | who in a process uses an object that may move, in one word |
//! | `revoking` | who holds such objects, and what waits until nobody does, as a value |
//! | `bytes` | zeroing and copying, past what a hostile writer does to the memory |

mod arenas;
mod bytes;
mod guards;
mod revoking;

pub use arenas::{Arenas, Moving, Resized};
pub use bytes::{copy, read, write, zero};
pub use guards::Guards;
pub use revoking::{Action, DEADLINE_MS, Event, Revocations};

/// What the description of an object says that is an arena.
pub const DESCRIPTION: &str = "arena";
/// What the name of one begins with that the host made, and removes when it is empty.
pub const NAME: &str = ".arena-";

/// What the memory of an arena is called (memfd), so that a mapping of it can be told.
pub const ARENA_MEMORY: &str = "commonhold-arena";
/// What the memory of a wired object in ordinary pages is called.
pub const OWN_MEMORY: &str = "commonhold-wired";
