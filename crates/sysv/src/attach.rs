//! `shmat` and `shmdt`.

use crate::get::refused;
use crate::keys::Link;
use crate::segment::{self, Segment, clear};
use crate::table::{self, Attached, Mapped};
use crate::{Errno, SHM_SHARE_PAGE_TABLE, Wishes, kernel};
use commonhold::{Access, ErrorKind};
use commonhold_object::error::Doing;
use commonhold_tables::{Engine, HUGE, Hugetlb, Module};
use libc::{SHM_RDONLY, SHM_REMAP, SHM_RND, c_int, c_void};
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, OwnedFd};

/// `SHMLBA`, to which `SHM_RND` rounds; and a page.
pub(crate) const UNIT: usize = 4096;
/// Not in libc.
const SHM_EXEC: c_int = 0o100_000;
/// A segment that was removed, in `shm_perm.mode`.
const SHM_DEST: u32 = 0o1000;

/// Attaches a segment. Gives where.
///
/// # Safety
/// With `SHM_REMAP`, nobody uses what is mapped there.
pub unsafe fn attach(wishes: &Wishes, id: c_int, address: usize, flags: c_int) -> Result<usize, Errno> {
    let twin = match kernel::stat(id) {
        Ok(stat) if segment::is_twin(&stat) => stat,
        // The kernel's own; or it says why not.
        _ => {
            // SAFETY: the caller's promise.
            let attached = unsafe { kernel::attach(id, address, flags) }?;
            if flags & SHM_REMAP != 0 {
                let length = kernel::stat(id).map_or(UNIT, |stat| stat.shm_segsz.next_multiple_of(UNIT));
                let left = table::lock().gone(&(attached..attached + length));
                clear(&left);
            }
            return Ok(attached);
        }
    };
    let place = Place::of(address, flags)?;
    let access = if flags & SHM_RDONLY != 0 { Access::Read } else { Access::ReadWrite };
    let found = Segment::open(id, &twin, access).map_err(|error| refused(wishes, "shmat", &error))?;
    let (segment, opened) = found.ok_or_else(|| {
        wishes.complain(&format!("shmat: segment {id} has no object in the host of this process"));
        Errno::IDRM
    })?;
    let done = match (&segment.link, &opened) {
        (Some(link), _) => attach_of_cluster(wishes, &segment, link, place, flags),
        // SAFETY: the caller's promise.
        (None, Some(opened)) => unsafe { attach_object(wishes, &segment, &opened.1, place, flags) },
        (None, None) => Err(Errno::IDRM),
    };
    let (address, left) = done?;
    clear(&left);
    Ok(address)
}

/// Where to attach.
#[derive(Clone, Copy)]
enum Place {
    Anywhere,
    At(usize),
    /// Whatever is mapped there.
    Over(usize),
}

impl Place {
    fn of(address: usize, flags: c_int) -> Result<Place, Errno> {
        let rounded = if flags & SHM_RND != 0 { address - address % UNIT } else { address };
        match rounded {
            0 if flags & SHM_REMAP != 0 => Err(Errno::INVAL),
            0 => Ok(Place::Anywhere),
            at if !at.is_multiple_of(UNIT) => Err(Errno::INVAL),
            at if flags & SHM_REMAP != 0 => Ok(Place::Over(at)),
            at => Ok(Place::At(at)),
        }
    }
}

/// What is mapped: where, how much of addresses, and in what pages.
struct Fresh {
    address: usize,
    length: usize,
    page: usize,
}

