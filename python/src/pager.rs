//! A pager written in Python.
//!
//! A thread of this crate talks to the host and calls Python for each question. The thread that called
//! `serve_pager` only waits for it, so that Ctrl-C ends the pager whatever the host does.

use crate::errors::{OrRaise, exception};
use crate::exports::View;
use crate::host::Host;
use commonhold::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// How often Python looks for signals while it serves.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);

/// The interpreter is about to end: pagers call it no more.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The two calls.
struct Calls {
    page_in: Py<PyAny>,
    page_out: Option<Py<PyAny>>,
    stopped: Arc<AtomicBool>,
}

impl Calls {
    /// Runs Python, unless the pager or the interpreter is at its end.
    fn with_python<T>(&self, act: impl FnOnce(Python<'_>) -> PyResult<T>) -> io::Result<T> {
        let ended = || io::Error::other("the pager has ended");
        if self.stopped.load(Ordering::SeqCst) || ENDING.load(Ordering::SeqCst) {
            return Err(ended());
        }
        let done = Python::try_attach(|py| act(py).map_err(|error| io::Error::other(error.to_string())));
        done.unwrap_or_else(|| Err(ended()))
    }
}

impl commonhold::Pager for Calls {
    fn page_in(&mut self, object: &str, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let filled = self.with_python(|py| {
            let data = self.page_in.bind(py).call1((object, offset, buffer.len()))?;
            let view = View::contiguous(&data)?;
            if view.nbytes() == buffer.len() {
                // SAFETY: the view shows that many readable bytes, which cannot overlap a buffer of our own.
                unsafe { std::ptr::copy_nonoverlapping(view.start(), buffer.as_mut_ptr(), buffer.len()) };
            }
            Ok(view.nbytes())
        })?;
        if filled == buffer.len() {
            return Ok(());
        }
        Err(io::Error::other(format!("it gave {filled} bytes, and {} were asked for", buffer.len())))
    }

    fn page_out(&mut self, object: &str, offset: u64, data: &[u8]) -> io::Result<()> {
        let Some(page_out) = &self.page_out else {
            return Err(io::Error::other("this pager is read-only"));
        };
        self.with_python(|py| page_out.bind(py).call1((object, offset, PyBytes::new(py, data))).map(drop))
    }
}

/// Serves as the pager of that name until the host closes the connection, or a signal handler raises.
#[pyfunction]
#[pyo3(signature = (host, name, page_in, page_out))]
pub(crate) fn serve_pager(
    py: Python<'_>,
    host: &Host,
    name: String,
    page_in: Py<PyAny>,
    page_out: Option<Py<PyAny>>,
) -> PyResult<()> {
    let stopped = Arc::new(AtomicBool::new(false));
    let calls = Calls { page_in, page_out, stopped: stopped.clone() };
    let host = host.host.clone();
    let (ended, mut end) = mpsc::channel();
    let serve = move || {
        // Nobody waits for the result any more after a signal.
        let _ = ended.send(host.serve_pager(&name, calls));
    };
    let thread = std::thread::Builder::new().name("commonhold-pager".to_owned());
    thread.spawn(serve).map_err(|e| exception(py, &Error::io("starting the pager's thread", &e)))?;
    loop {
        let told;
        (told, end) = py.detach(move || (end.recv_timeout(SIGNAL_CHECK), end));
        if let Ok(result) = told {
            return result.or_raise(py);
        }
        if told == Err(RecvTimeoutError::Disconnected) {
            return Err(exception(py, &Error::new(ErrorKind::Pager, "the pager's thread panicked")));
        }
        py.check_signals().inspect_err(|_| stopped.store(true, Ordering::SeqCst))?;
    }
}

/// Pagers call Python no more: the interpreter ends. Registered with `atexit`.
#[pyfunction]
pub(crate) fn stop_pagers() {
    ENDING.store(true, Ordering::SeqCst);
}
