//! What a file is to have on the disk.

use rustix::fs::FallocateFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Makes a file that ends at or before `offset + length` that long, with blocks for what is new. `Unsupported`: its file
/// system has no such call.
pub fn allocate(file: impl AsFd, offset: u64, length: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, FallocateFlags::empty(), offset, length)?)
}

/// Has what was written to a part of a file begin its way to the disk. This is a hint: a flush says whether it got there.
pub fn begin_flush(file: impl AsFd, offset: u64, length: u64) {
    let (Ok(offset), Ok(length)) = (offset.try_into(), length.try_into()) else { return };
    // SAFETY: takes numbers alone, and no memory.
    // It fails where the file is none that has pages in memory: then there is nothing to begin.
    let _ = unsafe {
        libc::sync_file_range(file.as_fd().as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE)
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_gets_longer_and_keeps_what_it_has() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abc").unwrap();
        allocate(&file, 3, 5000).unwrap();
        begin_flush(&file, 0, 5003);
        assert_eq!(file.metadata().unwrap().len(), 5003);
        let mut bytes = [1; 5];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"abc\0\0");
        begin_flush(std::io::stdin(), 0, 1); // nothing happens
    }
}
