//! Snapshots of real processes, of recorded trees of procfs, and of what goes wrong: as root and as an ordinary user.

mod hanging;
mod hidden;
#[path = "../../../../tests/left_out.rs"]
mod left_out;
#[path = "../../../../tests/limit.rs"]
mod limit;
mod live;
mod recorded;
mod root;
mod support;
