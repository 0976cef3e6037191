//! Which pages of a file are in memory, whoever brought them in: mincore on a mapping that is never touched.

use roaring::RoaringBitmap;
use rustix::fs::{Access, AtFlags, CWD, FileType, accessat};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// Pages that one call asks about.
const CHUNK: usize = 1 << 16;
/// What the kernel calls owners that a user namespace has no name for.
const UNKNOWN_USER: u32 = 65534;

/// Whether the kernel tells this reader the truth: to others mincore says that every page is there.
fn is_told(file: &File) -> bool {
    let Ok(about) = file.metadata() else { return false };
    if FileType::from_raw_mode(about.mode()) != FileType::RegularFile {
        return false;
    }
    let user = rustix::process::geteuid();
    // Root of a user namespace is root over those files alone whose owners it has names for.
    if user.as_raw() == about.uid() || (user.is_root() && about.uid() != UNKNOWN_USER) {
        return true;
    }
    // The file may have lost its name: asked by descriptor.
    accessat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

/// Page numbers of a file that are in memory; none: not allowed to know, or not such a file.
pub fn cached_pages(file: &File, size: u64) -> Option<RoaringBitmap> {
    if !is_told(file) {
        return None;
    }
    let page = rustix::param::page_size();
    let mut cached = RoaringBitmap::new();
    let pages = usize::try_from(size).ok()?.div_ceil(page);
    u32::try_from(pages).ok()?;
    let mut answers = vec![0_u8; CHUNK.min(pages)];
    for first in (0..pages).step_by(CHUNK) {
        let count = CHUNK.min(pages - first);
        let window = Window::new(file, first * page, count * page).ok()?;
        window.ask(&mut answers[..count]).ok()?;
        let there = answers[..count].iter().enumerate().filter(|(_, answer)| **answer & 1 == 1);
        // The numbers ascend, so that appending cannot fail.
        let _ = cached.append(there.filter_map(|(place, _)| u32::try_from(first + place).ok()));
    }
    Some(cached)
}

/// A part of a file, mapped so that nobody can touch it: a file that shrinks meanwhile does no harm.
struct Window {
    address: *mut libc::c_void,
    length: usize,
}

impl Window {
    fn new(file: &File, offset: usize, length: usize) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: a new mapping at an address of the kernel's choice, without any access, replaces nothing.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_NONE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        if address == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Self { address, length })
        }
    }

    fn ask(&self, answers: &mut [u8]) -> io::Result<()> {
        assert!(answers.len() >= self.length.div_ceil(rustix::param::page_size()));
        // SAFETY: the range is this mapping, which lives as long as `self`; the kernel writes one byte for each page of
        // it, which `answers` has room for. Nothing of the mapping is touched.
        let result = unsafe { libc::mincore(self.address, self.length, answers.as_mut_ptr()) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `new` made, which nothing refers to any more.
        unsafe { libc::munmap(self.address, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn pages_that_were_written_are_there_and_holes_are_not() {
        // In memory, so that no file system decides to drop pages.
        let page = rustix::param::page_size() as u64;
        let folder = if std::path::Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
        let mut file = tempfile::tempfile_in(folder).expect("a temporary file");
        file.set_len(100 * page).expect("enlarged");
        file.write_all(&[1]).expect("written");
        let cached = cached_pages(&file, 100 * page).expect("its owner may know");
        assert!(cached.contains(0) && !cached.contains(50), "{cached:?}");
    }

    #[test]
    fn what_is_no_file_or_lies_about_its_size() {
        let null = File::open("/dev/null").expect("opened");
        assert!(cached_pages(&null, 4096).is_none());
        // Longer than the file is: the pages beyond its end are not there.
        let file = tempfile::tempfile().expect("a temporary file");
        assert_eq!(cached_pages(&file, 10 * 4096).map(|pages| pages.len()), Some(0));
        assert_eq!(cached_pages(&file, 0).map(|pages| pages.len()), Some(0));
    }
}
