//! Host and keeper as processes: the one place where the command meets the crates `keeper` and `host`.

mod ask;
mod entry;
mod start;
mod watch;

pub use ask::{ask, end_keeper, why_none_serves};
pub use entry::{checked_place, keeper, metrics_options, own_program, serve};
pub use start::{StartOptions, start};
pub use watch::watch;
