//! When what was written to a file goes to its disk.

use std::os::fd::{AsFd, AsRawFd};

/// Pieces from this size on are worth a flush that begins at once: 1 MiB.
pub const LARGE_BYTES: u64 = 1 << 20;

/// Has what was written to a part of a file begin its way to the disk. This is a hint: a flush says whether it got there.
pub fn begin_flush(file: impl AsFd, offset: u64, length: u64) {
    let (Ok(offset), Ok(length)) = (offset.try_into(), length.try_into()) else { return };
    // SAFETY: takes numbers alone, and no memory.
    let _ = unsafe {
        libc::sync_file_range(file.as_fd().as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE)
    }; // it fails where a file has no pages in memory: there is nothing to begin
}
