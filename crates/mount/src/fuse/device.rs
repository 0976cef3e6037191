//! `/dev/fuse`: reading requests, answering them, telling the kernel what changed. All unsafe code of this crate is here.

use super::bytes::Writer;
use super::flags::notify;
use commonhold_sys::memory;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// Longest write that the kernel may send, bytes.
pub const WRITE_BYTES: usize = 256 * 1024;
/// What a request has beside its data.
const HEADER_BYTES: usize = 4096;

/// The descriptor that a mount hangs on. Clones are the same.
#[derive(Clone, Debug)]
pub struct Device {
    fd: Arc<OwnedFd>,
}

/// What came of an attempt to read.
pub enum Received {
    /// A message, in the buffer, so long.
    Message(usize),
    /// Nothing: try again.
    Nothing,
    /// The mount is no more.
    Unmounted,
}

impl Device {
    /// Opens the device, for a new mount.
    pub fn open() -> io::Result<Device> {
        let fd = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Device { fd: Arc::new(fd) })
    }

    /// Goes on with that of a mount.
    pub fn of(fd: Arc<OwnedFd>) -> Device {
        Device { fd }
    }

    /// The descriptor.
    pub fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// A buffer that holds any request, and is in memory before the first one comes. To a process that is killed meanwhile the
    /// kernel gives no further page: a request that it was copying there it would not send to the next server, but fail with EIO.
    pub fn buffer() -> Vec<u8> {
        let mut buffer = vec![1; WRITE_BYTES + HEADER_BYTES]; // of zeros the pages would come when they are used
        if let Some(start) = NonNull::new(buffer.as_mut_ptr()) {
            // An ordinary user may be allowed less: then it stays in memory while there is enough.
            let _ = memory::lock(start, buffer.len());
        }
        buffer
    }

    /// Waits for a request.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        match rustix::io::read(&*self.fd, buffer) {
            Ok(length) => Ok(Received::Message(length)),
            // ENOENT: whoever asked was killed before this could be read.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => Ok(Received::Nothing),
            Err(Errno::NODEV | Errno::CONNABORTED) => Ok(Received::Unmounted),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Answers a request. A request that nobody waits for any more takes no answer: that is no error.
    pub fn answer(&self, unique: u64, answer: Result<&[u8], Errno>) -> io::Result<()> {
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(errno) => (-errno.raw_os_error(), &[][..]),
        };
        self.say(unique, error, body)
    }

    /// Tells that bytes of a node are not what the kernel has of them; of what was written to them here it is told first. Waits for
    /// those who use them: not for a thread that answers.
    pub fn invalidate(&self, node: u64, offset: i64, length: i64) -> io::Result<()> {
        let mut body = Writer::default();
        body.u64(node).u64(offset.cast_unsigned()).u64(length.cast_unsigned());
        self.say(0, notify::INVAL_INODE, &body.0)
    }

    /// Has the kernel send again what was read, and not answered, by who served before.
    pub fn resend(&self) -> io::Result<()> {
        self.say(0, notify::RESEND, &[])
    }

    fn say(&self, unique: u64, error: i32, body: &[u8]) -> io::Result<()> {
        let mut header = Writer::default();
        header.u32((16 + body.len()) as u32).u32(error.cast_unsigned()).u64(unique);
        match rustix::io::writev(&*self.fd, &[IoSlice::new(&header.0), IoSlice::new(body)]) {
            Ok(_) | Err(Errno::NOENT | Errno::NODEV) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Gives the kernel a file that it reads, writes and maps itself for whom OPEN says so. Gives its number. Needs CAP_SYS_ADMIN.
    pub fn pass_through(&self, file: BorrowedFd<'_>) -> io::Result<i32> {
        // struct fuse_backing_map: a descriptor, flags, padding.
        let map = [file.as_raw_fd().cast_unsigned(), 0, 0, 0];
        self.control(BACKING_OPEN, map.as_ptr().cast())
    }

    /// It is given through no longer, but for whoever has it open.
    pub fn pass_no_longer(&self, backing: i32) -> io::Result<()> {
        self.control(BACKING_CLOSE, (&raw const backing).cast()).map(drop)
    }

    fn control(&self, request: libc::c_ulong, argument: *const libc::c_void) -> io::Result<i32> {
        // SAFETY: both requests of this file read a struct of the size that their number says, which the callers give.
        let result = unsafe { libc::ioctl(self.fd.as_fd().as_raw_fd(), request as _, argument) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }
}

/// `_IOW(229, 1, struct fuse_backing_map)`.
const BACKING_OPEN: libc::c_ulong = 0x4010_e501;
/// `_IOW(229, 2, uint32_t)`.
const BACKING_CLOSE: libc::c_ulong = 0x4004_e502;
