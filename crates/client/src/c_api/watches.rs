//! Watches of addresses.

use super::null;
use super::outcome::{guard, guard_code};
use crate::watch::Woken;
use crate::{Error, ErrorKind, Result, Watch, classical};
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// `ch_watcher`: what waits for changes.
#[allow(non_camel_case_types)] // the name of the header
pub struct ch_watcher(Watch);

/// # Safety
/// `watcher` is null, or was not closed.
unsafe fn watch_of<'a>(watcher: *const ch_watcher) -> Result<&'a Watch> {
    // SAFETY: the caller's promise.
    unsafe { watcher.as_ref() }.map(|watcher| &watcher.0).ok_or_else(|| null("watcher"))
}

/// Watches the bytes at these addresses.
#[unsafe(no_mangle)]
pub extern "C" fn ch_watch(address: *mut c_void, length: usize) -> *mut ch_watcher {
    guard(null_mut(), || Ok(Box::into_raw(Box::new(ch_watcher(classical::watch(address.cast(), length)?)))))
}

/// A descriptor that is readable when the watch is woken.
///
/// # Safety
/// `watcher` is null, or was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_watch_fd(watcher: *const ch_watcher) -> c_int {
    // SAFETY: the caller's promise.
    guard(-1, || Ok(unsafe { watch_of(watcher) }?.as_fd().as_raw_fd()))
}

/// Waits until it is woken: 1, or 0 when the time is over. -1 with EINTR when a signal handler has run.
///
/// # Safety
/// `watcher` is null, or was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_watch_wait(watcher: *const ch_watcher, timeout_ms: c_int) -> c_int {
    let time = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    let deadline = time.map(|time| Instant::now() + time);
    let mut interrupted = false;
    let code = guard(-1, || {
        // SAFETY: the caller's promise.
        match unsafe { watch_of(watcher) }?.wait_once(deadline)? {
            Woken::Yes => Ok(1),
            Woken::No => Ok(0),
            Woken::Interrupted => {
                interrupted = true;
                Err(Error::new(ErrorKind::Io, "a signal came: nothing has happened, wait again"))
            }
        }
    });
    if interrupted {
        // SAFETY: the address is this thread's own errno.
        unsafe { *libc::__errno_location() = libc::EINTR };
    }
    code
}

/// Ends a watch.
///
/// # Safety
/// `watcher` is null, or was not closed and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_watch_close(watcher: *mut ch_watcher) -> c_int {
    guard_code(|| {
        if watcher.is_null() {
            return Err(null("watcher"));
        }
        // SAFETY: it comes from `ch_watch`, and the caller gives it up.
        drop(unsafe { Box::from_raw(watcher) });
        Ok(())
    })
}

/// Wakes all who watch any of the bytes at these addresses.
#[unsafe(no_mangle)]
pub extern "C" fn ch_notify(address: *mut c_void, length: usize) -> c_int {
    guard_code(|| classical::notify(address.cast(), length))
}
