//! Waiting in the thread that calls, for what would be another's if another thread waited: a lock
//! belongs to its thread, and a message to who received it. In the main thread a wait is made of
//! short ones, between which Python looks for signals. Nothing has happened when one of them runs
//! out of time, so a signal handler that raises loses nothing.

use crate::errors::OrRaise;
use crate::interrupts::{SIGNAL_CHECK, is_main_thread};
use commonhold::{Error, ErrorKind, Result};
use pyo3::prelude::*;
use std::time::{Duration, Instant};

/// When so many seconds from now are over; `None`: never, as for a time that is too long for a
/// clock.
pub(crate) fn deadline(py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Instant>> {
    let now = Instant::now();
    if timeout.is_some_and(|seconds| seconds.is_nan() || seconds < 0.0) {
        return Err(Error::invalid("the timeout is no time: give seconds, or None")).or_raise(py);
    }
    let time = timeout.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    Ok(time.and_then(|time| now.checked_add(time)))
}

/// Makes a call again and again until it does not run out of time, its own is over, or a signal
/// handler raises.
pub(crate) fn patiently<T: Send>(
    py: Python<'_>,
    timeout: Option<f64>,
    call: impl Fn(Option<Instant>) -> Result<T> + Sync,
) -> PyResult<T> {
    let end = deadline(py, timeout)?;
    until(py, end, SIGNAL_CHECK, call)?.or_raise(py)
}

/// The same, until then. Each of the short waits is twice as long as the one before, up to
/// `longest`. What came of it may be that the time is over; what is raised is a signal's.
pub(crate) fn until<T: Send>(
    py: Python<'_>,
    end: Option<Instant>,
    longest: Duration,
    call: impl Fn(Option<Instant>) -> Result<T> + Sync,
) -> PyResult<Result<T>> {
    if !is_main_thread() {
        return Ok(py.detach(|| call(end)));
    }
    let mut length = SIGNAL_CHECK;
    loop {
        let soon = Instant::now() + length;
        let until = end.map_or(soon, |end| end.min(soon));
        match py.detach(|| call(Some(until))) {
            Err(error) if error.kind == ErrorKind::TimedOut && Some(until) != end => py.check_signals()?,
            outcome => return Ok(outcome),
        }
        length = longest.min(2 * length);
    }
}

/// Whether it came to be in time. What else went wrong is raised.
pub(crate) fn in_time(py: Python<'_>, outcome: Result<()>) -> PyResult<bool> {
    match outcome {
        Err(error) if error.kind == ErrorKind::TimedOut => Ok(false),
        outcome => outcome.or_raise(py).map(|()| true),
    }
}
