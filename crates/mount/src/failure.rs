//! What the kernel is told of an error.

use commonhold::{Error, ErrorKind};
use rustix::io::Errno;

/// An error number that the caller gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure(pub Errno);

/// What an operation gives.
pub type Outcome<T> = Result<T, Failure>;

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure(errno)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure(match error.kind {
            ErrorKind::Disconnected => Errno::HOSTDOWN,
            kind => Errno::from_raw_os_error(kind.errno()),
        })
    }
}
