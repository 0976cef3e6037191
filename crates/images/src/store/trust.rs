//! Whose word counts: what root or the caller wrote, where nobody else may write.

use crate::{Error, Result};
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

fn check(stat: &Stat, path: &Path) -> Result<()> {
    let me = rustix::process::geteuid().as_raw();
    if stat.st_uid != 0 && stat.st_uid != me {
        let why =
            format!("it belongs to user {}; only what is root's or your own ({me}) is used", stat.st_uid);
        return Err(Error::untrusted(path, why));
    }
    // A link's own bits say nothing.
    if stat.st_mode & 0o022 != 0 {
        let why = format!(
            "others may write it (mode {:o}): chmod go-w, once you know what it is",
            stat.st_mode & 0o7777
        );
        return Err(Error::untrusted(path, why));
    }
    Ok(())
}

fn open(below: impl AsFd, name: &str, flags: OFlags, path: &Path) -> Result<(OwnedFd, Stat)> {
    let found = openat(below, name, flags | OFlags::CLOEXEC, Mode::empty());
    let found = found.map_err(|error| Error::file(path)(error.into()))?;
    let stat = fstat(&found).map_err(|error| Error::file(path)(error.into()))?;
    check(&stat, path)?;
    Ok((found, stat))
}

/// Opens a directory that is trusted.
pub fn directory(path: &Path) -> Result<OwnedFd> {
    let name = path.to_str().ok_or_else(|| Error::Invalid(format!("{} is not UTF-8", path.display())))?;
    Ok(open(rustix::fs::CWD, name, OFlags::RDONLY | OFlags::DIRECTORY, path)?.0)
}

/// Opens a directory below one, not through a link.
pub fn directory_below(below: impl AsFd, name: &str, path: &Path) -> Result<OwnedFd> {
    Ok(open(below, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW, path)?.0)
}

/// Opens a file below a directory, not through a link, and only if it is an ordinary one. Also its size.
pub fn file_below(below: impl AsFd, name: &str, path: &Path) -> Result<(OwnedFd, u64)> {
    // Does not wait at a pipe that somebody put there.
    let (file, stat) = open(below, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK, path)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::untrusted(path, "it is no ordinary file"));
    }
    Ok((file, stat.st_size.cast_unsigned()))
}
