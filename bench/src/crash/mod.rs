//! Killing clients, hosts and keepers at random instants, and looking at what is left.
//!
//! Who knows what should be there is a *ledger*: a plain shared file, outside of Commonhold, in which every
//! writer notes what it is about to do and what it has done. A killed process's notes survive it.

pub mod environment;
pub mod lane_writer;
pub mod ledger;
pub mod page_writer;
pub mod pattern;
pub mod plan;
pub mod tally;
pub mod trials;
pub mod verify;
