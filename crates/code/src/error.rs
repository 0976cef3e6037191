//! What can be wrong.

use std::path::{Path, PathBuf};

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
    /// A library cannot be a code image.
    #[error("{path} cannot be a code image: {why}")]
    Unfit {
        /// Which.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// The library is damaged or of another kind.
    #[error(transparent)]
    Library(#[from] commonhold_rebase::Error),
    /// The store or the registry of addresses.
    #[error(transparent)]
    Images(#[from] commonhold_images::Error),
    /// It cannot stand for the versions that programs are linked to.
    #[error("{name}@{version} cannot follow {older}: {why}; keep it, or make it the next major version")]
    Breaks {
        /// Its name.
        name: String,
        /// Its version.
        version: String,
        /// Which version promised more.
        older: String,
        /// What it lacks.
        why: String,
    },
    /// What was asked for makes no sense.
    #[error("{0}")]
    Invalid(String),
}

/// What may fail here.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::File { path, source }
    }

    pub(crate) fn unfit(path: &Path, why: impl Into<String>) -> Error {
        Error::Unfit { path: path.to_owned(), why: why.into() }
    }
}
