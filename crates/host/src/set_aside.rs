//! What lies in the state directory and nothing explains: it is never deleted. A host that finds it at its start moves it
//! into `set-aside/`, on the same file system; one that would not know any of it does not start.

use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, SeekFrom};
use rustix::io::Errno;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// Folders of the state directory in which files of objects lie.
pub const FOLDERS: [&str; 4] = ["journal", "spill", "live", "replicas"];

/// Where strays are moved to.
pub const SET_ASIDE: &str = "set-aside";

/// Most files of one name that are kept.
const MOST_OF_A_NAME: u32 = 10_000;

/// What became of a stray.
#[derive(Debug, PartialEq, Eq)]
pub enum Done {
    /// It had no data, or is there under another name too.
    Removed,
    /// It lies in `set-aside/` under this name.
    Moved(String),
}

/// Refuses to begin anew beside files of objects: a host that knows no object would take all of them for strays.
pub fn refuse_to_begin_anew(directory: &Path) -> Result<()> {
    let registry = directory.join("meta.redb");
    let why = match std::fs::metadata(&registry) {
        Ok(found) if found.len() > 0 => return Ok(()),
        Ok(_) => "is empty",
        Err(error) if error.kind() == io::ErrorKind::NotFound => "is missing",
        Err(error) => return Err(Error::io(format!("looking at {}", registry.display()), &error)),
    };
    let mut with_files = Vec::new();
    for folder in FOLDERS {
        match std::fs::read_dir(directory.join(folder)) {
            Ok(mut entries) => with_files.extend(entries.next().map(|_| folder)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(Error::io(format!("reading {}/{folder}", directory.display()), &error));
            }
        }
    }
    if with_files.is_empty() {
        return Ok(());
    }
    let (place, folders) = (directory.display(), with_files.join(" "));
    Err(Error::new(
        ErrorKind::Corrupt,
        format!(
            "{} {why}, but files of objects are there ({folders}): nothing was changed. Restore meta.redb from a copy \
             and start again. To begin anew without these objects, move their files elsewhere first: cd {place} && \
             mkdir old && mv {folders} old/",
            registry.display(),
        ),
    ))
}

/// Moves `directory/folder/name` into `directory/set-aside/`, where it is called `folder-name`. What has no data, or has
/// another name, is removed: nothing is lost with it.
pub fn set_aside(directory: &Path, folder: &str, name: &std::ffi::OsStr) -> Result<Done> {
    let from = directory.join(folder).join(name);
    if holds_nothing(&from) {
        std::fs::remove_file(&from).doing(format!("removing {}", from.display()))?;
        return Ok(Done::Removed);
    }
    let place = directory.join(SET_ASIDE);
    match std::fs::DirBuilder::new().mode(0o700).create(&place) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::io(format!("making {}", place.display()), &error));
        }
        _ => {}
    }
    let mut own = std::ffi::OsString::from(format!("{folder}-"));
    own.push(name);
    for number in 0..MOST_OF_A_NAME {
        let mut other = own.clone();
        if number > 0 {
            other.push(format!(".{number}"));
        }
        match rustix::fs::renameat_with(CWD, &from, CWD, place.join(&other), RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(Done::Moved(other.to_string_lossy().into_owned())),
            Err(Errno::EXIST) => {}
            Err(errno) => {
                let doing = format!("moving {} to {}", from.display(), place.display());
                return Err(Error::io(doing, &errno.into()));
            }
        }
    }
    let what = format!("{} has {MOST_OF_A_NAME} files of that name: remove some", place.display());
    Err(Error::new(ErrorKind::TooMany, what))
}

/// Whether it is a regular file without a byte of data, or one that has another name too. Anything that cannot be looked
/// at holds something.
fn holds_nothing(path: &Path) -> bool {
    let Ok(found) = std::fs::symlink_metadata(path) else { return false };
    if !found.is_file() {
        return false;
    }
    if found.len() == 0 || found.nlink() > 1 {
        return true;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty());
    file.is_ok_and(|file| rustix::fs::seek(&file, SeekFrom::Data(0)) == Err(Errno::NXIO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn nothing_that_holds_something_is_deleted_or_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let live = directory.path().join("live");
        std::fs::create_dir(&live).unwrap();
        for (content, kept) in [("one", "live-7"), ("two", "live-7.1")] {
            std::fs::write(live.join("7"), content).unwrap();
            let done = set_aside(directory.path(), "live", OsStr::new("7")).unwrap();
            assert_eq!(done, Done::Moved(kept.to_owned()));
        }
        for (content, kept) in [("one", "live-7"), ("two", "live-7.1")] {
            assert_eq!(
                std::fs::read_to_string(directory.path().join(SET_ASIDE).join(kept)).unwrap(),
                content
            );
        }
        std::fs::create_dir(live.join("8")).unwrap();
        std::os::unix::fs::symlink("/nowhere", live.join("9")).unwrap();
        std::fs::File::create(live.join("10")).unwrap().set_len(1 << 20).unwrap();
        let done = |name: &str| set_aside(directory.path(), "live", OsStr::new(name)).unwrap();
        assert_eq!(done("8"), Done::Moved("live-8".into()));
        assert_eq!(done("9"), Done::Moved("live-9".into()));
        assert_eq!(done("10"), Done::Removed);
        assert!(set_aside(directory.path(), "live", OsStr::new("11")).is_err());
    }

    #[test]
    fn a_host_begins_anew_only_where_no_object_was() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        refuse_to_begin_anew(place).unwrap();
        std::fs::create_dir(place.join("journal")).unwrap();
        refuse_to_begin_anew(place).unwrap();
        std::fs::write(place.join("journal/7.a"), "x").unwrap();
        let missing = refuse_to_begin_anew(place).unwrap_err();
        assert!(
            missing.message.contains("is missing") && missing.message.contains("mv journal old/"),
            "{missing}"
        );
        std::fs::write(place.join("meta.redb"), "").unwrap();
        assert!(refuse_to_begin_anew(place).unwrap_err().message.contains("is empty"));
        std::fs::write(place.join("meta.redb"), "x").unwrap();
        refuse_to_begin_anew(place).unwrap();
    }
}
