//! `shmget`.

use crate::segment::{self, Segment};
use crate::{Errno, TWIN_BYTES, Wishes, kernel};
use commonhold::{Error, ErrorKind, Translation};
use libc::{IPC_CREAT, IPC_EXCL, IPC_PRIVATE, SHM_HUGETLB, SHM_NORESERVE, c_int};

/// How often to begin again when others make and remove a segment of the same key.
const TRIES: usize = 16;

/// The segment of a key, or a new one.
pub fn get(wishes: &Wishes, key: i32, size: usize, flags: c_int) -> Result<c_int, Errno> {
    let only_new = flags & IPC_CREAT != 0 && flags & IPC_EXCL != 0;
    for _ in 0..TRIES {
        if key != IPC_PRIVATE {
            // Size zero fits all; which rights are asked for matters only where there may be one.
            match kernel::get(key, 0, if only_new { 0 } else { flags & 0o777 }) {
                Ok(_) if only_new => return Err(Errno::EXIST),
                Ok(id) => match fits(wishes, (key, id), size, flags)? {
                    Fit::Ours => return Ok(id),
                    Fit::Plain => return kernel::get(key, size, flags),
                    Fit::Gone => continue,
                },
                Err(Errno::NOENT) if flags & IPC_CREAT != 0 => {}
                Err(errno) => return Err(errno),
            }
        }
        if !wishes.moves(size, flags) {
            return kernel::get(key, size, flags);
        }
        match create(wishes, key, size, flags) {
            Err(Errno::EXIST) if !only_new => {}
            other => return other,
        }
    }
    Err(Errno::NOSPC)
}

enum Fit {
    Ours,
    Plain,
    /// It is gone by now.
    Gone,
}

fn fits(wishes: &Wishes, (key, id): (i32, c_int), size: usize, flags: c_int) -> Result<Fit, Errno> {
    let stat = match kernel::stat(id) {
        Ok(stat) => stat,
        Err(Errno::INVAL | Errno::IDRM) => return Ok(Fit::Gone),
        Err(_) => return fits_unread(wishes, (key, id), size),
    };
    match Segment::find(id, &stat).map_err(|error| refused(wishes, "shmget", &error))? {
        Some(segment) if size > segment.bytes => Err(Errno::INVAL),
        Some(_) => Ok(Fit::Ours),
        None if kernel::is_gone(id) => Ok(Fit::Gone),
        // Who made it was killed before there was an object.
        None if stat.shm_segsz == TWIN_BYTES && stat.shm_nattch == 0 && flags & IPC_CREAT != 0 => {
            kernel::remove(id).map(|()| Fit::Gone)
        }
        None => Ok(Fit::Plain),
    }
}

/// The same where this process may not read the segment: of nobody's rights asked, it is found all the same.
fn fits_unread(wishes: &Wishes, (key, id): (i32, c_int), size: usize) -> Result<Fit, Errno> {
    let holds = |bytes| kernel::get(key, bytes, 0).is_ok();
    if !holds(TWIN_BYTES) || holds(TWIN_BYTES + 1) {
        return Ok(Fit::Plain);
    }
    match Segment::bytes_by_name(id).map_err(|error| refused(wishes, "shmget", &error))? {
        Some(bytes) if size > bytes => Err(Errno::INVAL),
        Some(_) => Ok(Fit::Ours),
        None => Ok(Fit::Plain),
    }
}

fn create(wishes: &Wishes, key: i32, size: usize, flags: c_int) -> Result<c_int, Errno> {
    if size == 0 {
        return Err(Errno::INVAL);
    }
    let huge = wishes.shares(size, flags) || flags & SHM_HUGETLB != 0;
    let translation = if huge { Translation::SharedTables } else { Translation::Paged };
    let options = segment::options(size, flags & 0o777, translation, flags & SHM_NORESERVE == 0);
    let id = kernel::get(key, TWIN_BYTES, IPC_CREAT | IPC_EXCL | flags & 0o777)?;
    segment::create(id, &options).map(|()| id).map_err(|error| {
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
        ErrorKind::TooMany => Errno::NOSPC,
        _ => Errno::NOMEM,
    }
}
