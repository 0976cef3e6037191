//! Mappings of memory, made and ended here so that their unsafe code is in one place.

use commonhold_points as points;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// Blocks of memory up to that many bytes are kept when they are freed, and used again: by default the C library gives
/// those of 128 KiB and more back to the kernel, and the next has to be zeroed page by page.
pub fn keep_freed(bytes: i32) {
    // Fresh memory beyond it is mapped for itself, and unmapped; at the end of a heap twice as much stays.
    for (parameter, value) in
        [(libc::M_MMAP_THRESHOLD, bytes), (libc::M_TRIM_THRESHOLD, bytes.saturating_mul(2))]
    {
        // SAFETY: a setting of the allocator, which takes it at any time. Refused is as good as not asked.
        let _ = unsafe { libc::mallopt(parameter, value) };
    }
}

/// Gives memory that was freed back to the kernel: of each thread's heap the C library keeps some by itself, and below
/// what is still used all of it.
pub fn give_back_freed() {
    // SAFETY: the allocator goes through what is free, under its own locks. Whether there was any does not matter.
    let _ = unsafe { libc::malloc_trim(0) };
}

/// How to map.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// Where, if it matters; null: anywhere.
    pub hint: *mut u8,
    /// Fail rather than map elsewhere.
    pub fixed: bool,
    /// Writable.
    pub write: bool,
    /// Copy-on-write.
    pub private: bool,
    /// Not inherited over fork.
    pub not_inherited: bool,
    /// Left out of core dumps, kept in small pages.
    pub controlled: bool,
}

/// Maps `length` bytes of `fd` from `offset`. Nothing that was mapped before is touched.
#[cfg_attr(feature = "faults", track_caller)]
pub fn map(fd: impl AsFd, offset: u64, length: usize, wish: Wish) -> io::Result<NonNull<u8>> {
    let mut protection = ProtFlags::READ;
    protection.set(ProtFlags::WRITE, wish.write);
    let mut flags = if wish.private { MapFlags::PRIVATE } else { MapFlags::SHARED };
    flags.set(MapFlags::FIXED_NOREPLACE, wish.fixed);
    flags.insert(MapFlags::NORESERVE);
    // SAFETY: without MAP_FIXED the kernel chooses free addresses (FIXED_NOREPLACE fails on taken ones), so no
    // memory that somebody uses changes.
    let map = || unsafe { rustix::mm::mmap(wish.hint.cast(), length, protection, flags, &fd, offset) };
    let address = points::mmap(map)?;
    let address = NonNull::new(address.cast::<u8>()).ok_or_else(|| io::Error::other("mapped at null"))?;
    if let Err(error) = advise(address, length, wish) {
        // SAFETY: mapped just above; nobody else knows of it.
        let _ = unsafe { unmap(address, length) };
        return Err(error);
    }
    Ok(address)
}

fn advise(address: NonNull<u8>, length: usize, wish: Wish) -> io::Result<()> {
    let wanted = [
        (wish.not_inherited, Advice::LinuxDontFork),
        (wish.controlled, Advice::LinuxDontDump),
        (wish.controlled, Advice::LinuxNoHugepage),
    ];
    for (_, advice) in wanted.into_iter().filter(|(wanted, _)| *wanted) {
        // SAFETY: these three only set flags of the mapping, and change no memory.
        match unsafe { rustix::mm::madvise(address.as_ptr().cast(), length, advice) } {
            // A kernel without huge pages refuses to be told not to use them.
            Err(rustix::io::Errno::INVAL) if advice == Advice::LinuxNoHugepage => {}
            other => other?,
        }
    }
    Ok(())
}

