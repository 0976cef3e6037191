//! userfaultfd(2): faults of registered memory arrive as messages, and this is how they are answered.
//!
//! The structures are the kernel's (include/uapi/linux/userfaultfd.h, Linux 6.7). Everything works on the
//! address space of whoever *created* the descriptor, whoever holds it: that is how a host serves its clients.

use crate::alarm;
use commonhold_points as points;
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

    /// The features that a descriptor of this kind has, and no others: with `EVENT_REMOVE`, say, its owner could make
    /// every answer fail with EAGAIN for ever.
    pub fn features(self) -> u64 {
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

impl Message {
    const NONE: Message = Message { event: 0, reserved: [0; 7], flags: 0, address: 0, thread: 0 };
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

/// The kernel's mark for "UFFDIO_API was called", which its list of features includes.
const INITIALIZED: u64 = 1 << 31;
/// Most times in a row that a call is repeated because the kernel says "again" and did nothing: an address space that
/// changes under the call says so once or twice, and one whose owner wants to hold the caller up says so always.
const VAIN_ROUNDS: u32 = 1000;

const PAGE: u64 = 4096;
/// Nothing is mapped below (vm.mmap_min_addr); the kernel refuses ranges that begin there.
const LOWEST: u64 = 1 << 16;

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

    /// The features it was made with (/proc/self/fdinfo).
    pub fn features_of(fd: BorrowedFd<'_>) -> io::Result<u64> {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
        let api = info.lines().find_map(|line| line.strip_prefix("API:"));
        let features = api.and_then(|api| api.trim().split(':').nth(1));
        features.and_then(|hex| u64::from_str_radix(hex, 16).ok()).map(|all| all & !INITIALIZED).ok_or_else(
            || {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    "/proc/self/fdinfo does not tell the descriptor's features",
                )
            },
        )
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

    /// Lets every thread that waits anywhere in the address space try again: also those whose faults were read by somebody
    /// who did not live to answer them.
    pub fn wake_all(&self) -> Result<(), Errno> {
        // The kernel takes no range past the end of the address space, which lies elsewhere from machine to machine.
        let to_end_of = |bits: u32| self.wake(LOWEST, (1 << bits) - PAGE - LOWEST);
        let mut outcome = Ok(());
        for bits in [56, 52, 48, 47, 42, 39] {
            outcome = to_end_of(bits);
            if outcome != Err(Errno::INVAL) {
                break;
            }
        }
        outcome
    }

    /// Makes frames from `bytes` and maps them at `start`, protected against unnoticed writes when `protect`.
    /// Wakes who waits there.
    #[cfg_attr(feature = "faults", track_caller)]
    pub fn copy(&self, start: u64, bytes: &[u8], protect: bool) -> Progress {
        // SAFETY: a slice's own pointer and length are readable.
        unsafe { self.copy_raw(start, bytes.as_ptr(), bytes.len() as u64, protect) }
    }

    /// As [`copy`](Self::copy), from memory that may vanish (a mapped file): the kernel reads it, and a page of
    /// it that is gone stops the call with an error.
    ///
    /// # Safety
    /// `source .. source + len` must be mapped, if only to a file that may be truncated.
    #[cfg_attr(feature = "faults", track_caller)]
    pub unsafe fn copy_raw(&self, start: u64, source: *const u8, len: u64, protect: bool) -> Progress {
        let mut done = 0;
        let mut vain = 0;
        loop {
            let mut copy = Copy {
                dst: start + done,
                src: source as u64 + done,
                len: len - done,
                mode: u64::from(protect) << 1,
                copied: 0,
            };
            let result = points::copy(|| self.ioctl(UFFDIO_COPY, &mut copy));
            // The field is signed: negative is an errno, not a length.
            let more = u64::try_from(copy.copied).unwrap_or(0);
            done += more;
            vain = if more == 0 { vain + 1 } else { 0 };
            match result {
                Ok(()) => return Progress { done, stopped_by: None },
                Err(Errno::AGAIN) if done < len && vain < VAIN_ROUNDS => continue,
                Err(errno) => return Progress { done, stopped_by: Some(errno) },
            }
        }
    }

    /// How the kernel refuses to copy from `source`, which cannot be read. Nothing is changed, and nobody woken.
    pub(crate) fn refusal_of_copy(&self, start: u64, source: u64, len: u64) -> Option<Errno> {
        const DONT_WAKE: u64 = 1;
        let mut copy = Copy { dst: start, src: source, len, mode: DONT_WAKE, copied: 0 };
        self.ioctl(UFFDIO_COPY, &mut copy).err()
    }

    /// Maps frames that exist already at `start`. Wakes who waits there.
    #[cfg_attr(feature = "faults", track_caller)]
    pub fn continue_(&self, start: u64, len: u64, protect: bool) -> Progress {
        self.range_mode(UFFDIO_CONTINUE, start, len, u64::from(protect) << 1)
    }

    /// Makes every touch of the range raise SIGBUS (EFAULT for the kernel's own). Wakes who waits there.
    #[cfg_attr(feature = "faults", track_caller)]
    pub fn poison(&self, start: u64, len: u64) -> Progress {
        self.range_mode(UFFDIO_POISON, start, len, 0)
    }

    #[cfg_attr(feature = "faults", track_caller)]
    fn range_mode(&self, request: libc::c_ulong, start: u64, len: u64, mode: u64) -> Progress {
        let mut done = 0;
        let mut vain = 0;
        loop {
            let range = Range { start: start + done, len: len - done };
            let mut argument = RangeModeDone { range, mode, done: 0 };
            let result = match request {
                UFFDIO_POISON => points::poison(|| self.ioctl(request, &mut argument)),
                _ => points::continue_(|| self.ioctl(request, &mut argument)),
            };
            let more = u64::try_from(argument.done).unwrap_or(0);
            done += more;
            vain = if more == 0 { vain + 1 } else { 0 };
            match result {
                Ok(()) => return Progress { done, stopped_by: None },
                Err(Errno::AGAIN) if done < len && vain < VAIN_ROUNDS => continue,
                Err(errno) => return Progress { done, stopped_by: Some(errno) },
            }
        }
    }

    /// Protects the range, so that the next write to each page is noticed. When this returns, no write by an
    /// instruction is still under way (FINDINGS: writes by pinned I/O escape).
    #[cfg_attr(feature = "faults", track_caller)]
    pub fn protect(&self, start: u64, len: u64) -> Result<(), Errno> {
        self.write_protect(start, len, 1)
    }

    /// Allows writes again, and wakes who waits there.
    #[cfg_attr(feature = "faults", track_caller)]
    pub fn unprotect(&self, start: u64, len: u64) -> Result<(), Errno> {
        self.write_protect(start, len, 0)
    }

    /// Drops the markers that protection left where there is no page any more. Wakes nobody.
    #[cfg_attr(feature = "faults", track_caller)]
    pub fn drop_markers(&self, start: u64, len: u64) -> Result<(), Errno> {
        self.write_protect(start, len, 2)
    }

    #[cfg_attr(feature = "faults", track_caller)]
    fn write_protect(&self, start: u64, len: u64, mode: u64) -> Result<(), Errno> {
        for _ in 0..VAIN_ROUNDS {
            let mut argument = WriteProtect { range: Range { start, len }, mode };
            match points::protect(|| self.ioctl(UFFDIO_WRITEPROTECT, &mut argument)) {
                Err(Errno::AGAIN) => continue,
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Reads without waiting even where the descriptor's owner has cleared O_NONBLOCK, which is a flag of the
    /// description that it shares with whoever serves it.
    fn read_now(&self, messages: &mut [Message; FAULTS_AT_ONCE]) -> Result<usize, Errno> {
        let part = libc::iovec {
            iov_base: messages.as_mut_ptr().cast(),
            iov_len: size_of::<[Message; FAULTS_AT_ONCE]>(),
        };
        // SAFETY: one buffer, of exactly the size given, which is plain data: any bytes are valid for Message. The
        // offset -1 means the descriptor's own position.
        let n = unsafe { libc::preadv2(self.0.as_raw_fd(), &part, 1, -1, libc::RWF_NOWAIT) };
        usize::try_from(n).map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    }

    /// Sets O_NONBLOCK: without it the descriptor cannot be polled.
    pub fn set_nonblocking(&self) -> Result<(), Errno> {
        let flags = rustix::fs::fcntl_getfl(&self.0)?;
        rustix::fs::fcntl_setfl(&self.0, flags | rustix::fs::OFlags::NONBLOCK)
    }

    /// Takes the faults that wait, at most [`FAULTS_AT_ONCE`], into `faults` (emptied first). No wait: none is
    /// an empty list.
    pub fn read_faults(&self, faults: &mut Vec<Fault>) -> Result<(), Errno> {
        match self.read_faults_surely(faults) {
            // Not known to this kernel: the flag does it, and where its owner clears it meanwhile, a signal.
            Err(Errno::OPNOTSUPP) => {
                self.set_nonblocking()?;
                let mut messages = [Message::NONE; FAULTS_AT_ONCE];
                take(self.read_for_a_moment(&mut messages), &messages, faults)
            }
            other => other,
        }
    }

    /// A read that ends after some milliseconds, whether or not it may wait: then with `INTR`.
    fn read_for_a_moment(&self, messages: &mut [Message; FAULTS_AT_ONCE]) -> Result<usize, Errno> {
        alarm::interrupting(|| rustix::io::read(&self.0, bytes_of(messages)))
    }

    /// As [`read_faults`](Self::read_faults), but `OPNOTSUPP` from a kernel (before 6.10) on which the descriptor's owner
    /// could make the reader wait: for those who must not, whatever the owner does.
    pub fn read_faults_surely(&self, faults: &mut Vec<Fault>) -> Result<(), Errno> {
        let mut messages = [Message::NONE; FAULTS_AT_ONCE];
        take(self.read_now(&mut messages), &messages, faults)
    }
}

/// The faults among the messages that a read gave.
fn take(
    read: Result<usize, Errno>,
    messages: &[Message; FAULTS_AT_ONCE],
    faults: &mut Vec<Fault>,
) -> Result<(), Errno> {
    faults.clear();
    let n = match read {
        Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
        other => other?,
    };
    let count = n / size_of::<Message>();
    faults.extend(messages[..count].iter().filter(|m| m.event == EVENT_PAGEFAULT).map(|m| Fault {
        address: m.address & !4095,
        write: m.flags & (FLAG_WRITE | FLAG_WP) != 0,
        missing: m.flags & (FLAG_WP | FLAG_MINOR) == 0,
        protected: m.flags & FLAG_WP != 0,
    }));
    Ok(())
}

/// The buffer as bytes.
fn bytes_of(messages: &mut [Message; FAULTS_AT_ONCE]) -> &mut [u8] {
    // SAFETY: Message is 32 bytes of plain data without padding (checked below); any bytes are valid for it.
    unsafe {
        std::slice::from_raw_parts_mut(messages.as_mut_ptr().cast(), size_of::<[Message; FAULTS_AT_ONCE]>())
    }
}

const _: () = assert!(size_of::<Message>() == 32);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_of_a_descriptor_are_those_of_its_kind() {
        for kind in Kind::ALL {
            let (uffd, _) = Userfaultfd::create(kind, None).unwrap();
            assert_eq!(Userfaultfd::features_of(uffd.as_fd()).unwrap(), kind.features());
        }
        assert!(Userfaultfd::features_of(std::fs::File::open("/dev/null").unwrap().as_fd()).is_err());
    }

    #[test]
    fn everybody_can_be_woken_at_once() {
        let (uffd, _) = Userfaultfd::create(Kind::Asynchronous, None).unwrap();
        uffd.wake_all().unwrap();
    }

    #[test]
    fn reading_does_not_wait_even_if_the_owner_made_it_a_blocking_one() {
        let (uffd, _) = Userfaultfd::create(Kind::Asynchronous, None).unwrap();
        let flags = rustix::fs::fcntl_getfl(&uffd).unwrap();
        rustix::fs::fcntl_setfl(&uffd, flags - rustix::fs::OFlags::NONBLOCK).unwrap();
        let mut faults = vec![Fault { address: 0, write: false, missing: false, protected: false }];
        uffd.read_faults(&mut faults).unwrap();
        assert!(faults.is_empty());
        // As on a kernel whose reads wait because the owner was quicker.
        let waited = uffd.read_for_a_moment(&mut [Message::NONE; FAULTS_AT_ONCE]);
        assert_eq!(waited, Err(Errno::INTR));
    }
}
