//! What can be wrong with a file or a program. None of it stops a program: the original is used.

use std::path::{Path, PathBuf};

/// Why something is not rebased.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The bytes are not those of a sound file of this machine's kind.
    #[error("{path} is damaged or no program of this machine: {what}")]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// It is sound, and cannot be moved to an address that is the same everywhere.
    #[error("{path} stays as it is: {why}")]
    Unfit {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The store is not one that can be used.
    #[error("the store {path} cannot be used: {why}")]
    Store {
        /// Which.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// The addresses cannot be had.
    #[error(transparent)]
    Images(#[from] commonhold_images::Error),
    /// The program cannot be set.
    #[error("{path} cannot be set for rebasing: {why}")]
    Program {
        /// Which.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// It cannot be run both ways.
    #[error("{path} cannot be compared: {why}")]
    Compare {
        /// Which.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
}

/// What may fail here.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::File { path, source }
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Error {
        Error::Damaged { path: path.to_owned(), what: what.into() }
    }

    pub(crate) fn unfit(path: &Path, why: impl Into<String>) -> Error {
        Error::Unfit { path: path.to_owned(), why: why.into() }
    }

    pub(crate) fn store(path: &Path, why: impl Into<String>) -> Error {
        Error::Store { path: path.to_owned(), why: why.into() }
    }

    pub(crate) fn program(path: &Path, why: impl Into<String>) -> Error {
        Error::Program { path: path.to_owned(), why: why.into() }
    }

    pub(crate) fn compare(path: &Path, why: impl Into<String>) -> Error {
        Error::Compare { path: path.to_owned(), why: why.into() }
    }
}
