//! Locks of whole files that belong to an open file description, and end with it: between processes, and on file systems
//! of several machines between those.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Locks the whole file for writing. False: somebody else has a lock of it. An error: the file system has no such locks, or
/// the descriptor is not open for writing.
pub fn try_lock(file: impl AsFd) -> io::Result<bool> {
    let lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0, // to the end, wherever that is
        l_pid: 0, // as locks of descriptions demand
    };
    // SAFETY: the descriptor is open for as long as the call takes, and the call reads the one structure that it is given.
    let result = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &lock) };
    match (result, io::Error::last_os_error()) {
        (0, _) => Ok(true),
        (_, error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        (_, error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_lock_belongs_to_a_description_and_ends_with_it() {
        let file = crate::frames::create("lock", 4096).unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let (first, second) = (open(), open());
        assert!(try_lock(&first).unwrap());
        assert!(try_lock(&first).unwrap());
        assert!(!try_lock(&second).unwrap());
        let again = first.try_clone().unwrap();
        drop(first);
        assert!(!try_lock(&second).unwrap());
        drop(again);
        assert!(try_lock(&second).unwrap());
        try_lock(File::open(&path).unwrap()).unwrap_err();
    }
}
