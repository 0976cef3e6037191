//! PAGEMAP_SCAN: which pages of a client's mapping were written since they were last protected.
//!
//! A scan here never clears anything: the host records what it found, then protects exactly that (DESIGN.md,
//! rule 4). What the kernel's answers mean for a range under asynchronous write protection (tested on 6.18):
//!
//! | page table entry | written | present |
//! |---|---|---|
//! | none: never installed, or installed, written, and then dropped by the kernel or MADV_DONTNEED | yes | no |
//! | marker: installed, protected, then dropped (eviction, swap, MADV_DONTNEED) | no | no |
//! | mapped and protected | no | yes |
//! | mapped and written | yes | yes |
//! | migration entry of a written page (the kernel is moving the frame) | yes | no, but swapped |
//!
//! The first line is ambiguous; the host knows which pages it ever installed, and that decides.

use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

const PAGE_IS_WPALLOWED: u64 = 1 << 0;
const PAGE_IS_WRITTEN: u64 = 1 << 1;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
/// Refuse a range in which something else is mapped.
const PM_SCAN_CHECK_WPASYNC: u64 = 1 << 1;
/// _IOWR('f', 16, struct pm_scan_arg)
const PAGEMAP_SCAN: libc::c_ulong =
    (3 << 30) | ((size_of::<ScanArgument>() as u64) << 16) | ((b'f' as u64) << 8) | 16;

#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// A run of addresses in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// First address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// Not known to be protected: see the table above.
    pub written: bool,
    /// A frame is mapped.
    pub present: bool,
    /// There is an entry, but no frame: a marker, or (also `written`) a page that the kernel is moving.
    pub swapped: bool,
}

/// An open /proc/PID/pagemap.
#[derive(Debug)]
pub struct Pagemap(OwnedFd);

impl Pagemap {
    /// The calling process's own.
    pub fn of_self() -> io::Result<Self> {
        Ok(Pagemap(std::fs::File::open("/proc/self/pagemap")?.into()))
    }

    /// Takes a descriptor that another process opened. Refused unless it is of the proc file system, so that
    /// the request number below can mean nothing else to it.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        const PROC_SUPER_MAGIC: i64 = 0x9fa0;
        let kind = rustix::fs::fstatfs(&fd)?.f_type;
        if kind != PROC_SUPER_MAGIC {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a descriptor of /proc/PID/pagemap"));
        }
        Ok(Pagemap(fd))
    }

    /// Tells the state of every page between `start` and `end` that still lies in memory under asynchronous
    /// write protection, in order. Addresses that no answer covers are no longer mapped that way: whatever was
    /// known of them is lost.
    pub fn scan(&self, start: u64, end: u64, mut each: impl FnMut(Found)) -> Result<(), Errno> {
        let all = ScanArgument {
            category_anyof_mask: PAGE_IS_WPALLOWED,
            return_mask: PAGE_IS_WPALLOWED | PAGE_IS_WRITTEN | PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            ..ScanArgument::default()
        };
        self.ask(&all, start, end, |region| {
            each(Found {
                start: region.start,
                end: region.end,
                written: region.categories & PAGE_IS_WRITTEN != 0,
                present: region.categories & PAGE_IS_PRESENT != 0,
                swapped: region.categories & PAGE_IS_SWAPPED != 0,
            });
        })
    }

    /// Tells, in order, the runs of addresses that were written, or have no entry: in a fifth of the time, by the kernel's
    /// short way for this question alone. Of addresses that are not mapped it says nothing. PERM: some lie under another
    /// protection.
    pub fn scan_written(&self, start: u64, end: u64, mut each: impl FnMut(u64, u64)) -> Result<(), Errno> {
        let written = ScanArgument {
            flags: PM_SCAN_CHECK_WPASYNC,
            category_mask: PAGE_IS_WRITTEN,
            return_mask: PAGE_IS_WRITTEN,
            ..ScanArgument::default()
        };
        self.ask(&written, start, end, |region| each(region.start, region.end))
    }

    fn ask(
        &self,
        question: &ScanArgument,
        start: u64,
        end: u64,
        mut each: impl FnMut(&PageRegion),
    ) -> Result<(), Errno> {
        let mut regions = [PageRegion::default(); 512];
        let mut at = start;
        while at < end {
            let mut argument = ScanArgument {
                size: size_of::<ScanArgument>() as u64,
                start: at,
                end,
                vec: regions.as_mut_ptr() as u64,
                vec_len: regions.len() as u64,
                ..*question
            };
            // SAFETY: the argument has the size it states, and vec/vec_len name the live array `regions`; the
            // kernel writes only to those. Its request number is unambiguous on procfs (see from_fd).
            let n = unsafe { libc::ioctl(self.0.as_raw_fd(), PAGEMAP_SCAN, &mut argument) };
            if n < 0 {
                return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
            }
            regions[..(n as usize).min(regions.len())].iter().for_each(&mut each);
            if argument.walk_end <= at {
                return Ok(());
            }
            at = argument.walk_end;
        }
        Ok(())
    }
}

impl AsFd for Pagemap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
