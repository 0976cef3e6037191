//! How a call ends in C: a value or code, errno, and the whole story.

use super::null;
use crate::{Error, ErrorKind, Result};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Runs a call; a failure or panic is noted, and `failed` returned.
pub(super) fn guard<T>(failed: T, run: impl FnOnce() -> Result<T>) -> T {
    let _uncancelled = Uncancelled::begin();
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        Err(Error::new(
            ErrorKind::Io,
            "the library panicked: this is a bug of Commonhold; see standard error",
        ))
    });
    result.unwrap_or_else(|error| {
        note(&error);
        failed
    })
}

/// While it lives, `pthread_cancel` waits: a thread that ended in the middle of a call would leave locks behind, and its
/// end would unwind through code that cannot be unwound so.
struct Uncancelled {
    before: c_int,
}

// SAFETY: as the C library declares it.
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

impl Uncancelled {
    fn begin() -> Uncancelled {
        const DISABLE: c_int = 1;
        let mut before = 0;
        // SAFETY: changes this thread's own state, and writes the former one to a valid place.
        unsafe { pthread_setcancelstate(DISABLE, &mut before) };
        Uncancelled { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: as above; the state is the one that was there before.
        unsafe { pthread_setcancelstate(self.before, &mut 0) };
    }
}

/// As [`guard`], for calls that return 0 or -1.
pub(super) fn guard_code(run: impl FnOnce() -> Result<()>) -> c_int {
    guard(-1, || run().map(|()| 0))
}

/// Notes an error for `ch_last_error`, and gives its number. `errno` stays.
pub(super) fn noted_errno(error: &Error) -> c_int {
    // SAFETY: the address is this thread's own errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    note(error);
    // SAFETY: as above.
    unsafe { *errno = before };
    error.kind.errno()
}

fn note(error: &Error) {
    let text: Vec<u8> = error.message.bytes().filter(|byte| *byte != 0).collect();
    let text = CString::new(text).ok();
    // A thread that is ending has no last error any more.
    let _ = LAST.try_with(|last| last.replace(text));
    // SAFETY: the address is this thread's own errno.
    unsafe { *libc::__errno_location() = error.kind.errno() };
}

/// The whole story of this thread's last failure.
#[unsafe(no_mangle)]
pub extern "C" fn ch_last_error() -> *const c_char {
    let text = LAST.try_with(|last| last.borrow().as_ref().map(|text| text.as_ptr()));
    text.ok().flatten().unwrap_or(c"".as_ptr())
}

/// A C string that must be there.
///
/// # Safety
/// `text` is null or a C string that lives for `'a`.
pub(super) unsafe fn text<'a>(what: &str, text: *const c_char) -> Result<&'a str> {
    // SAFETY: the caller's promise.
    unsafe { optional_text(what, text) }?.ok_or_else(|| null(what))
}

/// A C string that may be left out.
///
/// # Safety
/// As [`text`].
pub(super) unsafe fn optional_text<'a>(what: &str, text: *const c_char) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| Error::invalid(format!("{what} is not UTF-8")))
}
