//! Anonymous shared mappings, which a process makes for itself and the children that it forks: large ones get huge pages, whose
//! tables all of them share. No host has to do with it: the memory is gone with the last of them.
//!
//! And what a program does to addresses of ours by `munmap`, `mremap`, or by mapping over them.

use crate::attach::UNIT;
use crate::errands::Hidden;
use crate::segment::clear;
use crate::table::{self, Mapped, may_have};
use crate::{Errno, LARGE_BYTES, Wishes};
use commonhold_tables::{HUGE, attach, make};
use libc::c_int;
use std::ffi::c_void;
use std::os::fd::AsFd;

/// Maps so many bytes to read and to write, or says that the kernel's ordinary pages are to be taken: they are not asked for, or
/// cannot be had.
pub fn map_anonymous(wishes: &Wishes, length: usize) -> Option<usize> {
    if !wishes.share_page_tables || length < LARGE_BYTES {
        return None;
    }
    let mapped = make("commonhold-anonymous", length as u64).and_then(|fd| {
        let _hidden = Hidden::new(fd.as_fd());
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
    let taken = attached.length();
    let address = attached.leak().as_ptr() as usize;
    let left = table::lock().insert(address, Mapped::new(address, taken, length, HUGE as usize, None));
    clear(&left);
    Some(address)
}

/// Unmaps, if some of it may be ours; none: it is not.
///
/// # Safety
/// Nobody uses what is mapped there.
pub unsafe fn unmap(wishes: &Wishes, address: usize, length: usize) -> Option<Result<(), Errno>> {
    let end = address.checked_add(length)?.checked_next_multiple_of(UNIT)?;
    if length == 0 || !may_have(&(address..end)) {
        return None;
    }
    let mut table = table::lock();
    let end = table.end_of_page(end);
    let done = table.unmap_clients(&(address..end)).and_then(|clients| {
        let mut from = address;
        for client in clients.into_iter().chain(std::iter::once(end..end)) {
            if from < client.start {
                // SAFETY: the caller's promise; up to the end of a page of which the program gives up the beginning.
                unsafe { rustix::mm::munmap(from as *mut c_void, client.start - from) }?;
            }
            from = client.end;
        }
        Ok(())
    });
    let left = if done.is_ok() { table.gone(&(address..end)) } else { Vec::new() };
    drop(table);
    clear(&left);
    if done == Err(Errno::INVAL) && address.is_multiple_of(UNIT) {
        wishes
            .complain(&format!("munmap: of huge pages a part is a multiple of {HUGE:#x} bytes, from one on"));
    }
    Some(done)
}

/// A program has mapped something of its own over these addresses.
pub fn mapped_over(address: usize, length: usize) {
    let range = address..address.saturating_add(length).next_multiple_of(UNIT);
    if may_have(&range) {
        let left = table::lock().gone(&range);
        clear(&left);
    }
}

/// Moves, shrinks or enlarges what is mapped, as `mremap` does. Nobody gets the addresses that it frees before they are known to be.
///
/// # Safety
/// As for `mremap`.
pub unsafe fn remap(
    wishes: &Wishes,
    (address, length): (usize, usize),
    new_length: usize,
    flags: c_int,
    wished: usize,
) -> Result<usize, Errno> {
    let mut table = table::lock();
    if table.has_client(&(address..address.saturating_add(length))) {
        drop(table);
        wishes.complain(
            "mremap: a segment that is shared with other hosts stays where it is attached, as it is",
        );
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller's promise.
    let moved = unsafe { libc::syscall(libc::SYS_mremap, address, length, new_length, flags, wished) };
    if moved == -1 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
    }
    let moved = moved as usize;
    let left = table.moved(address..address + length, moved..moved + new_length);
    drop(table);
    clear(&left);
    Ok(moved)
}
