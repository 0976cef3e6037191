//! What the kernel is told of an error.

use commonhold::{Error, ErrorKind};
use rustix::io::Errno;
use std::cell::RefCell;
use std::fmt::Display;

thread_local! {
    /// Why what this thread does fails with EIO.
    static WHY: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// An error number that the caller gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure(pub Errno);

impl Failure {
    /// EIO, which says nothing to the caller: the reason is for the log.
    pub fn io(why: impl Display) -> Failure {
        WHY.set(Some(why.to_string()));
        Failure(Errno::IO)
    }

    /// Why something failed with EIO that this thread has done since this was asked last.
    pub fn why() -> Option<String> {
        WHY.take()
    }
}

/// What an operation gives.
pub type Outcome<T> = Result<T, Failure>;

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure(errno)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        match Errno::from_io_error(&error) {
            None | Some(Errno::IO) => Failure::io(error),
            Some(errno) => Failure(errno),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error.kind {
            ErrorKind::Disconnected => Failure(Errno::HOSTDOWN),
            ErrorKind::Io | ErrorKind::Pager => Failure::io(error),
            kind => Failure(Errno::from_raw_os_error(kind.errno())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_says_nothing_the_reason_is_told_once() {
        let is = |failure: Failure, errno, why: Option<&str>| {
            assert_eq!(failure, Failure(errno));
            assert_eq!(Failure::why().as_deref(), why);
            assert_eq!(Failure::why(), None);
        };
        is(Error::new(ErrorKind::Pager, "pager p hangs").into(), Errno::IO, Some("pager p hangs"));
        is(std::io::Error::other("a short copy").into(), Errno::IO, Some("a short copy"));
        is(Error::new(ErrorKind::NotFound, "there is no /a").into(), Errno::NOENT, None);
        is(std::io::Error::from(Errno::FAULT).into(), Errno::FAULT, None);
    }
}
