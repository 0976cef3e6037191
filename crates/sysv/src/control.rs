//! `shmctl`.

use crate::get::refused;
use crate::kernel::{SHM_STAT, SHM_STAT_ANY};
use crate::segment::{self, Segment, remove_what_is_left};
use crate::{Errno, Wishes, errands, kernel, table};
use commonhold::{Errand, Error, ErrorKind, PATIENCE};
use libc::{IPC_RMID, IPC_SET, IPC_STAT, c_int, shmid_ds};

/// Tells of a segment, changes it, or removes it.
///
/// # Safety
/// `buffer` is what the command asks for.
pub unsafe fn control(
    wishes: &Wishes,
    id: c_int,
    command: c_int,
    buffer: *mut shmid_ds,
) -> Result<c_int, Errno> {
    match command {
        IPC_RMID => remove(wishes, id, &|what| errands::ask(PATIENCE, what)).map(|()| 0),
        // SAFETY: the caller's promise.
        IPC_SET => unsafe { set(wishes, id, buffer) },
        IPC_STAT | SHM_STAT | SHM_STAT_ANY => {
            // SAFETY: the caller's promise.
            let answer = unsafe { kernel::control(id, command, buffer) }?;
            let id = if command == IPC_STAT { id } else { answer };
            // SAFETY: the kernel has just filled it, wherever it lies.
            let mut stat = unsafe { buffer.read_unaligned() };
            if segment::is_twin(&stat) {
                stat.shm_segsz = bytes(id, &stat).map_err(|error| refused(wishes, "shmctl", &error))?;
                // SAFETY: as above.
                unsafe { buffer.write_unaligned(stat) };
            }
            Ok(answer)
        }
        // SAFETY: the caller's promise.
        _ => unsafe { kernel::control(id, command, buffer) },
    }
}

/// Bytes of a segment. A twin without an object has its own: nobody can attach it.
fn bytes(id: c_int, twin: &shmid_ds) -> Result<usize, Error> {
    if let Some(known) = table::lock().known.get(&id) {
        return Ok(known.bytes);
    }
    let found = errands::ask(PATIENCE, |errand| Segment::look(errand, id, twin))?;
    Ok(found.map_or(twin.shm_segsz, |segment| segment.bytes))
}

/// Asks the host something.
type Ask<'a> = dyn Fn(&mut dyn FnMut(&mut Errand) -> Result<(), Error>) -> Result<(), Error> + 'a;

/// Removes a segment: at once, or with the last process that has it attached. `ask` asks the host.
pub fn remove(wishes: &Wishes, id: c_int, ask: &Ask<'_>) -> Result<(), Errno> {
    let stat = kernel::stat_any(id);
    if let Some(twin) = stat.as_ref().ok().filter(|stat| wishes.shared_keys && segment::is_twin(stat)) {
        remove_of_cluster(wishes, id, twin, ask)?;
    }
    kernel::remove(id)?;
    if stat.as_ref().is_ok_and(|stat| !segment::is_twin(stat)) || !kernel::is_gone(id) {
        return Ok(());
    }
    table::lock().known.remove(&id);
    // The segment is gone, whatever the host says, which looks for what is left of it.
    if let Err(error) = ask(&mut |errand| remove_what_is_left(errand, id)) {
        wishes.complain(&format!("shmctl: {error}"));
    }
    Ok(())
}

/// If all hosts know the segment by its key: frees that in the cluster, before the twin is removed.
fn remove_of_cluster(wishes: &Wishes, id: c_int, twin: &shmid_ds, ask: &Ask<'_>) -> Result<(), Errno> {
    let mut has_host = false;
    let removed = ask(&mut |errand| {
        has_host = true;
        match Segment::look(errand, id, twin)? {
            Some(segment) if segment.is_of_cluster() == Some(true) => {
                segment.link.map_or(Ok(()), |link| errand.remove(&link.name(), Some(link.object())))
            }
            _ => Ok(()), // the twin is all that can be removed
        }
    });
    removed.or_else(|error| match error.kind {
        ErrorKind::NotFound => Ok(()), // another was quicker
        _ if !has_host => Ok(()),      // as of a segment that is this host's alone
        ErrorKind::Permission => {
            wishes.complain(&format!("shmctl: {error}"));
            Err(Errno::PERM)
        }
        _ => Err(refused(wishes, "shmctl", &error)),
    })
}

