//! Snapshots of what is a file already: the snapshot's file is a clone of the object's, with which it shares blocks until
//! either is written (`docs/SNAPSHOTS.md`, Files on XFS and Btrfs).
//!
//! The host has no part in the clone. This process has the object's file, and makes the clone with its own rights.

use crate::direct;
use crate::host::nonce;
use crate::object::Core;
use crate::{
    CreateOptions, Error, ErrorKind, Name, Object, PAGE_SIZE_BYTES, PagerKind, Result, SnapshotOptions,
};
use commonhold_object::error::Doing;
use commonhold_object::wire::Request;
use commonhold_sys::reflink;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// Makes the file at `path`, and an object on it. On an error neither is there.
pub(crate) fn snapshot(core: &Core, name: Name, path: &Path, options: &SnapshotOptions) -> Result<Object> {
    refuse_what_is_no_file(core)?;
    let part = Part::of(core.info()?.options.size_bytes, options)?;
    let made = CreateOptions {
        size_bytes: part.length,
        pager: PagerKind::File,
        mode: options.mode,
        description: core.options().description.clone(),
        ..CreateOptions::default()
    };
    made.check()?;
    let place = Place::of(path)?;
    let clone = place.make(core, &part, Mode::from_raw_mode((options.mode | 0o600) & 0o666))?;
    place.name(&clone)?;
    let opened = direct::store(&clone, format_args!("storing {}", path.display()))
        .and_then(|()| place.open(&clone, options.writable))
        .and_then(|file| {
            let request = Request::Create { name, options: made, nonce: nonce()?, in_directory: false };
            core.lease().shared().open(&request, &[file.as_fd()])
        });
    let (reply, fd, generation) = opened.inspect_err(|error| {
        // If nobody knows whether there is an object on it, or it is another's, the file stays.
        if !matches!(error.kind, ErrorKind::Disconnected | ErrorKind::TimedOut | ErrorKind::Lost) {
            // The first error is told: of this one there is nothing more to say than that the file stayed.
            let _ = rustix::fs::unlinkat(&place.directory, place.name, AtFlags::empty());
        }
    })?;
    Ok(Object { core: Core::new(core.lease(), reply, fd, generation)? })
}

fn refuse_what_is_no_file(core: &Core) -> Result<()> {
    let what = match &core.options().pager {
        _ if core.is_controlled() => {
            "is controlled, and the host has its newest pages: leave the file out (--file), as for any object that was \
             created with --freezable"
        }
        PagerKind::File if core.options().is_wired() => {
            "is wired, and its file has only what was synced: clone the file itself (cp --reflink), or read the object"
        }
        PagerKind::File => return Ok(()),
        _ => {
            "is memory, of which no file can be a clone: create it with --freezable for snapshots without a file, or on a file \
             of XFS, Btrfs or bcachefs"
        }
    };
    Err(Error::new(ErrorKind::Unsupported, format!("object {} {what}", core.label())))
}

/// Which bytes of the object.
struct Part {
    offset: u64,
    length: u64,
    reaches_end: bool,
}

impl Part {
    fn of(size: u64, options: &SnapshotOptions) -> Result<Part> {
        let offset = options.offset;
        let length = options.length.unwrap_or(size.saturating_sub(offset));
        if length == 0 || offset.checked_add(length).is_none_or(|end| end > size) {
            let what = format!("a snapshot of {length} bytes from byte {offset}: the object has {size}");
            return Err(Error::invalid(what));
        }
        let reaches_end = offset + length == size;
        let is_aligned = |bytes: u64| bytes.is_multiple_of(PAGE_SIZE_BYTES);
        if !is_aligned(offset) || !(reaches_end || is_aligned(length)) {
            return Err(Error::invalid(format!(
                "a snapshot of {length} bytes from byte {offset}: a clone of a file begins at a multiple of \
                 {PAGE_SIZE_BYTES}, and ends at one or where the object ends"
            )));
        }
        Ok(Part { offset, length, reaches_end })
    }
}

