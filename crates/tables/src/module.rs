//! By the kernel module segshm (`kernel/segshm`), which shares tables of 4 KiB pages.

use crate::engine::{Engine, Made};
use crate::hugetlb::HUGE;
use crate::map::{Attachment, place};
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// What the module is opened by.
pub const DEVICE: &str = "/dev/segshm";
/// The version of its interface that is spoken here. (`kernel/segshm/uapi/segshm.h`)
const INTERFACE: i32 = 3;

const VERSION: u64 = 0xe700;
const CREATE: u64 = 0x4010_e701;
const USAGE: u64 = 0xc028_e702;
const REOPEN: u64 = 0x4004_e703;
const INFO: u64 = 0x8028_e710;
const READ_ONLY: u64 = 0xe711;
const MEMORY: u64 = 0xe712;

/// The module, loaded and new enough. Who makes segments has it; who attaches them needs no device.
#[derive(Debug)]
pub struct Module {
    device: Option<OwnedFd>,
}

/// What the module tells of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Bytes.
    pub size_bytes: u64,
    /// Page tables that there are, however many processes attach it.
    pub tables: u64,
    /// Entries of directories that point to them, of all processes.
    pub entries: u64,
    /// Mappings of it, of all processes.
    pub mappings: u64,
    /// By this descriptor it is attached to write, too.
    pub writes: bool,
}

impl Module {
    /// Opens the device: root's to do.
    ///
    /// # Errors
    /// `Unsupported`, and what to do, where the module is not loaded, or is too old.
    pub fn open() -> io::Result<Module> {
        let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let device = device.map_err(|errno| match errno {
            Errno::NOENT | Errno::NXIO | Errno::NODEV => unsupported(
                "page tables of 4 KiB pages are shared by the kernel module segshm, which is not loaded: build and load \
                 it (kernel/segshm/README.md), or share those of huge pages",
            ),
            other => other.into(),
        })?;
        // SAFETY: the request takes no argument.
        let version = unsafe { control(device.as_fd(), VERSION, std::ptr::null_mut()) }?;
        if version < INTERFACE {
            return Err(unsupported(&format!(
                "the kernel module segshm speaks version {version} of its interface, and {INTERFACE} is needed: build and \
                 load the one that came with this program"
            )));
        }
        Ok(Module { device: Some(device) })
    }

    /// For a process that attaches segments, and makes none.
    pub const fn without_device() -> Module {
        Module { device: None }
    }

    /// What the module tells of a segment.
    pub fn info(segment: BorrowedFd<'_>) -> io::Result<SegmentInfo> {
        // struct segshm_info: size, tables, entries, mappings; owner and flags.
        let mut told = [0u64; 5];
        // SAFETY: the kernel fills a structure of that size.
        unsafe { control(segment, INFO, told.as_mut_ptr().cast()) }?;
        let [size_bytes, tables, entries, mappings, last] = told;
        Ok(SegmentInfo { size_bytes, tables, entries, mappings, writes: last >> 32 & 1 == 1 })
    }

    /// Bytes of memory that a user's segments have.
    pub fn bytes_of(&self, owner: u32) -> io::Result<u64> {
        let device = self.device.as_ref().ok_or(Errno::PERM)?;
        // struct segshm_usage: owner and reserved; bytes and their limit, tables and their limit.
        let mut told = [u64::from(owner), 0, 0, 0, 0];
        // SAFETY: the kernel reads and fills a structure of that size.
        unsafe { control(device.as_fd(), USAGE, told.as_mut_ptr().cast()) }?;
        Ok(told[1])
    }

    /// A descriptor to write, of a segment of which another process has any.
    ///
    /// # Errors
    /// `InvalidInput`: it is no segment's.
    pub fn reopen(&self, segment: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let device = self.device.as_ref().ok_or(Errno::PERM)?;
        let mut number = segment.as_raw_fd();
        new_descriptor(device.as_fd(), REOPEN, (&raw mut number).cast())
    }

    /// The segment's memory, for what the descriptor is for: to be read, written by calls, and mapped with tables of a
    /// process's own.
    pub fn memory(segment: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        new_descriptor(segment, MEMORY, std::ptr::null_mut())
    }
}

impl Engine for Module {
    fn unit_bytes(&self) -> u64 {
        HUGE
    }

    fn check_address(&self, address: u64) -> io::Result<()> {
        if address.is_multiple_of(HUGE) {
            return Ok(());
        }
        let nearest = address.saturating_add(HUGE / 2) / HUGE * HUGE;
        let text = format!(
            "page tables of 4 KiB pages are shared at multiples of 2 MiB, and {address:#x} is none: the nearest is {:#x}; or \
             leave the address out",
            nearest.max(HUGE)
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    fn make(&self, label: &str, size_bytes: u64, owner: u32) -> io::Result<Made> {
        let device = self.device.as_ref().ok_or(Errno::PERM)?;
        let size_bytes = size_bytes.checked_next_multiple_of(HUGE).ok_or(Errno::FBIG)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL;
        let memory = rustix::fs::memfd_create(label, flags)?;
        rustix::fs::fchmod(&memory, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::ftruncate(&memory, size_bytes)?;
        rustix::fs::fallocate(&memory, FallocateFlags::empty(), 0, size_bytes)?;
        rustix::fs::fcntl_add_seals(&memory, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        // struct segshm_create: memfd, owner, flags, reserved.
        let mut wanted = [memory.as_raw_fd().cast_unsigned(), owner, 0, 0];
        let descriptor = new_descriptor(device.as_fd(), CREATE, wanted.as_mut_ptr().cast())?;
        Ok(Made { descriptor, held: None })
    }

    fn for_readers(&self, segment: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        new_descriptor(segment, READ_ONLY, std::ptr::null_mut())
    }

    fn attach(
        &self,
        segment: BorrowedFd<'_>,
        size_bytes: u64,
        at: Option<u64>,
        writes: bool,
    ) -> io::Result<Attachment> {
        let length = usize::try_from(size_bytes.next_multiple_of(HUGE)).map_err(|_| Errno::NOMEM)?;
        at.map_or(Ok(()), |at| self.check_address(at))?;
        place(segment, 0, length, at, protection(writes), MapFlags::SHARED)
    }

    fn attach_own(
        &self,
        segment: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        at: Option<u64>,
        writes: bool,
    ) -> io::Result<Attachment> {
        let memory = Module::memory(segment)?;
        place(memory, offset, length, at, protection(writes), MapFlags::SHARED)
    }
}

fn protection(writes: bool) -> ProtFlags {
    if writes { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ }
}

fn unsupported(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, text)
}

fn new_descriptor(fd: BorrowedFd<'_>, request: u64, argument: *mut libc::c_void) -> io::Result<OwnedFd> {
    // SAFETY: the argument is what the request asks for, or the request takes none.
    let number = unsafe { control(fd, request, argument) }?;
    // SAFETY: the module has just opened it for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// # Safety
/// The argument is what the request asks for.
unsafe fn control(fd: BorrowedFd<'_>, request: u64, argument: *mut libc::c_void) -> io::Result<i32> {
    // SAFETY: the caller's promise.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), request as _, argument) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}
