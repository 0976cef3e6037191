//! What can go wrong, as a closed list: each kind has an errno for C, each error a sentence that says what was
//! asked, what the limit was and what to do.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The kinds of failure a caller may want to tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorKind {
    /// An argument is misaligned, empty, out of range, or a name is malformed (`EINVAL`).
    Invalid,
    /// No object, directory, pager or mapping of that name or address (`ENOENT`).
    NotFound,
    /// The name is taken (`EEXIST`).
    Exists,
    /// The mode bits, or the way the object was opened, do not allow it (`EACCES`).
    Permission,
    /// Memory or disk is used up; nothing was changed, and the call may be tried again (`ENOSPC`).
    NoSpace,
    /// A per-user quota is used up (`EDQUOT`).
    Quota,
    /// A stated limit on clients, mappings, locks or open objects is reached (`EMFILE`).
    TooMany,
    /// Somebody is using it (`EBUSY`).
    Busy,
    /// The object was not created for this, or this machine cannot do it (`EOPNOTSUPP`).
    Unsupported,
    /// The object has another type (`EPROTOTYPE`).
    Mismatch,
    /// The stored bytes, or the backing file, are no longer there (`ENODEV`).
    Lost,
    /// The pager failed, hung or answered wrongly (`EIO`).
    Pager,
    /// Reading or writing storage failed (`EIO`).
    Io,
    /// A checksum or structure is wrong (`EBADMSG`).
    Corrupt,
    /// A deadline passed (`ETIMEDOUT`).
    TimedOut,
    /// No host answers (`ECONNREFUSED`).
    Disconnected,
    /// Host and client, or host and state directory, are of different versions (`EPROTO`).
    Version,
    /// A message that no correct peer sends (`EPROTO`).
    Protocol,
    /// Who had the lock died, and nobody has said since that what it guards is whole (`EOWNERDEAD`).
    OwnerDied,
    /// The thread would wait for itself (`EDEADLK`).
    Deadlock,
    /// The thread does not have what it lets go (`EPERM`).
    NotOwner,
    /// Those who could have completed the barrier ended, or somebody gave it up (`ECANCELED`).
    Broken,
}

impl ErrorKind {
    /// The errno a C program sees. The numbers are Linux's, equal on x86-64 and aarch64.
    pub fn errno(self) -> i32 {
        match self {
            ErrorKind::Invalid => 22,
            ErrorKind::NotFound => 2,
            ErrorKind::Exists => 17,
            ErrorKind::Permission => 13,
            ErrorKind::NoSpace => 28,
            ErrorKind::Quota => 122,
            ErrorKind::TooMany => 24,
            ErrorKind::Busy => 16,
            ErrorKind::Unsupported => 95,
            ErrorKind::Mismatch => 91,
            ErrorKind::Lost => 19,
            ErrorKind::Pager | ErrorKind::Io => 5,
            ErrorKind::Corrupt => 74,
            ErrorKind::TimedOut => 110,
            ErrorKind::Disconnected => 111,
            ErrorKind::Version | ErrorKind::Protocol => 71,
            ErrorKind::OwnerDied => 130,
            ErrorKind::Deadlock => 35,
            ErrorKind::NotOwner => 1,
            ErrorKind::Broken => 125,
        }
    }
}

/// A failure: its kind, and one line that says what was asked, what the limit was, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// What a program decides by.
    pub kind: ErrorKind,
    /// What a person reads.
    pub message: String,
}

impl Error {
    /// Makes an error of `kind` that says `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into() }
    }

    /// An [`ErrorKind::Invalid`] error.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Says of an operating system error what was being done.
    pub fn io(doing: impl fmt::Display, error: &std::io::Error) -> Self {
        let kind = match error.raw_os_error() {
            Some(28) => ErrorKind::NoSpace,
            Some(122) => ErrorKind::Quota,
            Some(12) => ErrorKind::NoSpace,
            Some(1 | 13) => ErrorKind::Permission,
            Some(23 | 24) => ErrorKind::TooMany,
            Some(110) => ErrorKind::TimedOut,
            Some(32 | 104 | 107 | 111) => ErrorKind::Disconnected,
            _ => ErrorKind::Io,
        };
        let way_out = match error.raw_os_error() {
            Some(23) => ": the machine has no more (sysctl fs.file-max)",
            Some(24) => ": close some, or raise the limit (ulimit -n)",
            _ => "",
        };
        Self::new(kind, format!("{doing}: {error}{way_out}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// What every fallible call here returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Adds what was being done to an operating system error.
pub trait Doing<T> {
    /// Turns the error into ours, saying what was being done.
    fn doing(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|e| Error::io(what, &e.into()))
    }
}
