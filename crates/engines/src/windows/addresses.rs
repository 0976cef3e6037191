//! A run of this process's addresses, all of it inaccessible but for windows.

use crate::memory::PAGE;
use commonhold_segments::Run;
use commonhold_sys::memory;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

/// The addresses. Nothing in this process but this value knows them.
#[derive(Debug)]
pub struct Addresses {
    first: NonNull<u8>,
    bytes: usize,
}

impl Addresses {
    /// So many bytes of addresses, without memory.
    pub fn new(bytes: usize) -> io::Result<Addresses> {
        Ok(Addresses { first: memory::reserve(ptr::null_mut(), bytes)?, bytes })
    }

    /// Shows a run of the memory from the page `start` on.
    pub fn show(&mut self, start: u64, run: Run, memory: BorrowedFd<'_>, writable: bool) -> io::Result<()> {
        let mut protection = ProtFlags::READ;
        protection.set(ProtFlags::WRITE, writable);
        let (at, bytes) = self.place(start, run.pages);
        let offset = u64::from(run.start) * PAGE as u64;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: `place` is within the addresses of this value, which nobody else uses.
        unsafe { rustix::mm::mmap(at.cast(), bytes, protection, flags, memory, offset)? };
        Ok(())
    }

    /// Makes pages inaccessible. No access to them is under way when this returns.
    pub fn hide(&mut self, start: u64, pages: u32) -> io::Result<()> {
        let (at, bytes) = self.place(start, pages);
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: as above.
        unsafe { rustix::mm::mmap_anonymous(at.cast(), bytes, ProtFlags::empty(), flags)? };
        Ok(())
    }

    /// The word at a byte, by the kernel; none where it may not be read.
    pub fn read(&self, at: usize) -> Option<u64> {
        let mut word = 0u64;
        self.transfer(at, &mut word, libc::process_vm_readv).then_some(word)
    }

    /// Stores a word at a byte, by the kernel. False where it may not be written.
    pub fn write(&self, at: usize, mut word: u64) -> bool {
        self.transfer(at, &mut word, libc::process_vm_writev)
    }

    /// The address of the word at a byte.
    pub fn address(&self, at: usize) -> *mut u64 {
        assert!(at.is_multiple_of(size_of::<u64>()) && at < self.bytes, "not a word of the addresses");
        self.first.as_ptr().wrapping_add(at).cast()
    }

    fn transfer(&self, at: usize, word: &mut u64, call: Call) -> bool {
        let here = libc::iovec { iov_base: ptr::from_mut(word).cast(), iov_len: size_of::<u64>() };
        let there = libc::iovec { iov_base: self.address(at).cast(), iov_len: size_of::<u64>() };
        let own = std::process::id().cast_signed();
        // SAFETY: `here` is the caller's word; `there` is within the addresses of this value, whose
        // memory is nobody's Rust value. The kernel checks whether it may be accessed.
        let moved = unsafe { call(own, &raw const here, 1, &raw const there, 1, 0) };
        moved == size_of::<u64>() as isize
    }

    fn place(&self, start: u64, pages: u32) -> (*mut u8, usize) {
        let (at, bytes) = (start as usize * PAGE, pages as usize * PAGE);
        assert!(at <= self.bytes && bytes <= self.bytes - at, "outside of the addresses");
        (self.first.as_ptr().wrapping_add(at), bytes)
    }
}

/// `process_vm_readv`, or the other.
type Call = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

impl Drop for Addresses {
    fn drop(&mut self) {
        // SAFETY: reserved by `new` with that length; nothing points into it.
        let _ = unsafe { memory::unmap(self.first, self.bytes) }; // else they stay reserved
    }
}