/// # Safety
/// As for [`attach`].
unsafe fn attach_object(
    wishes: &Wishes,
    segment: &Segment,
    fd: &OwnedFd,
    place: Place,
    flags: c_int,
) -> Result<(usize, Vec<i32>), Errno> {
    let attach_twin = || attach_twin(segment.id, flags & (SHM_RDONLY | SHM_EXEC));
    // Over what others have it is mapped only when the kernel has let it be attached. Otherwise the kernel counts last, so that
    // what failed is not seen.
    let first = match place {
        Place::Over(_) => Some(attach_twin()?),
        Place::Anywhere | Place::At(_) => None,
    };
    // SAFETY: the caller's promise.
    let mapped = unsafe { map(wishes, segment, fd, place, flags) };
    let fresh = mapped.inspect_err(|_| first.iter().copied().for_each(detach_twin))?;
    let twin = first.map_or_else(attach_twin, Ok).inspect_err(|_| unmap(fresh.address, fresh.length))?;
    let attached = Attached { id: segment.id, twin: Some(twin) };
    let mapping = Mapped::new(fresh.address, fresh.length, segment.bytes, fresh.page, Some(attached));
    let left = table::lock().insert(fresh.address, mapping);
    Ok((fresh.address, left))
}

/// Attaches a segment that all hosts know by its key.
fn attach_of_cluster(
    wishes: &Wishes,
    segment: &Segment,
    link: &Link,
    place: Place,
    flags: c_int,
) -> Result<(usize, Vec<i32>), Errno> {
    let refuse = |errno, why: &str| {
        wishes.complain(&format!("shmat: segment {} is shared with other hosts: {why}", segment.id));
        Err(errno)
    };
    let at = match place {
        _ if !wishes.shared_keys => return refuse(Errno::INVAL, "run the program by --shared-keys"),
        _ if segment.is_stale() => return refuse(Errno::IDRM, "it was removed there"),
        _ if flags & SHM_EXEC != 0 => return refuse(Errno::INVAL, "it is not run (SHM_EXEC)"),
        _ if flags & SHM_SHARE_PAGE_TABLE != 0 => {
            return refuse(Errno::INVAL, "it has no page tables to share");
        }
        Place::Over(_) => return refuse(Errno::INVAL, "it is not put over others (SHM_REMAP)"),
        Place::At(at) => Some(at),
        Place::Anywhere => None,
    };
    let access = if flags & SHM_RDONLY != 0 { Access::Read } else { Access::ReadWrite };
    let mapping = link.map(access, at).map_err(|error| match error.kind {
        ErrorKind::Busy => Errno::INVAL,
        _ => refused(wishes, "shmat", &error),
    })?;
    // The kernel counts last; what is mapped goes with its mapping.
    let twin = attach_twin(segment.id, flags & SHM_RDONLY)?;
    let (address, length) = (mapping.as_ptr() as usize, mapping.len());
    let attached = Attached { id: segment.id, twin: Some(twin) };
    let mapped = Mapped::new(address, length, segment.bytes, UNIT, Some(attached)).of_client(mapping);
    Ok((address, table::lock().insert(address, mapped)))
}

/// Attaches a twin where no program has anything: programs put segments side by side.
fn attach_twin(id: c_int, flags: c_int) -> Result<usize, Errno> {
    /// Far below where the kernel maps by itself; where there is no such address, it chooses another.
    const FAR: usize = 0x2000_0000_0000;
    let (none, private) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
    // SAFETY: the kernel chooses a free address.
    let place = unsafe { rustix::mm::mmap_anonymous(FAR as *mut c_void, UNIT, none, private) }?;
    // SAFETY: over the page that was reserved for it.
    let attached = unsafe { kernel::attach(id, place as usize, flags | SHM_REMAP) };
    attached.inspect_err(|_| unmap(place as usize, UNIT))
}

/// Unmaps what was mapped just now, and told to nobody.
fn unmap(address: usize, length: usize) {
    // SAFETY: no program knows of it.
    let _ = unsafe { rustix::mm::munmap(address as *mut c_void, length) }; // it fails only where it would be cut
}

fn detach_twin(at: usize) {
    // SAFETY: no program knows of it.
    let _ = unsafe { kernel::detach(at) }; // attached just now
}

