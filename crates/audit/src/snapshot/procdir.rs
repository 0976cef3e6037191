//! The directory of one process in procfs, held open: a pid that is given to another process meanwhile is not followed.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxFlags, openat, readlinkat, statx};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open `/proc/PID`.
#[derive(Clone, Debug)]
pub struct ProcDir {
    directory: Arc<OwnedFd>,
    /// Its pid, by the directory's name.
    pub pid: u32,
}

impl ProcDir {
    /// Opens the directory of a process.
    pub fn open(proc_root: &Path, pid: u32) -> io::Result<Self> {
        let path = proc_root.join(pid.to_string());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { directory: Arc::new(openat(CWD, &path, flags, Mode::empty())?), pid })
    }

    /// Opens a file in it for reading.
    pub fn file(&self, name: &str) -> io::Result<std::fs::File> {
        Ok(openat(&*self.directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?.into())
    }

    /// A whole (short) file of it.
    pub fn bytes(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(2048);
        self.file(name)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Where a link of it leads, as text.
    pub fn link(&self, name: &str) -> io::Result<PathBuf> {
        let text = readlinkat(&*self.directory, name, Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(text.into_bytes())))
    }

    /// The inode in a namespace link such as `mnt:[4026531841]`.
    pub fn namespace(&self, name: &str) -> Option<u64> {
        let link = self.link(name).ok()?;
        link.to_str()?.split_once('[')?.1.strip_suffix(']')?.parse().ok()
    }

    /// Device and inode of its root directory, without asking a server of a network.
    pub fn root(&self) -> Option<(u64, u64)> {
        Some(identity(&stat(&*self.directory, "root", AtFlags::empty()).ok()?))
    }
}

impl AsFd for ProcDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// What is known of a file without asking a server, and without mounting anything.
pub fn stat(directory: impl AsFd, path: impl rustix::path::Arg, flags: AtFlags) -> Result<Statx, Errno> {
    let flags = flags | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    statx(directory, path, flags, StatxFlags::BASIC_STATS)
}

/// Device and inode.
pub fn identity(stat: &Statx) -> (u64, u64) {
    (rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino)
}

/// A process that is no more says so in several ways.
pub fn has_ended(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH))
}

/// The kernel, or the mount's options, forbid it.
pub fn is_forbidden(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::ACCESS | Errno::PERM))
}
