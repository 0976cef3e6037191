//! userfaultfd(2): faults of registered memory arrive as messages, and this is how they are answered.
//!
//! The structures are the kernel's (include/uapi/linux/userfaultfd.h, Linux 6.7). Everything works on the
//! address space of whoever *created* the descriptor, whoever holds it: that is how a host serves its clients.

use rustix::io::Errno;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

const UFFD_API: u64 = 0xaa;
const FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
const FEATURE_MISSING_SHMEM: u64 = 1 << 5;
const FEATURE_SIGBUS: u64 = 1 << 7;
const FEATURE_MINOR_SHMEM: u64 = 1 << 10;
const FEATURE_WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
const FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const FEATURE_POISON: u64 = 1 << 14;
const FEATURE_WP_ASYNC: u64 = 1 << 15;
const USER_MODE_ONLY: libc::c_int = 1;

/// How first writes to protected pages are noticed, and who answers faults. Fixed when a descriptor is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The kernel lets the write through and notes it in the page table (a scan finds it).
    Asynchronous,
    /// The write waits for an answer.
    Synchronous,
    /// As `Asynchronous`, but faults raise SIGBUS in the faulting thread, which asks for itself.
    InThread,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; 3] = [Kind::Asynchronous, Kind::Synchronous, Kind::InThread];

    fn features(self) -> u64 {
        let all = FEATURE_PAGEFAULT_FLAG_WP
            | FEATURE_MISSING_SHMEM
            | FEATURE_MINOR_SHMEM
            | FEATURE_WP_HUGETLBFS_SHMEM
            | FEATURE_WP_UNPOPULATED
            | FEATURE_POISON;
        match self {
            Kind::Asynchronous => all | FEATURE_WP_ASYNC,
            Kind::Synchronous => all,
            Kind::InThread => all | FEATURE_WP_ASYNC | FEATURE_SIGBUS,
        }
    }

    /// A small number for tables.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// What is to be noticed about a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes {
    /// First touches of pages that have no frame.
    pub missing: bool,
    /// First touches of pages that have one.
    pub minor: bool,
    /// Writes to protected pages.
    pub write_protect: bool,
}

/// A fault that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The page's address.
    pub address: u64,
    /// The access was a write.
    pub write: bool,
    /// The page has no frame (neither `minor` nor `protected`).
    pub missing: bool,
    /// The page has a frame and is protected against writes.
    pub protected: bool,
}

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Range {
    start: u64,
    len: u64,
}

#[repr(C)]
struct Register {
    range: Range,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Copy {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    copied: i64,
}

/// The kernel's uffdio_continue, uffdio_poison and uffdio_zeropage: a range, a mode, and bytes done.
#[repr(C)]
struct RangeModeDone {
    range: Range,
    mode: u64,
    done: i64,
}

#[repr(C)]
struct WriteProtect {
    range: Range,
    mode: u64,
}

/// struct uffd_msg: 32 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread: u64,
}

const EVENT_PAGEFAULT: u8 = 0x12;
const FLAG_WRITE: u64 = 1;
const FLAG_WP: u64 = 2;
const FLAG_MINOR: u64 = 4;

const fn request(direction: u64, number: u64, size: usize) -> libc::c_ulong {
    (direction << 30) | ((size as u64) << 16) | (0xaa << 8) | number
}
const READ_WRITE: u64 = 3;
const READ: u64 = 2;
const UFFDIO_API: libc::c_ulong = request(READ_WRITE, 0x3f, size_of::<Api>());
const UFFDIO_REGISTER: libc::c_ulong = request(READ_WRITE, 0x00, size_of::<Register>());
const UFFDIO_UNREGISTER: libc::c_ulong = request(READ, 0x01, size_of::<Range>());
const UFFDIO_WAKE: libc::c_ulong = request(READ, 0x02, size_of::<Range>());
const UFFDIO_COPY: libc::c_ulong = request(READ_WRITE, 0x03, size_of::<Copy>());
const UFFDIO_WRITEPROTECT: libc::c_ulong = request(READ_WRITE, 0x06, size_of::<WriteProtect>());
const UFFDIO_CONTINUE: libc::c_ulong = request(READ_WRITE, 0x07, size_of::<RangeModeDone>());
const UFFDIO_POISON: libc::c_ulong = request(READ_WRITE, 0x08, size_of::<RangeModeDone>());
/// _IO(0xAA, 0x00) on /dev/userfaultfd.
const USERFAULTFD_IOC_NEW: libc::c_ulong = 0xaa00;

