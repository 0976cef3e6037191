//! Whose word counts: what root or the caller wrote, where nobody else may write.

use crate::{Error, Result};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fchmod, fstat, openat, statat};
use rustix::path::Arg;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Which path it is, for what is said of it when something is wrong: nothing else needs to know.
pub type Where<'a> = &'a dyn Fn() -> PathBuf;

#[unsafe(link_section = ".commonhold.include")]
fn check(stat: &Stat, path: Where<'_>) -> Result<()> {
    if stat.st_uid != 0 && stat.st_uid != rustix::process::geteuid().as_raw() {
        let why = format!("it belongs to user {}; only what is root's or your own is used", stat.st_uid);
        return Err(Error::untrusted(&path(), why));
    }
    if stat.st_mode & 0o022 != 0 {
        let mode = stat.st_mode & 0o7777;
        let why = format!("others may write it (mode {mode:o}): chmod go-w, once you know what it is");
        return Err(Error::untrusted(&path(), why));
    }
    Ok(())
}

fn wrong(path: Where<'_>) -> impl FnOnce(rustix::io::Errno) -> Error {
    move |error| Error::file(&path())(error.into())
}

#[unsafe(link_section = ".commonhold.include")]
fn open(below: impl AsFd, name: impl Arg, flags: OFlags, path: Where<'_>) -> Result<(OwnedFd, Stat)> {
    let found = openat(below, name, flags | OFlags::CLOEXEC, Mode::empty()).map_err(wrong(path))?;
    let stat = fstat(&found).map_err(wrong(path))?;
    check(&stat, path)?;
    Ok((found, stat))
}

/// Opens a directory that is trusted.
#[unsafe(link_section = ".commonhold.include")]
pub fn directory(path: &Path) -> Result<OwnedFd> {
    Ok(open(rustix::fs::CWD, path, OFlags::RDONLY | OFlags::DIRECTORY, &|| path.to_owned())?.0)
}

/// Opens a directory below one that is trusted, not through a link.
pub fn directory_below(below: impl AsFd, name: &str, path: Where<'_>) -> Result<OwnedFd> {
    Ok(open(below, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW, path)?.0)
}

/// Looks whether a directory below one that is trusted is trusted too. Nobody else can put another in its place then, so it
/// may be used by its name.
#[unsafe(link_section = ".commonhold.include")]
pub fn pass(below: impl AsFd, name: &str, path: Where<'_>) -> Result<()> {
    let stat = statat(below, name, AtFlags::SYMLINK_NOFOLLOW).map_err(wrong(path))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(Error::untrusted(&path(), "it is no directory"));
    }
    check(&stat, path)
}

/// Opens a file below a directory, not through a link, and only if it is an ordinary one. Also its size.
#[unsafe(link_section = ".commonhold.include")]
pub fn file_below(below: impl AsFd, name: &str, path: Where<'_>) -> Result<(OwnedFd, u64)> {
    // Does not wait at a pipe that somebody put there.
    let (file, stat) = open(below, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK, path)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::untrusted(&path(), "it is no ordinary file"));
    }
    Ok((file, stat.st_size.cast_unsigned()))
}

/// Opens a file that is only locked, made if there is none; not through a link. Its owner alone may open it: whoever can
/// open a file can hold its lock for ever.
pub fn lock_below(below: impl AsFd, name: &str, path: Where<'_>) -> Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let alone = Mode::RUSR | Mode::WUSR;
    let file = openat(below, name, flags, alone).map_err(wrong(path))?;
    let stat = fstat(&file).map_err(wrong(path))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::untrusted(&path(), "it is no ordinary file"));
    }
    check(&stat, path)?;
    if stat.st_mode & 0o777 != alone.bits() {
        fchmod(&file, alone).map_err(wrong(path))?;
    }
    Ok(file)
}
