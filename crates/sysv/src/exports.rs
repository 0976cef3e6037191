//! The same for the preloaded library: what is negative is the number of an error.

use crate::{
    Errno, Wishes, attach, control, detach, get, map_anonymous, mapped_over, posix, remap, table, unmap,
};
use libc::{c_char, c_int, shmid_ds};
use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Blocks all signals in this thread. Gives which were before.
pub(crate) fn block_signals() -> libc::sigset_t {
    // SAFETY: all zeros is a value of it; each call gets what it asks for.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
        before
    }
}

/// As it was.
pub(crate) fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: a set that the kernel gave.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}

/// Does something while no handler of a signal runs in this thread: one that asks for a segment would wait for the lock that this
/// thread has. (A thread is not cancelled meanwhile: the preloaded library sees to that.)
pub(crate) fn undisturbed<T>(what: impl FnOnce() -> T) -> T {
    let before = block_signals();
    let done = what();
    restore_signals(&before);
    done
}

/// The call's answer, or the error. A defect of ours does not end the program.
fn answer<T>(call: impl FnOnce(&Wishes) -> Result<T, Errno>) -> Result<T, isize> {
    if table::is_locked_here() {
        // A handler of fork of the program's, in between those of ours.
        return Err(-(Errno::DEADLK.raw_os_error() as isize));
    }
    let done = undisturbed(|| catch_unwind(AssertUnwindSafe(|| call(Wishes::of_this_process()))));
    done.unwrap_or(Err(Errno::IO)).map_err(|errno| -(errno.raw_os_error() as isize))
}

/// What `commonhold run` said, and which host it meant: as it was when the program began.
///
/// # Safety
/// Two strings of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn commonhold_begin(words: *const c_char, host: *const c_char) {
    // SAFETY: the caller's promise.
    let (words, host) = unsafe { (CStr::from_ptr(words), CStr::from_ptr(host)) };
    Wishes::begin(&words.to_string_lossy(), host);
    table::begin();
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
pub extern "C" fn commonhold_map_anonymous(length: usize) -> isize {
    let mapped = answer(|wishes| Ok(map_anonymous(wishes, length)));
    mapped.map_or(0, |address| address.map_or(0, |address| address as isize))
}

/// [`posix::open`].
///
/// # Safety
/// A string of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn commonhold_shm_open(name: *const c_char, flags: c_int, mode: u32) -> isize {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    let opened = answer(|wishes| posix::open(wishes, name.to_str().map_err(|_| Errno::INVAL)?, flags, mode));
    opened.map_or_else(|error| error, |fd| fd as isize)
}

/// [`posix::unlink`].
///
/// # Safety
/// A string of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn commonhold_shm_unlink(name: *const c_char) -> isize {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    let done = answer(|wishes| posix::unlink(wishes, name.to_str().map_err(|_| Errno::NOENT)?));
    done.map_or_else(|error| error, |()| 0)
}

/// [`posix::resize`]; 1: the kernel is to be asked.
#[unsafe(no_mangle)]
pub extern "C" fn commonhold_ftruncate(fd: c_int, size: i64) -> isize {
    if fd < 0 || size < 0 || table::is_locked_here() {
        return 1;
    }
    // SAFETY: the program's own descriptor, or none at all: then each call here fails.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let done = answer(|wishes| match posix::resize(wishes, fd, size as u64) {
        None => Ok(1),
        Some(done) => done.map(|()| 0),
    });
    done.unwrap_or_else(|error| error)
}

/// Whether the client library keeps that descriptor, which is none of the program's.
#[unsafe(no_mangle)]
pub extern "C" fn commonhold_keeps(fd: c_int) -> c_int {
    c_int::from(commonhold::is_own(fd))
}

/// The client library closes that descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn commonhold_forgets(fd: c_int) {
    commonhold::forget_own(fd);
}

/// Whether some of these addresses may be ours, and this thread may look.
fn may_be_ours(address: usize, length: usize) -> bool {
    table::may_have(&(address..address.saturating_add(length))) && !table::is_locked_here()
}

/// [`unmap`]; 1: it is none of ours.
///
/// # Safety
/// As for [`unmap`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn commonhold_unmap(address: usize, length: usize) -> isize {
    if !may_be_ours(address, length) {
        return 1;
    }
    // SAFETY: the caller's promise.
    let done = answer(|wishes| match unsafe { unmap(wishes, address, length) } {
        None => Ok(1),
        Some(done) => done.map(|()| 0),
    });
    done.unwrap_or_else(|error| error)
}

/// [`mapped_over`].
#[unsafe(no_mangle)]
pub extern "C" fn commonhold_mapped_over(address: usize, length: usize) {
    if may_be_ours(address, length) {
        let _ = answer(|_| {
            mapped_over(address, length);
            Ok(())
        }); // nobody waits for an answer
    }
}

/// [`remap`]: the new address; 1: it is none of ours.
///
/// # Safety
/// As for [`remap`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn commonhold_remap(
    address: usize,
    length: usize,
    new_length: usize,
    flags: c_int,
    wished: usize,
) -> isize {
    if !may_be_ours(address, length) && !may_be_ours(wished, new_length) {
        return 1;
    }
    // SAFETY: the caller's promise.
    let moved = answer(|wishes| unsafe { remap(wishes, (address, length), new_length, flags, wished) });
    moved.map_or_else(|error| error, |address| address as isize)
}
