//! `shmat` and `shmdt`.

use crate::attached::{self, Attached};
use crate::get::refused;
use crate::segment::{Segment, remove_what_is_left};
use crate::{Errno, SHM_SHARE_PAGE_TABLE, Wishes, kernel};
use commonhold::{Access, Errand};
use libc::{SHM_RDONLY, SHM_REMAP, SHM_RND, c_int, c_void};
use rustix::mm::{MapFlags, ProtFlags};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// `SHMLBA`, to which `SHM_RND` rounds.
const UNIT: usize = 4096;
/// Not in libc.
const SHM_EXEC: c_int = 0o100_000;
/// A segment that was removed, in `shm_perm.mode`.
const SHM_DEST: u32 = 0o1000;

/// Attaches a segment. Gives where.
///
/// # Safety
/// With `SHM_REMAP`, nobody uses what is mapped there.
pub unsafe fn attach(wishes: &Wishes, id: c_int, address: usize, flags: c_int) -> Result<usize, Errno> {
    let found = match kernel::stat(id) {
        Ok(stat) => Segment::find(id, &stat).map_err(|error| refused(wishes, "shmat", &error))?,
        Err(_) => None, // the kernel says why
    };
    let Some(segment) = found else {
        // SAFETY: the caller's promise.
        return unsafe { kernel::attach(id, address, flags) };
    };
    let access = if flags & SHM_RDONLY != 0 { Access::Read } else { Access::ReadWrite };
    let at = place(address, flags)?;
    let fd = segment.open(access).map_err(|error| refused(wishes, "shmat", &error))?;
    // SAFETY: the caller's promise.
    let (address, length) = unsafe { map(wishes, &segment, &fd, at, flags) }?;
    // SAFETY: without SHM_REMAP, at a free address.
    match unsafe { kernel::attach(id, 0, flags & SHM_RDONLY) } {
        Ok(twin) => {
            attached::all().segments.insert(address, Attached { id, length, twin });
            Ok(address)
        }
        Err(errno) => {
            // SAFETY: mapped just above, and told to nobody.
            unsafe { unmap(address, length) };
            Err(errno)
        }
    }
}

/// Where: zero, anywhere.
fn place(address: usize, flags: c_int) -> Result<usize, Errno> {
    match address {
        0 if flags & SHM_REMAP != 0 => Err(Errno::INVAL),
        _ if flags & SHM_RND != 0 => Ok(address - address % UNIT),
        _ if !address.is_multiple_of(UNIT) => Err(Errno::INVAL),
        _ => Ok(address),
    }
}

/// # Safety
/// As for [`attach`].
unsafe fn map(
    wishes: &Wishes,
    segment: &Segment,
    fd: &OwnedFd,
    at: usize,
    flags: c_int,
) -> Result<(usize, usize), Errno> {
    let writes = flags & SHM_RDONLY == 0;
    let shares = flags & SHM_SHARE_PAGE_TABLE != 0 || wishes.share_page_tables;
    if !segment.shares_tables() {
        if flags & SHM_SHARE_PAGE_TABLE != 0 {
            wishes.complain(
                "shmat: the segment has no page tables to share: shmget makes them by IPC_SHARE_PAGE_TABLE",
            );
            return Err(Errno::INVAL);
        }
        // SAFETY: the caller's promise.
        return unsafe { map_pages(segment, fd, at, flags) };
    }
    if flags & (SHM_EXEC | SHM_REMAP) != 0 {
        wishes.complain(
            "shmat: a segment of huge pages is neither run (SHM_EXEC) nor put over others (SHM_REMAP)",
        );
        return Err(Errno::INVAL);
    }
    let (size, wished) = (segment.info.options.size_bytes, Some(at as u64).filter(|at| *at != 0));
    let mapped = if shares {
        commonhold_tables::attach(fd, size, wished, writes)
    } else {
        commonhold_tables::attach_own(fd, 0, size as usize, wished, writes)
    };
    let mapped = mapped.map_err(|error| {
        wishes.complain(&format!("shmat: {error}"));
        match Errno::from_io_error(&error) {
            Some(errno @ (Errno::NOMEM | Errno::ACCESS | Errno::MFILE)) => errno,
            _ => Errno::INVAL,
        }
    })?;
    let length = mapped.length();
    Ok((mapped.leak().as_ptr() as usize, length))
}

/// # Safety
/// As for [`attach`].
unsafe fn map_pages(
    segment: &Segment,
    fd: &OwnedFd,
    at: usize,
    flags: c_int,
) -> Result<(usize, usize), Errno> {
    let mut protection = ProtFlags::READ;
    protection.set(ProtFlags::WRITE, flags & SHM_RDONLY == 0);
    protection.set(ProtFlags::EXEC, flags & SHM_EXEC != 0);
    let how = match at {
        0 => MapFlags::SHARED,
        _ if flags & SHM_REMAP != 0 => MapFlags::SHARED | MapFlags::FIXED,
        _ => MapFlags::SHARED | MapFlags::FIXED_NOREPLACE,
    };
    let length = segment.bytes.next_multiple_of(UNIT);
    // SAFETY: over what is mapped only by SHM_REMAP: the caller's promise.
    let mapped = unsafe { rustix::mm::mmap(at as *mut c_void, length, protection, how, fd, 0) };
    match mapped {
        Ok(address) if at != 0 && address as usize != at => {
            // A kernel that does not know MAP_FIXED_NOREPLACE. SAFETY: mapped just now, and told to nobody.
            unsafe { unmap(address as usize, length) };
            Err(Errno::INVAL)
        }
        Ok(address) => Ok((address as usize, length)),
        Err(Errno::EXIST) => Err(Errno::INVAL),
        Err(errno) => Err(errno),
    }
}

/// # Safety
/// Nobody uses the addresses, and they are a mapping of this module's.
unsafe fn unmap(address: usize, length: usize) {
    // SAFETY: the caller's promise. Only a process that is out of mappings is refused: then it stays mapped.
    let _ = unsafe { rustix::mm::munmap(address as *mut c_void, length) };
}

/// Detaches what is attached at an address.
///
/// # Safety
/// Nobody uses what is attached there.
pub unsafe fn detach(address: usize) -> Result<(), Errno> {
    let mut all = attached::all();
    let Some(Attached { id, length, twin }) = all.segments.remove(&address) else {
        drop(all);
        // SAFETY: the caller's promise.
        return unsafe { kernel::detach(address) };
    };
    // SAFETY: the caller's promise; of the twin nobody knows.
    let detached = unsafe {
        unmap(address, length);
        kernel::detach(twin)
    };
    drop(all);
    if kernel::is_gone(id) {
        clear(id);
    }
    detached
}

/// Removes the object of a segment that is gone. Without a host it waits for who makes room next.
fn clear(id: c_int) {
    let _ = Errand::begin().and_then(|mut errand| remove_what_is_left(&mut errand, id));
}

/// At the end of a process: what was removed and is attached by nobody else goes, object and all. The addresses stay, for
/// handlers of exit that come after.
pub(crate) fn leave_removed(all: &BTreeMap<usize, Attached>) {
    for Attached { id, twin, .. } in all.values() {
        let is_last =
            |stat: &libc::shmid_ds| stat.shm_perm.mode as u32 & SHM_DEST != 0 && stat.shm_nattch == 1;
        if kernel::stat(*id).as_ref().is_ok_and(is_last) {
            // SAFETY: of the twin nobody knows.
            let detached = unsafe { kernel::detach(*twin) };
            if detached.is_ok() && kernel::is_gone(*id) {
                clear(*id);
            }
        }
    }
}
