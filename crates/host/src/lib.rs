//! The host: it caches frames, serves faults, keeps names, and stores objects.
pub mod again;
pub mod arriving;
pub mod asker;
pub mod budget;
pub mod cache;
mod clock;
pub mod cluster;
pub mod faults;
mod formats;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
#[cfg(test)]
mod golden;
pub mod handovers;
pub mod live;
pub mod log;
pub mod machine;
pub mod newer;
pub mod on_way;
pub mod pagers;
pub mod patience;
pub mod refuge;
pub mod seeing;
pub mod server;
pub mod set_aside;
pub mod shared;
pub mod spill;
pub mod types;
pub mod waiting;
pub mod watches;
pub mod workers;

pub use cluster::link::Proof;
pub use cluster::registry::place::{EtcdPlace, Place as RegistryPlace, TlsFiles};
pub use formats::check_directory;
pub use seeing::endpoint::MetricsOptions;
pub use server::start::{ClusterOptions, ServeOptions, serve};
