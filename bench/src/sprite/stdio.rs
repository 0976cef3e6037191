//! The C library's buffered input: `getc`, as in the paper.

use crate::failure::Result;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

/// A stream of stdio.
pub struct Stream(NonNull<libc::FILE>);

impl Stream {
    /// Opens a file for reading.
    pub fn open(path: &Path) -> Result<Stream> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: both are C strings that live during the call.
        let stream = unsafe { libc::fopen(path.as_ptr(), c"r".as_ptr()) };
        match NonNull::new(stream) {
            Some(stream) => Ok(Stream(stream)),
            None => Err(std::io::Error::last_os_error().into()),
        }
    }

    /// Reads to the end, byte by byte; how many bytes, and their sum.
    pub fn read_all(&mut self) -> (usize, u64) {
        let (mut count, mut sum) = (0, 0u64);
        loop {
            // SAFETY: the stream is open until `self` is dropped.
            let byte = unsafe { libc::fgetc(self.0.as_ptr()) };
            if byte == libc::EOF {
                return (count, sum);
            }
            count += 1;
            sum += byte as u64;
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, closed only here.
        unsafe { libc::fclose(self.0.as_ptr()) };
    }
}
