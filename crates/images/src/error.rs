//! What can be wrong.

use commonhold_image::Fault;
use commonhold_object::ErrorKind;
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
    /// There is no such image, or no version of it that would do.
    #[error("{0}")]
    Missing(String),
    /// The file is no image that can be used here.
    #[error("{path}: {fault}")]
    Unfit {
        /// Which.
        path: PathBuf,
        /// Why.
        fault: Fault,
    },
    /// Its bytes are not those that were published.
    #[error("{path} is not what was published under this name: remove it, and publish it again")]
    Damaged {
        /// Which.
        path: PathBuf,
    },
    /// Others than root and who runs this could have written it.
    #[error("{path} is not trusted: {why}")]
    Untrusted {
        /// Which.
        path: PathBuf,
        /// Whose it is, or who may write it.
        why: String,
    },
    /// The version is there, with other content.
    #[error(
        "{name} exists with other content, and what was published is not changed: give the new one a later version"
    )]
    Exists {
        /// Name and version.
        name: String,
    },
    /// A minor version takes something away that its major version promised.
    #[error("{newer} breaks what uses {older}: {why}; publish it as major version {next}")]
    Incompatible {
        /// What was to be published.
        newer: String,
        /// What it would stand for.
        older: String,
        /// What is missing or other.
        why: String,
        /// The major version that it can have.
        next: u32,
    },
    /// It cannot be removed now.
    #[error("{what} stays: {by}")]
    InUse {
        /// What.
        what: String,
        /// Who uses it.
        by: String,
    },
    /// Something else is at its addresses in this process.
    #[error("{image} cannot be at {first:#x} to {end:#x} in this process: {why}")]
    NoPlace {
        /// Which.
        image: String,
        /// From where.
        first: u64,
        /// To where.
        end: u64,
        /// What is there, or which limit was reached.
        why: String,
    },
    /// It is not of the type that was asked for.
    #[error("{0}")]
    Mismatch(String),
    /// A pointer leads to where no reader of the image could follow.
    #[error("{path}: {why}")]
    LeadsOut {
        /// The way to it from a root.
        path: String,
        /// Where it leads.
        why: String,
    },
    /// What was asked for makes no sense.
    #[error("{0}")]
    Invalid(String),
}

/// What may fail here.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// What a program decides by.
    pub fn kind(&self) -> ErrorKind {
        use std::io::ErrorKind as Io;
        match self {
            Error::File { source, .. } => match source.kind() {
                Io::NotFound => ErrorKind::NotFound,
                Io::PermissionDenied | Io::ReadOnlyFilesystem => ErrorKind::Permission,
                Io::StorageFull | Io::QuotaExceeded => ErrorKind::NoSpace,
                _ => ErrorKind::Io,
            },
            Error::Registry { .. } => ErrorKind::Io,
            Error::Taken { .. } | Error::Exists { .. } => ErrorKind::Exists,
            Error::Full { .. } | Error::NoPlace { .. } => ErrorKind::NoSpace,
            Error::Missing(_) => ErrorKind::NotFound,
            Error::Unfit { fault: Fault::Format(_), .. } => ErrorKind::Version,
            Error::Unfit { fault: Fault::Architecture(_), .. } => ErrorKind::Unsupported,
            Error::Unfit { .. } | Error::Damaged { .. } => ErrorKind::Corrupt,
            Error::Untrusted { .. } => ErrorKind::Permission,
            Error::Incompatible { .. } | Error::Mismatch(_) => ErrorKind::Mismatch,
            Error::InUse { .. } => ErrorKind::Busy,
            Error::LeadsOut { .. } | Error::Invalid(_) => ErrorKind::Invalid,
        }
    }

    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::File { path, source }
    }

    pub(crate) fn unfit(path: &Path) -> impl FnOnce(Fault) -> Error {
        let path = path.to_owned();
        move |fault| Error::Unfit { path, fault }
    }

    pub(crate) fn untrusted(path: &Path, why: impl Into<String>) -> Error {
        Error::Untrusted { path: path.to_owned(), why: why.into() }
    }
}

impl From<Error> for commonhold_object::Error {
    fn from(error: Error) -> Self {
        commonhold_object::Error::new(error.kind(), error.to_string())
    }
}