/// Where the clone is to be.
struct Place<'a> {
    path: &'a Path,
    directory: OwnedFd,
    name: &'a OsStr,
}

impl<'a> Place<'a> {
    fn of(path: &'a Path) -> Result<Place<'a>> {
        let none =
            || Error::invalid(format!("{path:?} names no file: give the path of one that is not there"));
        let (Some(name), Some(parent)) = (path.file_name(), path.parent()) else { return Err(none()) };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(parent, how, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT => Error::new(ErrorKind::NotFound, format!("there is no directory {parent:?}")),
            _ => Error::io(format_args!("opening the directory {parent:?}"), &errno.into()),
        })?;
        Ok(Place { path, directory, name })
    }

    /// The clone, without a name yet: whoever is killed leaves a whole file or none.
    fn make(&self, core: &Core, part: &Part, mode: Mode) -> Result<OwnedFd> {
        let size_of = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|stat| stat.st_size as u64);
        let ends_at = size_of(core.fd()).doing("looking at the object's file")?;
        if ends_at < part.offset + part.length {
            let what = format!("the file under object {} ends at byte {ends_at}: it was cut", core.label());
            return Err(Error::invalid(what));
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let clone =
            rustix::fs::openat(&self.directory, ".", flags, mode).map_err(|e| self.explain(core, e))?;
        // To the end of the file, wherever that is by now.
        let length = if part.reaches_end { 0 } else { part.length };
        reflink::clone_range(&clone, core.fd(), part.offset, length).map_err(|e| self.explain(core, e))?;
        // A kernel may say of a clone that ended early, for lack of room, that it was made.
        let has = size_of(&clone).doing("looking at the clone")?;
        if has < part.length {
            let what = format!(
                "{:?} would have {has} bytes of {}: the disk is full, or the file was cut just now; try again",
                self.path, part.length
            );
            return Err(Error::new(ErrorKind::NoSpace, what));
        }
        Ok(clone)
    }

    fn explain(&self, core: &Core, errno: Errno) -> Error {
        let (path, label) = (self.path, core.label());
        match errno {
            Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY | Errno::NOSYS | Errno::ISDIR => {
                let what = format!(
                    "{path:?} cannot be a clone of the file of object {label} ({errno}): both must lie on one file system that \
                     has clones (XFS, Btrfs or bcachefs), and be of one kind there (chattr +C); an object that is created \
                     with --freezable has snapshots anywhere"
                );
                Error::new(ErrorKind::Unsupported, what)
            }
            errno => Error::io(format_args!("cloning the file of object {label} as {path:?}"), &errno.into()),
        }
    }

    fn name(&self, clone: &OwnedFd) -> Result<()> {
        let held = format!("/proc/self/fd/{}", clone.as_raw_fd());
        let path = self.path;
        rustix::fs::linkat(CWD, held, &self.directory, self.name, AtFlags::SYMLINK_FOLLOW).map_err(|errno| {
            match errno {
                Errno::EXIST => {
                    let what = format!(
                        "{path:?} is there already: name a file that is not, which becomes the clone"
                    );
                    Error::new(ErrorKind::Exists, what)
                }
                _ => Error::io(format_args!("naming the clone {path:?}"), &errno.into()),
            }
        })
    }

    /// Opens it by its name, which the host will look for after a reboot.
    fn open(&self, clone: &OwnedFd, writable: bool) -> Result<OwnedFd> {
        let access = if writable { OFlags::RDWR } else { OFlags::RDONLY };
        let doing = || format!("opening the clone {:?}", self.path);
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::openat(&self.directory, self.name, flags, Mode::empty()).doing(doing())?;
        let identity = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
        if identity(&file).doing(doing())? != identity(clone).doing(doing())? {
            let what = format!("{:?} is another file by now: somebody replaced the clone", self.path);
            return Err(Error::new(ErrorKind::Lost, what));
        }
        Ok(file)
    }
}
