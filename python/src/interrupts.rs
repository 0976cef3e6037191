//! Ctrl-C ends a call that waits for the host. Python runs its signal handlers between two of its
//! own instructions, in the main thread, and a call into this crate is one instruction. So the main
//! thread makes no such call itself: a thread of this crate makes it, and the main thread waits for
//! the outcome and lets Python look for signals. If a handler raises, the main thread goes on with
//! that. The call goes on too, and what it gives is dropped: an object is closed, a mapping
//! unmapped.

use crate::errors::OrRaise;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::ffi;
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often Python looks for signals while a call waits.
pub(crate) const SIGNAL_CHECK: Duration = Duration::from_millis(50);

type Job = Box<dyn FnOnce() + Send>;

/// A thread that waits for a call to make, and the process in which it is: a fork child has none of
/// the parent's threads.
static IDLE: Mutex<Option<(u32, Sender<Job>)>> = Mutex::new(None);

fn idle() -> std::sync::MutexGuard<'static, Option<(u32, Sender<Job>)>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Signals are heard by no other thread.
pub(crate) fn is_main_thread() -> bool {
    // SAFETY: neither call can fail, nor touches memory.
    unsafe { libc::gettid() == libc::getpid() }
}

/// A thread for calls that nobody else uses now.
fn helper() -> std::io::Result<Sender<Job>> {
    let idle = idle().take();
    if let Some((_, sender)) = idle.filter(|(process, _)| *process == std::process::id()) {
        return Ok(sender);
    }
    let (sender, jobs) = channel::<Job>();
    let thread = std::thread::Builder::new().name("commonhold-calls".to_owned());
    thread.spawn(move || jobs.into_iter().for_each(|job| job()))?;
    Ok(sender)
}

/// Makes a call while other Python threads run; ends when a signal handler raises.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    call: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    if !is_main_thread() {
        return Ok(py.detach(call));
    }
    let (tell, told) = channel();
    let job = move || drop(tell.send(catch_unwind(AssertUnwindSafe(call))));
    let starting = |error| commonhold::Error::io("starting a thread for calls", &error);
    let helper = helper().map_err(starting).or_raise(py)?;
    let sent = helper.send(Box::new(job));
    debug_assert!(sent.is_ok(), "it ends when nobody can send");
    let outcome = wait(py, told)?;
    *idle() = Some((std::process::id(), helper));
    Ok(outcome.unwrap_or_else(|panic| resume_unwind(panic)))
}

fn wait<T: Send>(py: Python<'_>, mut told: Receiver<T>) -> PyResult<T> {
    loop {
        let heard;
        (heard, told) = py.detach(move || (told.recv_timeout(SIGNAL_CHECK), told));
        match heard {
            Ok(outcome) => return Ok(outcome),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                let what = commonhold::Error::new(commonhold::ErrorKind::Io, "the thread for calls ended");
                return Err(what).or_raise(py);
            }
        }
    }
}

/// The same where nothing can be raised: Python hears of it with its next instruction.
pub(crate) fn run_and_raise_later<T: Send + 'static>(
    py: Python<'_>,
    call: impl FnOnce() -> T + Send + 'static,
) {
    match run(py, call) {
        Ok(_) => {}
        // SAFETY: called with the interpreter.
        Err(error) if error.is_instance_of::<PyKeyboardInterrupt>(py) => unsafe { ffi::PyErr_SetInterrupt() },
        Err(error) => error.write_unraisable(py, None),
    }
}