/// Reserves addresses without memory: `PROT_NONE`.
#[cfg_attr(feature = "faults", track_caller)]
pub fn reserve(hint: *mut u8, length: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: the kernel chooses free addresses.
    let map = || unsafe {
        rustix::mm::mmap_anonymous(
            hint.cast(),
            length,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    };
    let address = points::mmap(map)?;
    NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at null"))
}

/// Reserves exactly these addresses, if nothing is there.
#[cfg_attr(feature = "faults", track_caller)]
pub fn reserve_exactly(address: NonNull<u8>, length: usize) -> io::Result<()> {
    // SAFETY: MAP_FIXED_NOREPLACE fails where something is mapped.
    let got = unsafe { reserve_with(address, length, MapFlags::FIXED_NOREPLACE) }?;
    if got != address {
        // A kernel that does not know the flag takes the address as a hint.
        // SAFETY: reserved just now; nobody else knows of it.
        let _ = unsafe { unmap(got, length) };
        return Err(io::Error::from_raw_os_error(libc::EEXIST));
    }
    Ok(())
}

/// Puts a reservation in place of a mapping: every touch raises SIGSEGV, and the addresses stay taken.
///
/// # Safety
/// The range must be a mapping that the caller owns, and whose content nobody needs any more.
#[cfg_attr(feature = "faults", track_caller)]
pub unsafe fn replace_with_reservation(address: NonNull<u8>, length: usize) -> io::Result<()> {
    // SAFETY: the caller owns what MAP_FIXED replaces.
    unsafe { reserve_with(address, length, MapFlags::FIXED) }.map(drop)
}

/// # Safety
/// With MAP_FIXED the caller must own what is at the addresses.
#[cfg_attr(feature = "faults", track_caller)]
unsafe fn reserve_with(address: NonNull<u8>, length: usize, how: MapFlags) -> io::Result<NonNull<u8>> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | how;
    // SAFETY: the caller's promise.
    let map =
        || unsafe { rustix::mm::mmap_anonymous(address.as_ptr().cast(), length, ProtFlags::empty(), flags) };
    let got = points::mmap(map)?;
    NonNull::new(got.cast()).ok_or_else(|| io::Error::other("mapped at null"))
}

/// Whether the kernel gives a mapping to fork children.
pub fn set_inherited(address: NonNull<u8>, length: usize, inherited: bool) -> io::Result<()> {
    let advice = if inherited { Advice::LinuxDoFork } else { Advice::LinuxDontFork };
    // SAFETY: a flag of the mapping alone; no memory changes.
    Ok(unsafe { rustix::mm::madvise(address.as_ptr().cast(), length, advice) }?)
}

/// Ends a mapping.
///
/// # Safety
/// Nothing may use the addresses afterwards.
pub unsafe fn unmap(address: NonNull<u8>, length: usize) -> io::Result<()> {
    // SAFETY: the caller's promise.
    Ok(unsafe { rustix::mm::munmap(address.as_ptr().cast(), length) }?)
}

/// Takes the right to write away.
///
/// # Safety
/// Who writes there afterwards gets SIGSEGV: the caller must know that nobody relies on writing.
pub unsafe fn make_read_only(address: NonNull<u8>, length: usize) -> io::Result<()> {
    // SAFETY: the caller's promise.
    Ok(unsafe { rustix::mm::mprotect(address.as_ptr().cast(), length, MprotectFlags::READ) }?)
}

/// Takes every right away; page table entries stay, so a scan still finds what was written.
///
/// # Safety
/// Who touches the range afterwards gets SIGSEGV: the caller must know that nobody relies on it.
pub unsafe fn make_inaccessible(address: NonNull<u8>, length: usize) -> io::Result<()> {
    // SAFETY: the caller's promise.
    Ok(unsafe { rustix::mm::mprotect(address.as_ptr().cast(), length, MprotectFlags::empty()) }?)
}

/// Puts an empty file in place of a mapping: every touch raises SIGBUS.
///
/// # Safety
/// The range must be a mapping that the caller owns, and whose content nobody needs any more.
#[cfg_attr(feature = "faults", track_caller)]
pub unsafe fn replace_with_nothing(address: NonNull<u8>, length: usize) -> io::Result<()> {
    let empty = crate::frames::create("commonhold-lost", 0)?;
    // SAFETY: the caller owns what MAP_FIXED replaces.
    let map = || unsafe {
        rustix::mm::mmap(
            address.as_ptr().cast(),
            length,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE,
            &empty,
            0,
        )
    };
    points::mmap(map)?;
    Ok(())
}

/// Brings pages in and keeps them in memory, as many as this process may lock.
pub fn lock(address: NonNull<u8>, length: usize) -> io::Result<()> {
    // SAFETY: nothing that is there changes.
    Ok(unsafe { rustix::mm::mlock(address.as_ptr().cast(), length) }?)
}

/// How many bytes this process may lock.
pub fn lock_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Memlock).current.unwrap_or(u64::MAX)
}

