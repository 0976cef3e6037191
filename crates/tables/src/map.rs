//! Attaching and detaching: the mappings by which the kernel shares tables.

use crate::hugetlb::HUGE;
use crate::span::{GIGABYTE, check_address, spanned};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// Where in a gigabyte tables of a process's own begin: not where it does. Whatever is mapped of the segment lies elsewhere in its
/// gigabytes then than by the shared tables, unless its offset is as far from the beginning of one.
const OWN_PLACE: usize = HUGE as usize;

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
        Some(at) => map(&fd, 0, at as usize, length, flags | MapFlags::FIXED_NOREPLACE)?,
        None => Reserved::new(length)?.fill(|at| map(&fd, 0, at, length, flags | MapFlags::FIXED))?,
    };
    if at.is_some_and(|at| at as usize != mapped.address) {
        return Err(Errno::EXIST.into()); // a kernel that does not know MAP_FIXED_NOREPLACE
    }
    if writes {
        // SAFETY: nobody else knows of the mapping.
        unsafe { rustix::mm::mprotect(mapped.start(), length, MprotectFlags::READ | MprotectFlags::WRITE) }?;
    }
    Ok(mapped)
}

/// Attaches a part of a segment with tables of this process's own (the paper's 5.3): for protections of its own, or referenced
/// and modified bits of its own. Offset, length and address are of whole huge pages.
pub fn attach_own(
    fd: impl AsFd,
    offset: u64,
    length: usize,
    at: Option<u64>,
    writes: bool,
) -> io::Result<Attachment> {
    let place = |at, flags| map(&fd, offset, at, length, MapFlags::SHARED | MapFlags::NORESERVE | flags);
    let mapped = match at {
        Some(at) => place(at as usize, MapFlags::FIXED_NOREPLACE)?,
        // The kernel shares no table among mappings that are at different places of a gigabyte.
        None => Reserved::new(length.checked_add(OWN_PLACE).ok_or(Errno::NOMEM)?)?
            .fill(|gigabyte| place(gigabyte + OWN_PLACE, MapFlags::FIXED))?,
    };
    if at.is_some_and(|at| at as usize != mapped.address) {
        return Err(Errno::EXIST.into());
    }
    if at.is_some_and(|at| at % GIGABYTE == offset % GIGABYTE) {
        // Nor with a mapping that is left out of core dumps, where the other is not.
        // SAFETY: the advice changes a flag of the mapping alone.
        unsafe { rustix::mm::madvise(mapped.start(), length, Advice::LinuxDontDump) }?;
    }
    if writes {
        // SAFETY: nobody else knows of the mapping.
        unsafe { rustix::mm::mprotect(mapped.start(), length, MprotectFlags::READ | MprotectFlags::WRITE) }?;
    }
    Ok(mapped)
}

fn map(fd: impl AsFd, offset: u64, at: usize, length: usize, flags: MapFlags) -> io::Result<Attachment> {
    // SAFETY: MAP_FIXED is given only for addresses that this module has reserved itself.
    let address =
        unsafe { rustix::mm::mmap(at as *mut c_void, length, ProtFlags::READ, flags, &fd, offset) }?;
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

    /// Fills the tables for the segment's pages: whoever attaches it then faults no more than once for each gigabyte.
    pub fn fill(&self, size_bytes: u64) -> io::Result<()> {
        let length = usize::try_from(size_bytes).unwrap_or(usize::MAX).min(self.length);
        // SAFETY: the pages are there, so that nothing but tables changes.
        Ok(unsafe { rustix::mm::madvise(self.start(), length, Advice::LinuxPopulateRead) }?)
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

    /// Maps something where the first gigabyte begins, and gives back what is left on both sides.
    fn fill(self, map: impl FnOnce(usize) -> io::Result<Attachment>) -> io::Result<Attachment> {
        let at = self.address.next_multiple_of(GIGABYTE as usize);
        let mapped = map(at)?;
        self.give_back(self.address, mapped.address);
        self.give_back(mapped.address + mapped.length, self.address + self.length);
        std::mem::forget(self);
        Ok(mapped)
    }

    fn give_back(&self, from: usize, to: usize) {
        if from < to {
            // SAFETY: these addresses were reserved here, and nobody knows of them.
            let _ = unsafe { rustix::mm::munmap(from as *mut c_void, to - from) };
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.give_back(self.address, self.address + self.length);
    }
}
