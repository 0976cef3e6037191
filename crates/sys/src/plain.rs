//! Whether a descriptor that came from outside is plain memory, and whose. Each question answers at once: a file that
//! waits for its owner (FUSE) is told from memory before anything is asked of it.

use crate::inspect::in_memory;
use rustix::fs::{SealFlags, fstat};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The seals of plain memory. An error for any other file, and for memory in huge pages, which may have no page for a touch:
/// that is then SIGBUS.
pub fn seals(fd: impl AsFd) -> io::Result<SealFlags> {
    match in_memory(fd)? {
        Some((seals, Some("tmpfs"))) => Ok(seals),
        Some(_) => Err(refused("this is memory in huge pages: only memory in small pages can be used")),
        None => Err(refused("this is not memory (memfd)")),
    }
}

/// Whether a process of that user made the memory by `memfd_create` under a name that begins so.
pub fn is_made_by(fd: impl AsFd, uid: u32, name: &str) -> io::Result<bool> {
    seals(&fd)?;
    is_named(fd.as_fd(), uid, name)
}

/// The same of memory in huge pages, whose pages nobody here may touch: one that is not there is SIGBUS.
pub fn is_huge_made_by(fd: impl AsFd, uid: u32, name: &str) -> io::Result<bool> {
    match in_memory(&fd)? {
        Some((_, Some("hugetlbfs"))) => is_named(fd.as_fd(), uid, name),
        _ => Err(refused("this is not memory in huge pages")),
    }
}

fn is_named(fd: BorrowedFd<'_>, uid: u32, name: &str) -> io::Result<bool> {
    Ok(is_memfd(fd, name)? && fstat(fd)?.st_uid == uid)
}

/// Whether `memfd_create` made the file, under a name that begins so: it never had another.
pub fn is_memfd(fd: impl AsFd, name: &str) -> io::Result<bool> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))?;
    Ok(link.to_string_lossy().strip_prefix("/memfd:").is_some_and(|rest| rest.starts_with(name)))
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};

    #[test]
    fn only_memory_in_small_pages_is_plain() {
        let memory = crate::frames::create("commonhold-1", 4096).unwrap();
        let me = rustix::process::geteuid().as_raw();
        assert!(seals(&memory).unwrap().contains(SealFlags::SEAL));
        assert!(is_made_by(&memory, me, "commonhold-").unwrap());
        assert!(!is_made_by(&memory, me + 1, "commonhold-").unwrap());
        assert!(!is_made_by(&memory, me, "commonhold-2").unwrap());
        for other in ["/dev/zero", "/proc/self/mem", "/sys", "/"] {
            seals(std::fs::File::open(other).unwrap()).unwrap_err();
        }
        // A kernel without huge pages makes none.
        if let Ok(huge) = memfd_create("commonhold-1", MemfdFlags::HUGETLB | MemfdFlags::CLOEXEC) {
            seals(huge).unwrap_err();
        }
    }
}
