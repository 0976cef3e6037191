//! Pages of a mapping, read and written by the kernel's own copies: where a touch would raise SIGBUS these are an error, and
//! the process lives. They take no hold of pages as input and output by reference do, so they are noticed as touches are.

use crate::view::{PAGE, memory_file};
use commonhold::Mapping;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Memory between.
pub struct Guarded(OwnedFd);

impl Guarded {
    /// Makes the memory.
    pub fn new() -> io::Result<Guarded> {
        memory_file(PAGE).map(Guarded)
    }

    /// Writes a page.
    pub fn write(&self, mapping: &Mapping, page: usize, bytes: &[u8]) -> io::Result<()> {
        assert!(bytes.len() == PAGE && (page + 1) * PAGE <= mapping.len(), "a whole page, inside");
        rustix::io::pwrite(&self.0, bytes, 0)?;
        let at = mapping.as_ptr().wrapping_add(page * PAGE);
        // SAFETY: the page lies within a mapping that lives and that no slice of ours points into; the kernel checks the
        // address itself, and fails with EFAULT.
        whole(unsafe { libc::pread(self.0.as_raw_fd(), at.cast(), PAGE, 0) })
    }

    /// Reads a page.
    pub fn read(&self, mapping: &Mapping, page: usize, bytes: &mut [u8]) -> io::Result<()> {
        assert!(bytes.len() == PAGE && (page + 1) * PAGE <= mapping.len(), "a whole page, inside");
        let at = mapping.as_ptr().wrapping_add(page * PAGE);
        // SAFETY: as above.
        whole(unsafe { libc::pwrite(self.0.as_raw_fd(), at.cast(), PAGE, 0) })?;
        match rustix::io::pread(&self.0, bytes, 0)? {
            PAGE => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn whole(copied: isize) -> io::Result<()> {
    match usize::try_from(copied) {
        Ok(PAGE) => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}
