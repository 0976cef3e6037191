//! The host: it caches frames, serves faults, keeps names, and stores objects.
pub mod budget;
pub mod cache;
pub mod faults;
pub mod live;
pub mod log;
pub mod machine;
pub mod pagers;
pub mod server;
pub mod spill;
pub mod workers;

pub use server::start::{ServeOptions, serve};
