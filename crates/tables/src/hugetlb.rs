//! The memory of a segment: a file of huge pages, all of which are there before anybody maps it.

use crate::map::{Attachment, attach};
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Bytes of a page of a segment.
pub const HUGE: u64 = 2 << 20;

/// Makes a segment of `size_bytes`, which is rounded up to whole huge pages; all of them are taken from the machine's pool now.
///
/// # Errors
/// `Unsupported` without huge pages of 2 MiB, `StorageFull` where the pool has too few: nothing is kept then.
pub fn make(label: &str, size_bytes: u64) -> io::Result<OwnedFd> {
    let size_bytes = size_bytes.checked_next_multiple_of(HUGE).ok_or(Errno::FBIG)?;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let fd = match rustix::fs::memfd_create(label, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(label, flags),
        other => other,
    };
    let fd = fd.map_err(|errno| match errno {
        Errno::INVAL | Errno::NOENT | Errno::OPNOTSUPP => io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel has no huge pages of 2 MiB, whose page tables could be shared",
        ),
        other => other.into(),
    })?;
    rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::ftruncate(&fd, size_bytes)?;
    rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, size_bytes).map_err(|errno| match errno {
        Errno::NOSPC | Errno::NOMEM => too_few(size_bytes),
        other => other.into(),
    })?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

fn too_few(size_bytes: u64) -> io::Error {
    let wanted = size_bytes / HUGE;
    let free = pool("free_hugepages");
    let had = free.map_or_else(String::new, |free| format!(", and {free} are free"));
    let more = wanted.saturating_sub(free.unwrap_or(0)) + pool("nr_hugepages").unwrap_or(0);
    io::Error::new(
        io::ErrorKind::StorageFull,
        format!(
            "the segment needs {wanted} huge pages of 2 MiB{had}: make it smaller, or give the machine more (as root: sysctl \
             vm.nr_hugepages={more})"
        ),
    )
}

/// A number of the pool of 2 MiB pages, as the kernel tells it.
fn pool(what: &str) -> Option<u64> {
    let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{what}");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A segment whose tables are held: the masters of the paper's 3.2, one for those who write and one for those who read
/// (5.4). They are there before anybody attaches, and for as long as this is.
#[derive(Debug)]
pub struct Segment {
    writers: Attachment,
    readers: Attachment,
    readers_fd: OwnedFd,
}

impl Segment {
    /// Makes the masters of a segment that [`make`] made.
    pub fn hold(fd: impl AsFd) -> io::Result<Segment> {
        let size_bytes = u64::try_from(rustix::fs::fstat(&fd)?.st_size).unwrap_or(0);
        let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
        let readers_fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let writers = attach(&fd, size_bytes, None, true)?;
        let readers = attach(&readers_fd, size_bytes, None, false)?;
        writers.fill(size_bytes)?;
        readers.fill(size_bytes)?;
        Ok(Segment { writers, readers, readers_fd })
    }

    /// What who may only read is given: by it nobody writes, and the readers' tables are shared.
    pub fn for_readers(&self) -> &OwnedFd {
        &self.readers_fd
    }

    /// The master of those who write, or of those who read.
    pub fn master(&self, writes: bool) -> &Attachment {
        if writes { &self.writers } else { &self.readers }
    }
}
