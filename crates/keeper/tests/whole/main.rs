//! The keeper and its vault with real processes: hosts and keepers are started, killed, stopped and replaced, and
//! nothing that was put may be lost.

mod deadlines;
mod deaths;
mod driver;
#[path = "../../../../tests/left_out.rs"]
mod left_out;
mod lifecycle;
#[path = "../../../../tests/limit.rs"]
mod limit;
mod program;
mod things;