/// What a program wants to set, if there is such memory.
fn wanted(buffer: *const shmid_ds) -> Result<shmid_ds, Errno> {
    // SAFETY: all zeros is a value of it.
    let mut copy: shmid_ds = unsafe { std::mem::zeroed() };
    let length = size_of::<shmid_ds>();
    let local = libc::iovec { iov_base: (&raw mut copy).cast(), iov_len: length };
    let remote = libc::iovec { iov_base: buffer.cast_mut().cast(), iov_len: length };
    // SAFETY: the kernel copies into a value of that size, from wherever this process may read.
    let copied =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    if copied == length as isize { Ok(copy) } else { Err(Errno::FAULT) }
}

/// # Safety
/// As for [`control`].
unsafe fn set(wishes: &Wishes, id: c_int, buffer: *mut shmid_ds) -> Result<c_int, Errno> {
    let twin = match kernel::stat_any(id) {
        Ok(stat) if segment::is_twin(&stat) => stat,
        // SAFETY: the caller's promise.
        _ => return unsafe { kernel::control(id, IPC_SET, buffer) },
    };
    let mut wanted = wanted(buffer)?;
    let found = Segment::find(id, &twin).map_err(|error| refused(wishes, "shmctl", &error))?;
    let Some(segment) = found else {
        // SAFETY: a copy of what the command asks for, which lives until after the call.
        return unsafe { kernel::control(id, IPC_SET, &raw mut wanted) };
    };
    if segment.info.is_elsewhere {
        let home = &segment.info.home;
        wishes.complain(&format!(
            "shmctl: owner and mode of the segment are changed on {home}, where it was made"
        ));
        return Err(Errno::PERM);
    }
    let has = segment.info.ownership.mode;
    let new = u32::from(wanted.shm_perm.mode) & 0o666;
    let mode = |mode| segment.change(|errand, name, of| errand.set_mode(name, of, mode));
    // The object is never more open than the twin to those who own it: narrower before, wider after.
    let (narrows, widens) = (has & new != has, has & new != new);
    if narrows
        && let Err(error) = mode(has & new)
        && error.kind != ErrorKind::Permission
    {
        return Err(refused(wishes, "shmctl", &error));
    }
    // SAFETY: as above.
    let set = unsafe { kernel::control(id, IPC_SET, &raw mut wanted) };
    let changed = |has: u32, wants: u32| (has != wants).then_some(wants);
    let uid = changed(twin.shm_perm.uid, wanted.shm_perm.uid);
    let gid = changed(twin.shm_perm.gid, wanted.shm_perm.gid);
    let done = set.map_err(|errno| Error::io("changing the segment", &errno.into())).and_then(|_| {
        if uid.is_some() || gid.is_some() {
            segment.change(|errand, name, of| errand.set_owner(name, of, uid, gid))?;
        }
        if widens { mode(new) } else { Ok(()) }
    });
    let Err(error) = done else { return Ok(0) };
    // All as it was.
    if set.is_ok() {
        let mut before = twin;
        // SAFETY: as above.
        let _ = unsafe { kernel::control(id, IPC_SET, &raw mut before) }; // who gave it away cannot take it back
    }
    if narrows {
        let _ = mode(has); // who is no owner has changed nothing
    }
    match set {
        Err(errno) => Err(errno),
        Ok(_) if error.kind == ErrorKind::Permission => {
            wishes.complain(&format!("shmctl: {error}: the host gives objects away for root alone"));
            Err(Errno::PERM)
        }
        Ok(_) => Err(refused(wishes, "shmctl", &error)),
    }
}
