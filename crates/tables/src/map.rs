//! Attaching and detaching: the mappings by which the kernel shares tables.

use crate::hugetlb::HUGE;
use crate::span::{GIGABYTE, check_address, spanned};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// An attached segment: detached when it is dropped.
#[derive(Debug)]
pub struct Attachment {
    address: usize,
    length: usize,
}

/// Attaches the whole of a segment with the tables that all share: at an address, which begins a gigabyte, or anywhere.
///
/// The kernel shares a table among mappings whose flags are the same, and which cover its gigabyte. A segment ends within its
/// last gigabyte; the mapping goes on to the end of it, and past the segment's end a touch raises SIGBUS. A writable mapping
/// so long would enlarge the file: so it is mapped to read, without a reservation, and then made writable.
pub fn attach(fd: impl AsFd, size_bytes: u64, at: Option<u64>, writes: bool) -> io::Result<Attachment> {
    let length = usize::try_from(spanned(size_bytes)).map_err(|_| Errno::NOMEM)?;
    if let Some(at) = at {
        check_address(at)?;
    }
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    let mapped = match at {
        Some(_) => place(&fd, 0, length, at, ProtFlags::READ, flags)?,
        None => Reserved::new(length)?
            .fill(|at| map(&fd, 0, at, length, ProtFlags::READ, flags | MapFlags::FIXED))?,
    };
    if writes {
        // SAFETY: nobody else knows of the mapping.
        unsafe { rustix::mm::mprotect(mapped.start(), length, MprotectFlags::READ | MprotectFlags::WRITE) }?;
    }
    Ok(mapped)
}

/// Attaches a part of a segment with tables of this process's own (the paper's 5.3): for protections of its own, or referenced
/// and modified bits of its own. Offset, length and address are of whole huge pages.
///
/// The kernel shares a table only where one mapping covers the whole of its gigabyte. So the first huge page of each gigabyte
/// becomes a mapping for itself, by a flag that its neighbours do not have: it is left out of core dumps.
pub fn attach_own(
    fd: impl AsFd,
    offset: u64,
    length: usize,
    at: Option<u64>,
    writes: bool,
) -> io::Result<Attachment> {
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    let mapped = place(&fd, offset, length, at, ProtFlags::READ, flags)?;
    let first = mapped.address.next_multiple_of(GIGABYTE as usize);
    let end = mapped.address + length;
    for gigabyte in (first..end).step_by(GIGABYTE as usize) {
        let length = (end - gigabyte).min(HUGE as usize);
        // SAFETY: within the mapping; the advice changes a flag alone.
        unsafe { rustix::mm::madvise(gigabyte as *mut c_void, length, Advice::LinuxDontDump) }?;
    }
    if writes {
        // SAFETY: nobody else knows of the mapping.
        unsafe { rustix::mm::mprotect(mapped.start(), length, MprotectFlags::READ | MprotectFlags::WRITE) }?;
    }
    Ok(mapped)
}

/// Maps at an address, where nothing may be yet, or anywhere.
pub(crate) fn place(
    fd: impl AsFd,
    offset: u64,
    length: usize,
    at: Option<u64>,
    protection: ProtFlags,
    flags: MapFlags,
) -> io::Result<Attachment> {
    let (wished, fixed) = at.map_or((0, MapFlags::empty()), |at| (at as usize, MapFlags::FIXED_NOREPLACE));
    let mapped = map(fd, offset, wished, length, protection, flags | fixed)?;
    if at.is_some() && mapped.address != wished {
        return Err(Errno::EXIST.into()); // a kernel that does not know MAP_FIXED_NOREPLACE
    }
    Ok(mapped)
}

fn map(
    fd: impl AsFd,
    offset: u64,
    at: usize,
    length: usize,
    protection: ProtFlags,
    flags: MapFlags,
) -> io::Result<Attachment> {
    // SAFETY: MAP_FIXED is given only for addresses that this module has reserved itself.
    let address = unsafe { rustix::mm::mmap(at as *mut c_void, length, protection, flags, &fd, offset) }?;
    Ok(Attachment { address: address as usize, length })
}

impl Attachment {
    /// Where it begins.
    pub fn address(&self) -> NonNull<u8> {
        NonNull::new(self.address as *mut u8).expect("nothing is mapped at null")
    }

    /// Bytes of addresses that it takes: with shared tables, whole gigabytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Keeps the segment attached: whoever has the address detaches it.
    pub fn leak(self) -> NonNull<u8> {
        let address = self.address();
        std::mem::forget(self);
        address
    }

    fn start(&self) -> *mut c_void {
        self.address as *mut c_void
    }

    /// Fills the tables for so many bytes from an offset on, and brings their pages in. An error, and no signal, where there is
    /// none.
    pub fn fill(&self, offset: u64, length: u64) -> io::Result<()> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(self.length);
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(self.length - offset);
        let start = self.start().wrapping_byte_add(offset);
        // SAFETY: within the mapping; nothing that is there changes.
        Ok(unsafe { rustix::mm::madvise(start, length, Advice::LinuxPopulateRead) }?)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // SAFETY: who has the attachment uses its addresses no more. Only a program that is out of mappings is refused, and
        // then it stays attached.
        let _ = unsafe { rustix::mm::munmap(self.start(), self.length) };
    }
}

/// Addresses of this process that nobody else gets.
struct Reserved {
    address: usize,
    length: usize,
}

impl Reserved {
    /// Room for `length` bytes from where a gigabyte begins.
    fn new(length: usize) -> io::Result<Reserved> {
        let length = length.checked_add(GIGABYTE as usize).ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses addresses that are free.
        let address =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::empty(), flags) }?;
        Ok(Reserved { address: address as usize, length })
    }

    /// Maps something where the first gigabyte begins, and unmaps what is left on both sides.
    fn fill(self, map: impl FnOnce(usize) -> io::Result<Attachment>) -> io::Result<Attachment> {
        let at = self.address.next_multiple_of(GIGABYTE as usize);
        let mapped = map(at)?;
        self.unmap(self.address, mapped.address);
        self.unmap(mapped.address + mapped.length, self.address + self.length);
        std::mem::forget(self);
        Ok(mapped)
    }

    fn unmap(&self, from: usize, to: usize) {
        if from < to {
            // SAFETY: these addresses were reserved here, and nobody knows of them. If the kernel refuses, they stay reserved.
            let _ = unsafe { rustix::mm::munmap(from as *mut c_void, to - from) };
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.unmap(self.address, self.address + self.length);
    }
}
