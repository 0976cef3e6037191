//! Copies of shared libraries at fixed addresses, relocated once for all programs (docs/REBASE.md).
//!
//! Govindan, *Read-only Sharing in Operating Systems* (1989), sections 4.1 and 4.2: with uniform addresses references are
//! resolved before a program runs. Here that is done to the libraries that a machine has, without touching them.
//!
//! * [`elf`]: one program or library, read.
//! * [`bind`]: which definition a reference finds, as glibc's loader decides it; and what the loader itself says.
//! * [`plan`]: what of that holds in all programs that are set.
//! * [`copy`]: the file, moved and relocated.
//! * [`store`]: where copies and records are kept.
//! * [`build`]: all of it, for the programs that are set.

mod beside;
pub mod bind;
pub mod build;
pub mod check;
pub mod copy;
pub mod core_dump;
pub mod elf;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
#[cfg(test)]
mod golden;
mod guard;
mod label;
mod library;
mod origin;
pub mod plan;
mod record;
pub mod state;
pub mod store;
mod trial;

pub use error::{Error, Result};
pub use origin::Origin;

/// Whose addresses: the machine's or a user's.
pub mod images {
    pub use commonhold_images::ranges::Owner;
}
