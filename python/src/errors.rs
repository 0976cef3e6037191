//! Errors of the client, raised as the package's exceptions; and waiting without the interpreter lock.

use crate::interrupts;
use commonhold::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// The exception for an error. Which class belongs to a kind stands in `commonhold/_errors.py`.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let kind = kind_word(error.kind);
    let made = MAKE
        .import(py, "commonhold._errors", "make")
        .and_then(|make| make.call1((kind, error.kind.errno(), &error.message)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(problem) => problem,
    }
}

/// The kind in Python's spelling.
fn kind_word(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Invalid => "invalid",
        ErrorKind::NotFound => "not_found",
        ErrorKind::Exists => "exists",
        ErrorKind::Permission => "permission",
        ErrorKind::NoSpace => "no_space",
        ErrorKind::Quota => "quota",
        ErrorKind::TooMany => "too_many",
        ErrorKind::Busy => "busy",
        ErrorKind::Unsupported => "unsupported",
        ErrorKind::Mismatch => "mismatch",
        ErrorKind::Lost => "lost",
        ErrorKind::Pager => "pager",
        ErrorKind::Io => "io",
        ErrorKind::Corrupt => "corrupt",
        ErrorKind::TimedOut => "timed_out",
        ErrorKind::Disconnected => "disconnected",
        ErrorKind::Version => "version",
        ErrorKind::Protocol => "protocol",
        ErrorKind::OwnerDied => "owner_died",
        ErrorKind::Deadlock => "deadlock",
        ErrorKind::NotOwner => "not_owner",
        ErrorKind::Broken => "broken",
    }
}

/// Raises what went wrong.
pub(crate) trait OrRaise<T> {
    /// The value, or the exception for the error.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for commonhold::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error))
    }
}

/// Runs a call that may wait; other Python threads run meanwhile, and a signal ends the wait.
pub(crate) fn waiting<T: Send + 'static>(
    py: Python<'_>,
    call: impl FnOnce() -> commonhold::Result<T> + Send + 'static,
) -> PyResult<T> {
    interrupts::run(py, call)?.or_raise(py)
}

/// The same; a call that waits for nobody is made by the calling thread, which is four times as fast.
pub(crate) fn waiting_if<T: Send + 'static>(
    py: Python<'_>,
    waits: bool,
    call: impl FnOnce() -> commonhold::Result<T> + Send + 'static,
) -> PyResult<T> {
    if waits { waiting(py, call) } else { py.detach(call).or_raise(py) }
}

/// Drops what shows an object, or has it open: as above.
pub(crate) fn drop_if<T: Send + 'static>(waits: bool, thing: T) {
    if waits {
        drop_waiting(thing);
    } else {
        Python::attach(|py| py.detach(|| drop(thing)));
    }
}

/// Drops what talks to the host when it goes; other Python threads run meanwhile, and a signal ends the wait.
pub(crate) fn drop_waiting<T: Send + 'static>(thing: T) {
    // A class instance is only ever deallocated by a thread that holds the interpreter, also at its end.
    Python::attach(|py| interrupts::run_and_raise_later(py, || drop(thing)));
}
