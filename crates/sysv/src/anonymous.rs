//! Anonymous shared mappings, which a process makes for itself and the children that it forks: large ones get huge pages, whose
//! tables all of them share. No host has to do with it: the memory is gone with the last of them.

use crate::attached;
use crate::{Errno, LARGE_BYTES, Wishes};
use commonhold_tables::{HUGE, attach, make};
use rustix::mm::MprotectFlags;
use std::ffi::c_void;

/// One such mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anonymous {
    /// Bytes of memory, whole huge pages.
    bytes: usize,
    /// Bytes of addresses that it takes, whole gigabytes.
    length: usize,
}

/// Maps so many bytes, or says that the kernel's ordinary pages are to be taken: they are not asked for, or cannot be had.
pub fn map_anonymous(wishes: &Wishes, length: usize, protection: i32) -> Option<usize> {
    if !wishes.share_page_tables || length < LARGE_BYTES {
        return None;
    }
    let mapped = make("commonhold-anonymous", length as u64).and_then(|fd| {
        let attached = attach(&fd, length as u64, None, true)?;
        attached.fill(0, (length as u64).next_multiple_of(HUGE))?;
        Ok(attached)
    });
    let attached = match mapped {
        Ok(attached) => attached,
        Err(error) => {
            wishes.complain(&format!(
                "mmap: {length} bytes get ordinary pages, and tables of each process's own: {error}"
            ));
            return None;
        }
    };
    if protection & (libc::PROT_READ | libc::PROT_WRITE) != libc::PROT_READ | libc::PROT_WRITE {
        let wished = MprotectFlags::from_bits_retain(protection as u32);
        // SAFETY: nobody else knows of the mapping.
        unsafe { rustix::mm::mprotect(attached.address().as_ptr().cast(), attached.length(), wished) }
            .ok()?;
    }
    let (bytes, taken) = (length.next_multiple_of(HUGE as usize), attached.length());
    let address = attached.leak().as_ptr() as usize;
    attached::all().anonymous.insert(address, Anonymous { bytes, length: taken });
    Some(address)
}

/// Unmaps, if such a mapping begins there. A part of it, of whole huge pages, may go too; then tables are the process's own.
///
/// # Safety
/// Nobody uses what is mapped there.
pub unsafe fn unmap_anonymous(wishes: &Wishes, address: usize, length: usize) -> Option<Result<(), Errno>> {
    let mut all = attached::all();
    let (start, found) =
        all.anonymous.range(..=address).next_back().map(|(start, found)| (*start, *found))?;
    if address >= start + found.bytes {
        return None;
    }
    let whole = address == start && length.next_multiple_of(HUGE as usize) >= found.bytes;
    let ends_beyond = address.saturating_add(length) > start + found.bytes.next_multiple_of(HUGE as usize);
    let taken = match whole {
        true if ends_beyond => return None, // others are mapped behind it: the kernel says what can be done
        true => found.length,
        false if address.is_multiple_of(HUGE as usize) && length.is_multiple_of(HUGE as usize) => length,
        false => {
            wishes.complain(&format!(
                "munmap: the mapping is of huge pages: a part is a multiple of {HUGE:#x} bytes, from a multiple of that on"
            ));
            return Some(Err(Errno::INVAL));
        }
    };
    // SAFETY: the caller's promise; past the memory's end nobody has anything.
    let done = unsafe { rustix::mm::munmap(address as *mut c_void, taken) };
    if whole && done.is_ok() {
        all.anonymous.remove(&start);
    }
    Some(done)
}
