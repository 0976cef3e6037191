//! The memory of a segment: a file of huge pages, all of which are there before anybody maps it.

use crate::map::{Attachment, attach};
use crate::pool::number_in;
use crate::span::GIGABYTE;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;

/// Bytes of a page of a segment.
pub const HUGE: u64 = 2 << 20;

/// Makes a segment of `size_bytes`, which is rounded up to whole huge pages; all of them are taken from the machine's pool now.
///
/// # Errors
/// `Unsupported` without huge pages of 2 MiB, `StorageFull` where the pool has too few: nothing is kept then.
pub fn make(label: &str, size_bytes: u64) -> io::Result<OwnedFd> {
    let size_bytes = size_bytes.checked_next_multiple_of(HUGE).ok_or(Errno::FBIG)?;
    // What cannot be had takes nothing from others, not even for the moment in which the kernel finds that out.
    if can_be_had().is_some_and(|pages| pages < size_bytes / HUGE) {
        return Err(too_few(size_bytes));
    }
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
    // Who may write to it can enlarge it by a mapping all the same, past this seal. Its maker cuts that off, so that there is none
    // against shrinking.
    rustix::fs::fcntl_add_seals(&fd, SealFlags::GROW | SealFlags::SEAL)?;
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

/// Pages that the kernel could give now: those that are free, and those that it may add by itself.
fn can_be_had() -> Option<u64> {
    let surplus = pool("nr_overcommit_hugepages")?.saturating_sub(pool("surplus_hugepages")?);
    Some(pool("free_hugepages")? + surplus)
}

fn pool(what: &str) -> Option<u64> {
    number_in(&format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{what}")).ok()
}

/// A segment whose tables are held: the masters of the paper's 3.2, one for those who write and one for those who read
/// (5.4). They are there before anybody attaches, and for as long as this is.
#[derive(Debug)]
pub struct Segment {
    writers: Attachment,
    readers: Attachment,
    size_bytes: u64,
}

impl Segment {
    /// Maps the masters of a segment that [`make`] made; [`Segment::fill`] or [`Segment::join`] fills them. The size is what it
    /// was made with: whoever may write to it may have made its memory longer since.
    pub fn hold(fd: impl AsFd, size_bytes: u64) -> io::Result<Segment> {
        let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
        let readers_fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let writers = attach(&fd, size_bytes, None, true)?;
        let readers = attach(&readers_fd, size_bytes, None, false)?;
        Ok(Segment { writers, readers, size_bytes })
    }

    /// Fills the masters, all of whose pages are there: whoever attaches it faults once for each gigabyte.
    pub fn fill(&self) -> io::Result<()> {
        [&self.writers, &self.readers].iter().try_for_each(|master| master.fill(0, self.size_bytes))
    }

    /// Points the masters at the tables of whoever has it attached, which are shared as soon as one page of a gigabyte is looked
    /// at. What cannot be had is had when somebody touches it.
    pub fn join(&self) {
        for master in [&self.writers, &self.readers] {
            for first in (0..self.size_bytes).step_by(GIGABYTE as usize) {
                let _ = master.fill(first, HUGE); // as said
            }
        }
    }

    /// Where a byte of it is, by the master of those who write. None: it has no such byte.
    pub fn place(&self, byte: u64) -> Option<NonNull<u8>> {
        let inside = usize::try_from(byte).ok().filter(|_| byte < self.size_bytes)?;
        // SAFETY: within the mapping, which is longer than the segment.
        Some(unsafe { self.writers.address().add(inside) })
    }
}
