//! Histories of reads and writes as processes record them, and whether one memory could have given them.
//!
//! A *register* is one word of shared memory. Processes note each read and write of it with the instants before and after
//! ([`record`]); no value is written twice. The history is *linearizable* if every operation can be given one instant
//! within its interval such that each read gives what was written last ([`check()`]). Operations without an end (their
//! process was killed) may or may not have happened.
//!
//! # Losses
//! A host that is lost may take with it what only it had. Which histories are allowed then is said here, and only those
//! are accepted. Let the *last run* be the latest writes of a register that all are of one host and of which no process
//! of another host read any: they may be nowhere else. (A read by another host hands the page over, and with it every
//! write before; so does a write by another host, and a sync that returned.)
//!
//! * [`OnLoss::Revert`]: at one instant of the loss, some of the last run, from its end, is taken back, if it is of a host
//!   that the loss names. What was taken back is never seen again, and nothing else is ever taken back.
//! * [`OnLoss::Error`]: at one instant of the loss the register is an error, if the last run is of such a host or such a
//!   host was about to write: touching it is SIGBUS ([`Act::Failed`]), it has no value, until a revert ([`Act::Revert`])
//!   takes back as above.
//!
//! Under forwarding hosts hand pages over without the home ([`Kept::WhatHomeHad`]): of one host that is lost the same may go
//! back, also what others read, if it wrote again itself, or if somebody wanted to: copies are dropped before. When
//! several are, or a revert is asked for, everything since the home itself wrote; and when the home is lost the
//! others drop what they have, so that what comes back is what the home had, whoever read newer versions.
//!
//! Where the home's role moves ([`Kept::Synced`]) a loss with which the home goes may take everything since the last sync that
//! returned; any other loss the last run, as above.
//!
//! Times are of CLOCK_MONOTONIC of the one machine that all processes of a history run on.

mod arena;
pub mod check;
mod configuration;
pub mod history;
pub mod load;
pub mod record;
#[cfg(test)]
mod tests;
pub mod trouble;

pub use check::{Violation, check, check_all};
pub use history::{Act, EVERYBODY, History, Kept, Loss, OnLoss, Operation};

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
