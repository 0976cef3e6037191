//! Whether a range of addresses is one registered mapping still: told in one step, however long it is.
//!
//! Before the kernel reads a byte of what UFFDIO_COPY is to copy, it looks whether the whole range lies in one mapping. From
//! memory that cannot be read nothing is ever copied; which of the two errors comes tells (tried out once by each process).

use crate::userfaultfd::{Kind, Modes, Userfaultfd};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::sync::OnceLock;

const PAGE: usize = 4096;
/// Below it nothing may be mapped (vm.mmap_min_addr). What is copied has to have room for the whole range behind it.
const LOWEST: usize = 1 << 16;
/// Places for it, from there.
const PLACES: usize = 64;

/// An address of this process that cannot be read, near the lowest, for as long as the process lives.
#[derive(Clone, Copy)]
struct Nowhere(u64);

impl Nowhere {
    fn new() -> Option<Nowhere> {
        (0..PLACES).find_map(|place| {
            let wish = (LOWEST + place * PAGE) as *mut c_void;
            let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
            // SAFETY: with FIXED_NOREPLACE the kernel changes nothing that is mapped.
            unsafe { mmap_anonymous(wish, PAGE, ProtFlags::empty(), flags) }
                .ok()
                .map(|at| Nowhere(at.addr() as u64))
        })
    }

    fn is_one_mapping(self, uffd: &Userfaultfd, start: u64, length_bytes: u64) -> bool {
        uffd.refusal_of_copy(start, self.0, length_bytes) == Some(Errno::FAULT)
    }

    /// Whether this kernel tells: of a mapping, and of the same with a hole.
    fn tells(self) -> io::Result<bool> {
        const LENGTH: usize = 3 * PAGE;
        let file = rustix::fs::memfd_create("commonhold-trial", rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, LENGTH as u64)?;
        let (uffd, _) = Userfaultfd::create(Kind::Asynchronous, None)?;
        // SAFETY: the kernel chooses free addresses.
        let at = unsafe {
            mmap(std::ptr::null_mut(), LENGTH, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
        }?;
        let start = at.addr() as u64;
        let modes = Modes { missing: true, write_protect: true, minor: false };
        let registered = uffd.register(start, LENGTH as u64, modes);
        let whole = self.is_one_mapping(&uffd, start, LENGTH as u64);
        // SAFETY: the second page of what was just mapped, which nobody else knows of.
        let punched = unsafe { munmap(at.wrapping_byte_add(PAGE), PAGE) };
        let parted = self.is_one_mapping(&uffd, start, LENGTH as u64);
        // SAFETY: as above; what is in between belongs to nobody, or to another thread by now, and stays.
        let rest = [0, 2].map(|page| unsafe { munmap(at.wrapping_byte_add(page * PAGE), PAGE) });
        registered.and(punched).and(rest[0]).and(rest[1])?;
        Ok(whole && !parted)
    }
}

/// Whether the range lies in one mapping that was registered with a userfaultfd, and with this one if it has asynchronous
/// protection. False also if this cannot be told.
pub fn is_one_mapping(uffd: &Userfaultfd, start: u64, length_bytes: u64) -> bool {
    static NOWHERE: OnceLock<Option<Nowhere>> = OnceLock::new();
    let nowhere = NOWHERE.get_or_init(|| Nowhere::new().filter(|nowhere| nowhere.tells().unwrap_or(false)));
    nowhere.is_some_and(|nowhere| nowhere.is_one_mapping(uffd, start, length_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_tells() {
        assert!(Nowhere::new().expect("low addresses are free").tells().expect("a userfaultfd"));
    }
}
