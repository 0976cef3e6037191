//! POSIX shared memory that is objects: `shm_open` and `shm_unlink`, and `ftruncate` of what was opened so.
//!
//! The name of the one is the name of the other. The descriptor is the object's own memory, so that the program may map, pass,
//! duplicate and close it as it likes. Its size is the host's to change, which counts it.

use crate::errands::{self, Hidden};
use crate::table::{self, Opened};
use crate::{Errno, Wishes};
use commonhold::{
    Access, CreateOptions, Errand, Error, ErrorKind, ObjectInfo, PATIENCE, Sizing, Translation,
};
use libc::{O_ACCMODE, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, c_int};
use rustix::io::FdFlags;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};

/// How often to begin again when others make and remove an object of the same name.
const TRIES: usize = 64;

/// `shm_open`. Gives a descriptor that is closed on exec.
pub fn open(wishes: &Wishes, name: &str, flags: c_int, mode: u32) -> Result<c_int, Errno> {
    let access = match flags & O_ACCMODE {
        O_RDONLY => Access::Read,
        O_RDWR => Access::ReadWrite,
        _ => return Err(Errno::INVAL),
    };
    let name = object_of(name)?;
    let mode = mode & 0o777 & !umask();
    let opened = errands::ask(PATIENCE, |errand| {
        let (info, fd) = find(errand, &name, flags, access, mode)?;
        // Of a new one the maker may do all, whatever the mode says; who asked to read gets no more.
        let fd = match access {
            Access::Read if flags & O_CREAT != 0 => errand.open_any(&name, access)?.1,
            _ => fd,
        };
        if info.controlled || info.options.translation != Translation::Paged {
            let text = format!("shm_open: {name} has no memory that a program can map without the library");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        if info.options.fixed.is_some() {
            let text = format!(
                "shm_open: {name} has one address in all processes, where a program that maps a descriptor would not map it: \
                 use the library, or an object without"
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        if flags & O_TRUNC != 0 && access.writes() && info.options.size_bytes > 0 {
            errand.resize_opened(info.id, 0, Sizing::Exactly)?;
        }
        Ok(fd)
    });
    let fd = opened.map_err(|error| failed(wishes, "shm_open", &error))?;
    // Until it is noted: another thread's fork would leave it in the child.
    let hidden = Hidden::new(fd.as_fd());
    rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    let stat = rustix::fs::fstat(&fd)?;
    table::lock().note_opened(Opened { device: stat.st_dev, inode: stat.st_ino, name });
    drop(hidden);
    Ok(fd.into_raw_fd())
}

fn find(
    errand: &mut Errand,
    name: &str,
    flags: c_int,
    access: Access,
    mode: u32,
) -> Result<(ObjectInfo, OwnedFd), Error> {
    let options = CreateOptions { mode, reserve: Some(false), ..CreateOptions::default() };
    for _ in 0..TRIES {
        if flags & O_CREAT != 0 {
            match errand.create(name, &options) {
                Err(error) if error.kind == ErrorKind::Exists && flags & O_EXCL == 0 => {}
                made => return made,
            }
        }
        match errand.open_any(name, access) {
            Err(error) if error.kind == ErrorKind::NotFound && flags & O_CREAT != 0 => {}
            found => return found,
        }
    }
    Err(Error::new(ErrorKind::Busy, format!("{name} is made and removed again and again: try again")))
}

/// `shm_unlink`.
pub fn unlink(wishes: &Wishes, name: &str) -> Result<(), Errno> {
    let name = object_of(name)?;
    errands::ask(PATIENCE, |errand| errand.remove(&name, None))
        .map_err(|error| failed(wishes, "shm_unlink", &error))
}

/// `ftruncate` of a descriptor that may be of an object. None: it is not, or of one without a name, which no host counts any
/// more; the kernel is to be asked.
pub fn resize(wishes: &Wishes, fd: BorrowedFd<'_>, size: u64) -> Option<Result<(), Errno>> {
    let stat = rustix::fs::fstat(fd).ok()?;
    let name = table::lock().opened(stat.st_dev, stat.st_ino)?;
    let may_write = rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::RDWR));
    if !may_write {
        return None; // the kernel says why
    }
    let resized = errands::ask(PATIENCE, |errand| {
        let (info, found) = match errand.open_any(&name, Access::ReadWrite) {
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        let there =
            rustix::fs::fstat(&found).map_err(|errno| Error::io("looking at an object", &errno.into()))?;
        if (there.st_dev, there.st_ino) != (stat.st_dev, stat.st_ino) {
            return Ok(false); // another has the name by now
        }
        errand.resize_opened(info.id, size, Sizing::Exactly).map(|()| true)
    });
    match resized {
        Ok(true) => Some(Ok(())),
        Ok(false) => None,
        Err(error) => Some(Err(failed(wishes, "ftruncate", &error))),
    }
}

/// Slashes before a name mean nothing, as in the C library. Within it they are those of directories.
fn object_of(name: &str) -> Result<String, Errno> {
    let name = name.trim_start_matches('/');
    match name {
        "" | "." | ".." => Err(Errno::INVAL),
        _ => Ok(format!("/{name}")),
    }
}

fn failed(wishes: &Wishes, call: &str, error: &Error) -> Errno {
    let errno = match error.kind {
        ErrorKind::NotFound | ErrorKind::Exists | ErrorKind::Permission => {
            return Errno::from_raw_os_error(error.kind.errno());
        }
        ErrorKind::Disconnected => Errno::NOMEM,
        ErrorKind::Invalid => Errno::INVAL,
        kind => Errno::from_raw_os_error(kind.errno()),
    };
    wishes.complain(&format!("{call}: {error}"));
    errno
}

/// What the process takes from the modes of new files. Asking the kernel by umask(2) would change it for other threads.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o077)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_objects() {
        assert_eq!(object_of("/weights").as_deref(), Ok("/weights"));
        assert_eq!(object_of("weights").as_deref(), Ok("/weights"));
        assert_eq!(object_of("//lab/weights").as_deref(), Ok("/lab/weights"));
        assert!(["", "/", "/.", "/.."].into_iter().all(|name| object_of(name).is_err()));
    }
}
