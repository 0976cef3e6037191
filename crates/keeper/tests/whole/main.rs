//! The keeper and its vault with real processes: hosts and keepers are started, killed, stopped and replaced, and
//! nothing that was put may be lost.

mod deadlines;
mod deaths;
mod driver;
mod lifecycle;
mod program;
mod things;
