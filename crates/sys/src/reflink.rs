//! Clones of files: blocks that two files of one file system share until either is written.

use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd};

/// Makes bytes of `from` the beginning of the empty file `to`, all at one instant. `length` 0: all from `offset` on.
///
/// XFS and Btrfs keep writers out of `from` meanwhile, also those through mappings: their first
/// write to a page that was stored waits. What they had written before is stored and cloned.
pub fn clone_range(to: impl AsFd, from: impl AsFd, offset: u64, length: u64) -> Result<(), Errno> {
    let range = libc::file_clone_range {
        src_fd: from.as_fd().as_raw_fd().into(),
        src_offset: offset,
        src_length: length,
        dest_offset: 0,
    };
    // SAFETY: both descriptors are open for as long as the call takes, and the call reads the one structure that it is given.
    let result = unsafe { libc::ioctl(to.as_fd().as_raw_fd(), libc::FICLONERANGE, &range) };
    match result {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_no_clones() {
        let [from, to] = ["from", "to"].map(|name| crate::frames::create(name, 4096).unwrap());
        assert_eq!(clone_range(&to, &from, 0, 0), Err(Errno::OPNOTSUPP));
        assert_eq!(clone_range(&to, tempfile::tempfile().unwrap(), 0, 0), Err(Errno::XDEV));
    }
}
