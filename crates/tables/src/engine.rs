//! The two ways to share page tables, as one: the paper's four operations (Ko & Yoo, 3.2), and both kinds of attaching (5.3).
//!
//! | | [`Hugetlb`] | [`Module`](crate::Module) |
//! |---|---|---|
//! | needs | huge pages | the kernel module segshm, and root |
//! | pages of | 2 MiB | 4 KiB |
//! | shares where begin | gigabytes | 2 MiB |
//! | a segment's descriptor is | its memory | the module's; its memory is another |
//! | its tables stay for as long as | somebody [holds](Segment) or attaches them | its descriptor is open, or somebody attaches it |

use crate::hugetlb::{HUGE, Segment, make};
use crate::map::{Attachment, attach, attach_own};
use crate::span::{GIGABYTE, check_address};
use rustix::fs::{Mode, OFlags};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// A segment that was made: it is there, tables and all, for as long as this.
pub struct Made {
    /// Who has it attaches the segment, to read and to write.
    pub descriptor: OwnedFd,
    /// Holds the tables, where the descriptor does not.
    pub held: Option<Segment>,
}

/// One way.
pub trait Engine: fmt::Debug + Sync {
    /// What addresses are multiples of where a segment is attached with shared tables.
    fn unit_bytes(&self) -> u64;

    /// Refuses an address where tables cannot be shared, and names the nearest where they can.
    fn check_address(&self, address: u64) -> io::Result<()>;

    /// Makes a segment, whose size is rounded up to whole 2 MiB, with all its pages and its tables.
    /// `owner`: the user whose limits it counts against, where the engine has such.
    ///
    /// # Errors
    /// `Unsupported` where this machine cannot, `StorageFull` where it has no memory for it; nothing is kept then.
    fn make(&self, label: &str, size_bytes: u64, owner: u32) -> io::Result<Made>;

    /// A descriptor by which the segment is attached to read alone: nobody gets more by it (5.4).
    fn for_readers(&self, segment: BorrowedFd<'_>) -> io::Result<OwnedFd>;

    /// Attaches all of a segment of that size with the tables that all share: at an address, or anywhere.
    fn attach(
        &self,
        segment: BorrowedFd<'_>,
        size_bytes: u64,
        at: Option<u64>,
        writes: bool,
    ) -> io::Result<Attachment>;

    /// Attaches a part of it with tables of this process's own: for protections, or referenced and modified bits, of its own.
    fn attach_own(
        &self,
        segment: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        at: Option<u64>,
        writes: bool,
    ) -> io::Result<Attachment>;
}

/// By what any Linux kernel does with huge pages.
#[derive(Clone, Copy, Debug)]
pub struct Hugetlb;

impl Engine for Hugetlb {
    fn unit_bytes(&self) -> u64 {
        GIGABYTE
    }

    fn check_address(&self, address: u64) -> io::Result<()> {
        check_address(address)
    }

    fn make(&self, label: &str, size_bytes: u64, _owner: u32) -> io::Result<Made> {
        let descriptor = make(label, size_bytes)?;
        let held = Segment::hold(&descriptor, size_bytes.next_multiple_of(HUGE))?;
        held.fill()?;
        Ok(Made { descriptor, held: Some(held) })
    }

    fn for_readers(&self, segment: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", segment.as_raw_fd());
        Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    }

    fn attach(
        &self,
        segment: BorrowedFd<'_>,
        size_bytes: u64,
        at: Option<u64>,
        writes: bool,
    ) -> io::Result<Attachment> {
        attach(segment, size_bytes, at, writes)
    }

    fn attach_own(
        &self,
        segment: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        at: Option<u64>,
        writes: bool,
    ) -> io::Result<Attachment> {
        attach_own(segment, offset, length, at, writes)
    }
}
