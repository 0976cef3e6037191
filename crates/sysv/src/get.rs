//! `shmget`.

use crate::segment::{self, Segment};
use crate::{Errno, TWIN_BYTES, Wishes, kernel, keys};
use commonhold::{Error, ErrorKind, Translation};
use libc::{IPC_CREAT, IPC_EXCL, IPC_PRIVATE, SHM_HUGETLB, SHM_NORESERVE, c_int, shmid_ds};

/// How often to begin again when others make and remove a segment of the same key.
const TRIES: usize = 64;

/// The segment of a key, or a new one.
pub fn get(wishes: &Wishes, key: i32, size: usize, flags: c_int) -> Result<c_int, Errno> {
    let only_new = flags & IPC_CREAT != 0 && flags & IPC_EXCL != 0;
    for _ in 0..TRIES {
        if key != IPC_PRIVATE {
            // Size zero fits all; which rights are asked for matters only where there may be one.
            match kernel::get(key, 0, if only_new { 0 } else { flags & 0o777 }) {
                Ok(id) if only_new && wishes.shared_keys => match fits(wishes, id, 0, flags)? {
                    Fit::Gone => continue,
                    Fit::Ours | Fit::Plain => return Err(Errno::EXIST),
                },
                Ok(_) if only_new => return Err(Errno::EXIST),
                Ok(id) => match fits(wishes, id, size, flags)? {
                    Fit::Ours => return Ok(id),
                    // Not a new one, which would be made otherwise.
                    Fit::Plain => match kernel::get(key, size, flags & !IPC_CREAT) {
                        Err(Errno::NOENT) if flags & IPC_CREAT != 0 => continue,
                        other => return other,
                    },
                    Fit::Gone => continue,
                },
                Err(Errno::NOENT) if wishes.shared_keys => match keys::find(wishes, key)? {
                    Some(_) if only_new => return Err(Errno::EXIST),
                    Some((link, _)) if size > link.bytes => return Err(Errno::INVAL),
                    Some((link, ownership)) => {
                        keys::adopt(wishes, &link, &ownership)?;
                        continue; // the kernel says who may have it
                    }
                    None if flags & IPC_CREAT == 0 => return Err(Errno::NOENT),
                    None => {}
                },
                Err(Errno::NOENT) if flags & IPC_CREAT != 0 => {}
                Err(errno) => return Err(errno),
            }
        }
        if !wishes.moves(size, flags) {
            // One of the kernel's is no twin, whatever its size.
            return kernel::get(key, if size == TWIN_BYTES { size + 1 } else { size }, flags);
        }
        match create(wishes, key, size, flags) {
            Err(Errno::EXIST) if !only_new => {}
            other => return other,
        }
    }
    Err(Errno::IDRM)
}

enum Fit {
    Ours,
    Plain,
    /// It is gone by now.
    Gone,
}

fn fits(wishes: &Wishes, id: c_int, size: usize, flags: c_int) -> Result<Fit, Errno> {
    // Where no rights are asked for, one is found that may not be read.
    let stat = match kernel::stat_any(id) {
        Ok(stat) => stat,
        Err(Errno::INVAL | Errno::IDRM) => return Ok(Fit::Gone),
        Err(_) => return Ok(Fit::Plain),
    };
    if !segment::is_twin(&stat) {
        return Ok(Fit::Plain);
    }
    match Segment::find(id, &stat).map_err(|error| refused(wishes, "shmget", &error))? {
        Some(segment) if segment.link.is_some() && !wishes.shared_keys => Ok(Fit::Plain),
        Some(segment) if segment.is_stale() => keys::remove_stale(wishes, &segment).map(|()| Fit::Gone),
        Some(segment) if size > segment.bytes => Err(Errno::INVAL),
        Some(_) => Ok(Fit::Ours),
        None if kernel::is_gone(id) => Ok(Fit::Gone),
        // Who made it was killed before there was an object.
        None if flags & IPC_CREAT != 0 && is_abandoned(&stat) => kernel::remove(id).map(|()| Fit::Gone),
        None => Ok(Fit::Plain), // the kernel answers; what it is nobody can attach
    }
}

/// Whether this user made a twin, in a process that died before anybody could have attached it.
fn is_abandoned(stat: &shmid_ds) -> bool {
    stat.shm_perm.cuid == rustix::process::geteuid().as_raw()
        && stat.shm_cpid > 0
        && segment::was_never_attached(stat)
        && !segment::may_be_in_the_making(stat)
}

fn create(wishes: &Wishes, key: i32, size: usize, flags: c_int) -> Result<c_int, Errno> {
    if size == 0 {
        return Err(Errno::INVAL);
    }
    let huge = wishes.shares(size, flags) || flags & SHM_HUGETLB != 0;
    if wishes.shared_keys && key != IPC_PRIVATE && !huge {
        return keys::create(wishes, key, size, flags);
    }
    let translation = if huge { Translation::SharedTables } else { Translation::Paged };
    let options = segment::options(size, flags & 0o777, translation, flags & SHM_NORESERVE == 0);
    // Before there is a twin: others wait for its object.
    segment::make_room().map_err(|error| refused(wishes, "shmget", &error))?;
    let id = kernel::get(key, TWIN_BYTES, IPC_CREAT | IPC_EXCL | flags & 0o777)?;
    // Without huge pages for it, of ordinary ones, if the host has the kernel module.
    let has_none = |error: &Error| {
        matches!(error.kind, ErrorKind::NoSpace | ErrorKind::Unsupported) && flags & SHM_HUGETLB == 0
    };
    let made = match segment::create(id, &options) {
        Err(error) if huge && has_none(&error) => {
            let options = segment::options(size, flags & 0o777, Translation::SharedTables4K, true);
            segment::create(id, &options).map_err(|_| error)
        }
        other => other,
    };
    made.map(|()| id).map_err(|error| {
        let _ = kernel::remove(id); // made here, just now: who was quicker has removed it
        refused(wishes, "shmget", &error)
    })
}

/// The error number of what the host refused; standard error is told all of it.
pub(crate) fn refused(wishes: &Wishes, call: &str, error: &Error) -> Errno {
    wishes.complain(&format!("{call}: {error}"));
    match error.kind {
        ErrorKind::Invalid => Errno::INVAL,
        ErrorKind::Permission => Errno::ACCESS,
        ErrorKind::NotFound | ErrorKind::Lost => Errno::IDRM,
        ErrorKind::TooMany if call == "shmget" => Errno::NOSPC,
        _ => Errno::NOMEM,
    }
}
