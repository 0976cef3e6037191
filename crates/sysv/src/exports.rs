//! The same for the preloaded library: what is negative is the number of an error.

use crate::{Errno, Wishes, attach, control, detach, get, map_anonymous, unmap_anonymous};
use libc::{c_int, shmid_ds};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The call's answer, or the error. A defect of ours does not end the program.
fn answer<T>(call: impl FnOnce(&Wishes) -> Result<T, Errno>) -> Result<T, isize> {
    let done = catch_unwind(AssertUnwindSafe(|| call(Wishes::of_this_process())));
    done.unwrap_or(Err(Errno::IO)).map_err(|errno| -(errno.raw_os_error() as isize))
}

/// [`get`].
#[unsafe(no_mangle)]
pub extern "C" fn commonhold_shmget(key: c_int, size: usize, flags: c_int) -> isize {
    answer(|wishes| get(wishes, key, size, flags)).map_or_else(|error| error, |id| id as isize)
}

/// [`attach`].
///
/// # Safety
/// As for [`attach`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn commonhold_shmat(id: c_int, address: usize, flags: c_int) -> isize {
    // SAFETY: the caller's promise.
    let attached = answer(|wishes| unsafe { attach(wishes, id, address, flags) });
    attached.map_or_else(|error| error, |address| address as isize)
}

/// [`detach`].
///
/// # Safety
/// As for [`detach`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn commonhold_shmdt(address: usize) -> isize {
    // SAFETY: the caller's promise.
    answer(|_| unsafe { detach(address) }).map_or_else(|error| error, |()| 0)
}

/// [`control`].
///
/// # Safety
/// As for [`control`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn commonhold_shmctl(id: c_int, command: c_int, buffer: *mut shmid_ds) -> isize {
    // SAFETY: the caller's promise.
    let answered = answer(|wishes| unsafe { control(wishes, id, command, buffer) });
    answered.map_or_else(|error| error, |answer| answer as isize)
}

/// [`map_anonymous`]: the address; zero, take ordinary pages.
#[unsafe(no_mangle)]
pub extern "C" fn commonhold_map_anonymous(length: usize, protection: c_int) -> isize {
    let mapped = answer(|wishes| Ok(map_anonymous(wishes, length, protection)));
    mapped.map_or(0, |address| address.map_or(0, |address| address as isize))
}

/// [`unmap_anonymous`]; 1: it is none of ours.
///
/// # Safety
/// As for [`unmap_anonymous`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn commonhold_unmap_anonymous(address: usize, length: usize) -> isize {
    // SAFETY: the caller's promise.
    let done = answer(|wishes| match unsafe { unmap_anonymous(wishes, address, length) } {
        None => Ok(1),
        Some(done) => done.map(|()| 0),
    });
    done.unwrap_or_else(|error| error)
}