/// Brings the pages of a readable mapping in, and says so as an error where a touch would raise SIGBUS.
pub fn populate_read(address: NonNull<u8>, length: usize) -> io::Result<()> {
    // SAFETY: populating changes no content; addresses that are not mapped are an error.
    Ok(unsafe { rustix::mm::madvise(address.as_ptr().cast(), length, Advice::LinuxPopulateRead) }?)
}

/// Stores what was written to a shared file mapping, and waits for it (msync).
#[cfg_attr(feature = "faults", track_caller)]
pub fn store(address: NonNull<u8>, length: usize) -> io::Result<()> {
    // SAFETY: writing back changes no content; addresses that are not mapped are an error.
    let store =
        || unsafe { rustix::mm::msync(address.as_ptr().cast(), length, rustix::mm::MsyncFlags::SYNC) };
    Ok(points::fsync(store)?)
}

/// Drops the page table entries of a shared mapping; the frames stay, the next touch faults anew.
///
/// # Safety
/// The range must be a shared file mapping (of a private one, the process's own copies would be lost).
pub unsafe fn forget_entries(address: NonNull<u8>, length: usize) -> io::Result<()> {
    // SAFETY: the caller's promise; content of shared mappings lives in the file.
    Ok(unsafe { rustix::mm::madvise(address.as_ptr().cast(), length, Advice::LinuxDontNeed) }?)
}

/// A window on a file, for the kernel to copy from: this process never touches it.
#[derive(Debug)]
pub struct FileWindow {
    address: NonNull<u8>,
    length: usize,
}

// SAFETY: it is an address and a length; whoever touches what is there answers for that.
unsafe impl Send for FileWindow {}
// SAFETY: as above.
unsafe impl Sync for FileWindow {}

impl FileWindow {
    /// Maps the bytes, and brings in what the page cache has.
    #[cfg_attr(feature = "faults", track_caller)]
    pub fn open(file: impl AsFd, offset: u64, length: usize) -> io::Result<Self> {
        let this = Self::map(file, offset, length, ProtFlags::READ)?;
        populate_read(this.address, length)?;
        Ok(this)
    }

    /// The same for the kernel to copy to. Nothing is brought in.
    #[cfg_attr(feature = "faults", track_caller)]
    pub fn for_writing(file: impl AsFd, offset: u64, length: usize) -> io::Result<Self> {
        Self::map(file, offset, length, ProtFlags::READ | ProtFlags::WRITE)
    }

    #[cfg_attr(feature = "faults", track_caller)]
    fn map(file: impl AsFd, offset: u64, length: usize, protection: ProtFlags) -> io::Result<Self> {
        let flags = MapFlags::SHARED;
        // SAFETY: a fresh mapping at an address the kernel chooses.
        let map =
            || unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, protection, flags, &file, offset) };
        let address = points::mmap(map)?;
        let address = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at null"))?;
        Ok(FileWindow { address, length })
    }

    /// First byte. Reading it from this process may raise SIGBUS when the file shrinks; the kernel's copies
    /// give an error instead.
    pub fn as_ptr(&self) -> *const u8 {
        self.address.as_ptr()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never: a window has at least one page.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl Drop for FileWindow {
    fn drop(&mut self) {
        // SAFETY: the window is ours alone, and no reference into it is ever given out.
        let _ = unsafe { unmap(self.address, self.length) };
    }
}

/// Pages of a file kept in memory: a locked mapping that nobody reads.
#[derive(Debug)]
pub struct Pin {
    address: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is never dereferenced; it only keeps pages from being swapped out.
unsafe impl Send for Pin {}
// SAFETY: as above.
unsafe impl Sync for Pin {}

impl Pin {
    /// Pins the range, or says why it cannot (RLIMIT_MEMLOCK).
    #[cfg_attr(feature = "faults", track_caller)]
    pub fn new(fd: impl AsFd, offset: u64, length: usize) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address the kernel chooses.
        let map = || unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, &fd, offset)
        };
        let address = points::mmap(map)?;
        let address = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at null"))?;
        let this = Pin { address, length };
        // SAFETY: locking changes no content; an error leaves the mapping to Drop.
        unsafe { rustix::mm::mlock(address.as_ptr().cast(), length) }?;
        Ok(this)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, never handed out.
        let _ = unsafe { unmap(self.address, self.length) };
    }
}
