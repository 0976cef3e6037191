//! An attempt to reach a host that failed, and whether the next may succeed.

use crate::{Error, ErrorKind};
use std::time::Duration;

/// Why there is no connection.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) error: Error,
    /// Waiting cannot help: somebody has to do something first, and the error says what.
    pub(super) for_good: bool,
}

impl Failed {
    /// A failure that lasts.
    pub(super) fn for_good(error: Error) -> Failed {
        Failed { error, for_good: true }
    }

    /// The error, for a caller who waited so long for another host.
    pub(super) fn after(self, waited: Duration) -> Error {
        if self.for_good {
            return self.error;
        }
        let message = format!("{} (waited {} s for the next host)", self.error.message, waited.as_secs());
        Error { message, ..self.error }
    }
}

impl From<Error> for Failed {
    /// A host that does not answer may be followed by one that does; what a host refuses, it refuses again.
    fn from(error: Error) -> Failed {
        let for_good = error.kind != ErrorKind::Disconnected;
        Failed { error, for_good }
    }
}
