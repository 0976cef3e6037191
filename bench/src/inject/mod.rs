//! Faults injected into hosts, keepers and clients under load, for `inject.failures` (`docs/FAULTS.md`).
//!
//! A *life* is a host, or a cluster of them, with clients. It has many *rounds*: faults while clients work, then none; then
//! every client must go on, and what is in memory and what is stored is judged by what the clients noted.

pub mod campaign;
mod guarded;
mod injector;
pub mod load;
mod local;
pub mod row;
mod shared;
mod tally;
