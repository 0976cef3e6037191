//! `shmctl`.

use crate::get::refused;
use crate::segment::{self, Segment, remove_what_is_left};
use crate::{Errno, Wishes, kernel};
use commonhold::{Errand, Error, ErrorKind};
use libc::{IPC_RMID, IPC_SET, IPC_STAT, c_int, shmid_ds};

/// Not in libc.
const SHM_STAT: c_int = 13;
const SHM_STAT_ANY: c_int = 15;

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
        IPC_RMID => remove(wishes, id, Errand::begin).map(|()| 0),
        // SAFETY: the caller's promise.
        IPC_SET => unsafe { set(wishes, id, buffer) },
        IPC_STAT | SHM_STAT | SHM_STAT_ANY => {
            // SAFETY: the caller's promise.
            let answer = unsafe { kernel::control(id, command, buffer) }?;
            let id = if command == IPC_STAT { id } else { answer };
            // SAFETY: the kernel has just filled it.
            let stat = unsafe { &mut *buffer };
            // Without a host the twin is all there is to tell of.
            if let Ok(Some(segment)) = Segment::find(id, stat) {
                stat.shm_segsz = segment.bytes;
            }
            Ok(answer)
        }
        // SAFETY: the caller's promise.
        _ => unsafe { kernel::control(id, command, buffer) },
    }
}

/// Removes a segment: at once, or with the last process that has it attached. `begin` finds the host.
pub fn remove(
    wishes: &Wishes,
    id: c_int,
    begin: impl FnOnce() -> Result<Errand, Error>,
) -> Result<(), Errno> {
    let stat = kernel::stat(id);
    kernel::remove(id)?;
    let is_ours = stat.as_ref().map_or(true, |stat| stat.shm_segsz == crate::TWIN_BYTES);
    if is_ours && kernel::is_gone(id) {
        // The segment is gone, whatever the host says: what is left of it waits for who makes room.
        if let Err(error) = begin().and_then(|mut errand| remove_what_is_left(&mut errand, id)) {
            wishes.complain(&format!("shmctl: {error}"));
        }
    }
    Ok(())
}

/// # Safety
/// As for [`control`].
unsafe fn set(wishes: &Wishes, id: c_int, buffer: *mut shmid_ds) -> Result<c_int, Errno> {
    let mut before = kernel::stat(id);
    let found = match &before {
        Ok(stat) => Segment::find(id, stat).map_err(|error| refused(wishes, "shmctl", &error))?,
        Err(_) => None,
    };
    // SAFETY: the caller's promise.
    let answer = unsafe { kernel::control(id, IPC_SET, buffer) }?;
    let (Some(segment), Ok(before)) = (found, &mut before) else { return Ok(answer) };
    match kernel::stat(id).map_err(|errno| Error::io("asking for the segment", &errno.into())) {
        // It was given to others, who alone may read it now.
        Err(_) => Ok(answer),
        Ok(now) => follow(&segment, &now).map(|()| answer).map_err(|error| {
            // SAFETY: the buffer is of the command's type, and lives until after the call.
            let _ = unsafe { kernel::control(id, IPC_SET, before) }; // as it was, as far as that can be
            match error.kind {
                ErrorKind::Permission => {
                    let text = "the host gives objects away for root alone";
                    wishes.complain(&format!("shmctl: {error}: {text}"));
                    Errno::PERM
                }
                _ => refused(wishes, "shmctl", &error),
            }
        }),
    }
}

/// Makes owner, group and mode of the object those of the twin.
fn follow(segment: &Segment, twin: &shmid_ds) -> Result<(), Error> {
    let (name, has) = (segment::name(segment.id)?, &segment.info.ownership);
    let mut errand = Errand::begin()?;
    let mode = twin.shm_perm.mode as u32 & 0o666;
    if mode != has.mode {
        errand.set_mode(&name, mode)?;
    }
    let changes = |has: u32, now: u32| (has != now).then_some(now);
    let (uid, gid) = (changes(has.uid, twin.shm_perm.uid), changes(has.gid, twin.shm_perm.gid));
    if uid.is_some() || gid.is_some() {
        errand.set_owner(&name, uid, gid)?;
    }
    Ok(())
}
