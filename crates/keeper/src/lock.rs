//! The lock of a state directory: one open file description, shared by host and keeper, so that it is released only
//! when both are gone.

use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Takes the lock of a state directory, or says who has it. The directory must exist.
pub fn lock_state_directory(directory: &Path) -> Result<OwnedFd> {
    let path = directory.join("lock");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
        .doing(format_args!("cannot open {}", path.display()))?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(taken(directory, &lock)),
        Err(errno) => return Err(errno).doing(format_args!("cannot lock {}", path.display())),
    }
    write_pid(&lock).doing(format_args!("cannot write {}", path.display()))?;
    Ok(lock)
}

/// Writes this process's number into the lock: who holds it, for the error that a second one gets.
pub(crate) fn write_pid(lock: impl AsFd) -> io::Result<()> {
    let text = format!("{:<10}\n", std::process::id());
    points::pwrite(|| rustix::io::pwrite(lock.as_fd(), text.as_bytes(), 0))?;
    rustix::fs::ftruncate(lock.as_fd(), text.len() as u64)?;
    Ok(())
}

fn taken(directory: &Path, lock: &OwnedFd) -> Error {
    let mut text = [0; 16];
    let length = rustix::io::pread(lock, &mut text, 0).unwrap_or(0);
    let pid = std::str::from_utf8(&text[..length]).ok().and_then(|text| text.trim().parse::<u32>().ok());
    let directory = directory.display();
    let holder = match pid {
        Some(pid) if commonhold_sys::process::identity(pid).is_ok() => format!("the keeper, process {pid},"),
        Some(pid) => format!("the host of a keeper that is gone (process {pid})"),
        None => "another host".to_owned(),
    };
    Error::new(
        ErrorKind::Busy,
        format!(
            "{holder} holds the state directory {directory}: use that host, stop it with `commonhold host stop`, or \
             choose another directory"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_is_refused_and_names_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let first = lock_state_directory(directory.path()).unwrap();
        let error = lock_state_directory(directory.path()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Busy);
        assert!(error.message.contains(&format!("process {}", std::process::id())), "{error}");
        let shared = first.try_clone().unwrap();
        drop(first);
        assert!(lock_state_directory(directory.path()).is_err(), "a duplicate holds the lock too");
        drop(shared);
        lock_state_directory(directory.path()).unwrap();
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let error = lock_state_directory(Path::new("/nonexistent/commonhold")).unwrap_err();
        assert!(error.message.contains("/nonexistent/commonhold/lock"), "{error}");
    }
}
