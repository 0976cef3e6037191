//! Shirriff's measurements of 1990 (Sprite, section 8.1 and Appendix 1), repeated with today's means.

pub mod methods;
mod stdio;
pub mod table;

use crate::failure::Result;
use crate::view::{PAGE, RawMapping};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;

/// Size of the paper's file: 120 pages.
pub const HIS_FILE: usize = 480 * 1024;

/// Block of one `pread` into a mapping.
const BLOCK: usize = 1 << 20;

/// Fills a mapping with the file's first `length` bytes, a MiB at a time.
pub fn pread_into(file: &File, mapping: &RawMapping, length: usize) -> Result<()> {
    let mut done = 0;
    while done < length {
        let target = mapping.as_mut_ptr().wrapping_add(done);
        let count = BLOCK.min(length - done).min(mapping.view().len().saturating_sub(done));
        // SAFETY: the target range lies inside of the mapping (`count` is cut to what is left of it), which
        // lives meanwhile and is writable; no reference to it exists.
        let n = unsafe { libc::pread(file.as_raw_fd(), target.cast(), count, done as libc::off_t) };
        match usize::try_from(n) {
            Ok(0) => return crate::failure::failed("the file ended before its size"),
            Ok(n) => done += n,
            Err(_) => return Err(std::io::Error::last_os_error().into()),
        }
    }
    Ok(())
}

/// How many pages these places lie in.
pub fn distinct_pages(offsets: &[usize]) -> usize {
    offsets.iter().map(|offset| offset / PAGE).collect::<BTreeSet<_>>().len()
}
