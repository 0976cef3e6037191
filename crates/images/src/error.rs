//! What can be wrong.

use std::path::PathBuf;

/// Why something was not done. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The registry of ranges cannot be used.
    #[error("the registry of address ranges {path}: {why}")]
    Registry {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The range is another's.
    #[error(
        "{wanted} wants {first:#x} to {end:#x}, and {holder} has a part of it: choose another range, or remove that one"
    )]
    Taken {
        /// Who asked.
        wanted: String,
        /// Of what.
        first: u64,
        /// Up to what.
        end: u64,
        /// Who has it.
        holder: String,
    },
    /// There is no room.
    #[error("{wanted} wants {bytes} bytes of addresses, and the {region} region has no run so long")]
    Full {
        /// Who asked.
        wanted: String,
        /// For how many.
        bytes: u64,
        /// Where.
        region: &'static str,
    },
    /// What was asked for makes no sense.
    #[error("{0}")]
    Invalid(String),
}

/// What may fail here.
pub type Result<T> = std::result::Result<T, Error>;
