//! Leases on files: whoever opens such a file in another way waits.

use std::os::fd::{AsRawFd, OwnedFd};

/// Of asm-generic/fcntl.h.
const F_SETSIG: libc::c_int = 10;

/// Takes a lease for writing on an open file of the caller's user. Who breaks it sends a signal
/// that ends nobody.
pub fn take(file: &OwnedFd) -> std::io::Result<()> {
    // SAFETY: only numbers are passed.
    let taken = unsafe {
        libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGCHLD) == 0
            && libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) == 0
    };
    if taken { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