/// # Safety
/// As for [`attach`].
unsafe fn map(
    wishes: &Wishes,
    segment: &Segment,
    fd: &OwnedFd,
    place: Place,
    flags: c_int,
) -> Result<Fresh, Errno> {
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
        return unsafe { map_pages(segment, fd, place, flags) };
    }
    let is_huge = segment.info.options.is_of_huge_pages();
    if !is_huge && !shares {
        let memory = Module::memory(fd.as_fd()).doing("opening the segment's memory");
        let memory = memory.map_err(|error| refused(wishes, "shmat", &error))?;
        // SAFETY: the caller's promise.
        return unsafe { map_pages(segment, &memory, place, flags) };
    }
    let engine: &dyn Engine = if is_huge { &Hugetlb } else { &Module::without_device() };
    let wished = match place {
        Place::Over(_) => Err("put over others (SHM_REMAP)"),
        _ if flags & SHM_EXEC != 0 => Err("run (SHM_EXEC)"),
        Place::At(at) => Ok(Some(at as u64)),
        Place::Anywhere => Ok(None),
    };
    let wished = wished.map_err(|what| {
        wishes.complain(&format!("shmat: a segment with shared page tables is not {what}"));
        Errno::INVAL
    })?;
    let size = segment.info.options.size_bytes;
    let mapped = if shares {
        engine.attach(fd.as_fd(), size, wished, writes)
    } else {
        engine.attach_own(fd.as_fd(), 0, size as usize, wished, writes)
    };
    let mapped = mapped.map_err(|error| {
        wishes.complain(&format!("shmat: {error}"));
        match Errno::from_io_error(&error) {
            Some(errno @ (Errno::NOMEM | Errno::ACCESS)) => errno,
            _ => Errno::INVAL,
        }
    })?;
    let length = mapped.length();
    Ok(Fresh { address: mapped.leak().as_ptr() as usize, length, page: HUGE as usize })
}

/// # Safety
/// As for [`attach`].
unsafe fn map_pages(segment: &Segment, fd: &OwnedFd, place: Place, flags: c_int) -> Result<Fresh, Errno> {
    let mut protection = ProtFlags::READ;
    protection.set(ProtFlags::WRITE, flags & SHM_RDONLY == 0);
    protection.set(ProtFlags::EXEC, flags & SHM_EXEC != 0);
    let (at, over) = match place {
        Place::Anywhere => (0, MapFlags::empty()),
        Place::At(at) => (at, MapFlags::FIXED_NOREPLACE),
        Place::Over(at) => (at, MapFlags::FIXED),
    };
    let length = segment.bytes.next_multiple_of(UNIT);
    // SAFETY: over what is mapped only as the caller promises.
    match unsafe { rustix::mm::mmap(at as *mut c_void, length, protection, MapFlags::SHARED | over, fd, 0) } {
        Ok(address) if at != 0 && address as usize != at => {
            unmap(address as usize, length); // a kernel that does not know MAP_FIXED_NOREPLACE
            Err(Errno::INVAL)
        }
        Ok(address) => Ok(Fresh { address: address as usize, length, page: UNIT }),
        Err(Errno::EXIST) => Err(Errno::INVAL),
        Err(errno) => Err(errno),
    }
}

/// Detaches what is attached at an address.
///
/// # Safety
/// Nobody uses what is attached there.
pub unsafe fn detach(address: usize) -> Result<(), Errno> {
    let mut table = table::lock();
    match table.detach(address) {
        Some(done) => {
            drop(table);
            clear(&[done?]);
            Ok(())
        }
        None if table.is_twin(address) => Err(Errno::INVAL),
        None => {
            drop(table);
            // SAFETY: the caller's promise.
            unsafe { kernel::detach(address) }
        }
    }
}

/// At the end of a process: what was removed and is attached by nobody else goes, object and all.
pub(crate) fn leave_removed() {
    let is_removed = |id| kernel::stat(id).is_ok_and(|stat| u32::from(stat.shm_perm.mode) & SHM_DEST != 0);
    let left = table::lock().leave_removed(is_removed);
    clear(&left);
}