/// Bytes a call dealt with before it stopped, and why it stopped early if it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes from the start of the range.
    pub done: u64,
    /// `None`: all of it.
    pub stopped_by: Option<Errno>,
}

/// A userfaultfd, of this process or of another that passed it here.
#[derive(Debug)]
pub struct Userfaultfd(OwnedFd);

impl Userfaultfd {
    /// Makes one for the calling process: from `device` (an open /dev/userfaultfd, perhaps passed by a
    /// privileged host), else by the system call. Without privilege and device it notices only faults of
    /// user-mode instructions; the second result says whether the kernel's own accesses are noticed too.
    pub fn create(kind: Kind, device: Option<BorrowedFd<'_>>) -> io::Result<(Self, bool)> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        let (fd, kernel_faults) = match device {
            Some(device) => {
                // SAFETY: USERFAULTFD_IOC_NEW takes its flags by value and touches no memory of ours.
                let fd = unsafe { libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW, flags) };
                (fd, true)
            }
            None => Self::by_system_call(flags),
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fd was just returned by the kernel and belongs to nobody else.
        let this = Userfaultfd(unsafe { OwnedFd::from_raw_fd(fd) });
        let mut api = Api { api: UFFD_API, features: kind.features(), ioctls: 0 };
        this.ioctl(UFFDIO_API, &mut api)?;
        Ok((this, kernel_faults))
    }

    fn by_system_call(flags: libc::c_int) -> (libc::c_int, bool) {
        // SAFETY: userfaultfd(2) takes its flags by value and touches no memory.
        let full = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) } as libc::c_int;
        if full >= 0 {
            return (full, true);
        }
        // SAFETY: as above.
        (unsafe { libc::syscall(libc::SYS_userfaultfd, flags | USER_MODE_ONLY) } as libc::c_int, false)
    }

    /// Opens /dev/userfaultfd, if this process may.
    pub fn open_device() -> io::Result<OwnedFd> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open("/dev/userfaultfd")?;
        Ok(file.into())
    }

    /// Takes a descriptor that another process made.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Userfaultfd(fd)
    }

    fn ioctl<T>(&self, request: libc::c_ulong, argument: &mut T) -> Result<(), Errno> {
        // SAFETY: every request above names a structure of the size of T (each call passes the structure that
        // its request was computed from), and the kernel writes only inside it. The kernel checks addresses in
        // the structure against the address space the descriptor belongs to; a `src` is checked as a read.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), request, argument as *mut T) };
        if result == 0 {
            Ok(())
        } else {
            Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
        }
    }

    /// Starts noticing what `modes` names in the range.
    pub fn register(&self, start: u64, len: u64, modes: Modes) -> Result<(), Errno> {
        let mode =
            u64::from(modes.missing) | u64::from(modes.write_protect) << 1 | u64::from(modes.minor) << 2;
        self.ioctl(UFFDIO_REGISTER, &mut Register { range: Range { start, len }, mode, ioctls: 0 })
    }

    /// Stops noticing.
    pub fn unregister(&self, start: u64, len: u64) -> Result<(), Errno> {
        self.ioctl(UFFDIO_UNREGISTER, &mut Range { start, len })
    }

    /// Lets every thread that waits in the range try again.
    pub fn wake(&self, start: u64, len: u64) -> Result<(), Errno> {
        self.ioctl(UFFDIO_WAKE, &mut Range { start, len })
    }

    /// Makes frames from `bytes` and maps them at `start`, protected against unnoticed writes when `protect`.
    /// Wakes who waits there.
    pub fn copy(&self, start: u64, bytes: &[u8], protect: bool) -> Progress {
        // SAFETY: a slice's own pointer and length are readable.
        unsafe { self.copy_raw(start, bytes.as_ptr(), bytes.len() as u64, protect) }
    }

    /// As [`copy`](Self::copy), from memory that may vanish (a mapped file): the kernel reads it, and a page of
    /// it that is gone stops the call with an error.
    ///
    /// # Safety
    /// `source .. source + len` must be mapped, if only to a file that may be truncated.
    pub unsafe fn copy_raw(&self, start: u64, source: *const u8, len: u64, protect: bool) -> Progress {
        let mut done = 0;
        loop {
            let mut copy = Copy {
                dst: start + done,
                src: source as u64 + done,
                len: len - done,
                mode: u64::from(protect) << 1,
                copied: 0,
            };
            let result = self.ioctl(UFFDIO_COPY, &mut copy);
            // The field is signed: negative is an errno, not a length.
            done += u64::try_from(copy.copied).unwrap_or(0);
            match result {
                Ok(()) => return Progress { done, stopped_by: None },
                Err(Errno::AGAIN) if done < len => continue,
                Err(errno) => return Progress { done, stopped_by: Some(errno) },
            }
        }
    }

    /// Maps frames that exist already at `start`. Wakes who waits there.
    pub fn continue_(&self, start: u64, len: u64, protect: bool) -> Progress {
        self.range_mode(UFFDIO_CONTINUE, start, len, u64::from(protect) << 1)
    }

    /// Makes every touch of the range raise SIGBUS (EFAULT for the kernel's own). Wakes who waits there.
    pub fn poison(&self, start: u64, len: u64) -> Progress {
        self.range_mode(UFFDIO_POISON, start, len, 0)
    }

    fn range_mode(&self, request: libc::c_ulong, start: u64, len: u64, mode: u64) -> Progress {
        let mut done = 0;
        loop {
            let range = Range { start: start + done, len: len - done };
            let mut argument = RangeModeDone { range, mode, done: 0 };
            let result = self.ioctl(request, &mut argument);
            done += u64::try_from(argument.done).unwrap_or(0);
            match result {
                Ok(()) => return Progress { done, stopped_by: None },
                Err(Errno::AGAIN) if done < len => continue,
                Err(errno) => return Progress { done, stopped_by: Some(errno) },
            }
        }
    }

    /// Protects the range, so that the next write to each page is noticed. When this returns, no write by an
    /// instruction is still under way (FINDINGS: writes by pinned I/O escape).
    pub fn protect(&self, start: u64, len: u64) -> Result<(), Errno> {
        self.write_protect(start, len, 1)
    }

    /// Allows writes again, and wakes who waits there.
    pub fn unprotect(&self, start: u64, len: u64) -> Result<(), Errno> {
        self.write_protect(start, len, 0)
    }

    fn write_protect(&self, start: u64, len: u64, mode: u64) -> Result<(), Errno> {
        loop {
            match self.ioctl(UFFDIO_WRITEPROTECT, &mut WriteProtect { range: Range { start, len }, mode }) {
                Err(Errno::AGAIN) => continue,
                other => return other,
            }
        }
    }

    /// Takes the faults that wait, at most [`FAULTS_AT_ONCE`], into `faults` (emptied first). No wait: none is
    /// an empty list.
    pub fn read_faults(&self, faults: &mut Vec<Fault>) -> Result<(), Errno> {
        faults.clear();
        let mut messages =
            [Message { event: 0, reserved: [0; 7], flags: 0, address: 0, thread: 0 }; FAULTS_AT_ONCE];
        // SAFETY: the buffer is plain data of exactly the size given; any bytes are valid for Message.
        let n =
            unsafe { libc::read(self.0.as_raw_fd(), messages.as_mut_ptr().cast(), size_of_val(&messages)) };
        if n < 0 {
            return match Errno::from_io_error(&io::Error::last_os_error()) {
                Some(Errno::AGAIN | Errno::INTR) => Ok(()),
                Some(errno) => Err(errno),
                None => Err(Errno::IO),
            };
        }
        let count = n as usize / size_of::<Message>();
        faults.extend(messages[..count].iter().filter(|m| m.event == EVENT_PAGEFAULT).map(|m| Fault {
            address: m.address & !4095,
            write: m.flags & (FLAG_WRITE | FLAG_WP) != 0,
            missing: m.flags & (FLAG_WP | FLAG_MINOR) == 0,
            protected: m.flags & FLAG_WP != 0,
        }));
        Ok(())
    }
}

/// Most faults that one read takes.
pub const FAULTS_AT_ONCE: usize = 32;

impl AsFd for Userfaultfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Userfaultfd> for OwnedFd {
    fn from(this: Userfaultfd) -> OwnedFd {
        this.0
    }
}
