//! The backing file of an object: what descriptor may become one, and finding the same file after a reboot.

use super::Host;
use commonhold_object::error::Doing;
use commonhold_object::{CreateOptions, Error, ErrorKind, PagerKind, Result};
use commonhold_registry::BackingFile;
use commonhold_sys::frames;
use rustix::fs::{FileType, OFlags};
use std::os::fd::{AsRawFd, OwnedFd};

impl Host {
    /// Looks at the descriptor of a backing file.
    pub(super) fn take_backing(
        &self,
        options: &mut CreateOptions,
        given: Option<&OwnedFd>,
    ) -> Result<Option<BackingFile>> {
        if options.pager != PagerKind::File {
            return Ok(None);
        }
        let fd = given.ok_or_else(|| {
            Error::invalid(
                "an object with a file pager needs the file's descriptor: open the file, then create",
            )
        })?;
        let stat =
            rustix::fs::fstat(fd).map_err(std::io::Error::from).doing("looking at the backing file")?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Error::invalid("the backing file is not a regular file: only those can be objects"));
        }
        let flags =
            rustix::fs::fcntl_getfl(fd).map_err(std::io::Error::from).doing("looking at the backing file")?;
        if flags.contains(OFlags::PATH) || flags & OFlags::RWMODE == OFlags::WRONLY {
            return Err(Error::invalid("the backing file must be open for reading: open it so, then create"));
        }
        let read_only = flags & OFlags::RWMODE == OFlags::RDONLY;
        let length = stat.st_size as u64;
        if options.size_bytes == 0 {
            if length == 0 {
                return Err(Error::invalid("the file is empty: give a size, to which it will grow"));
            }
            options.size_bytes = length;
        }
        if options.size_bytes > length && read_only {
            return Err(Error::invalid(format!(
                "the file has {length} bytes, and cannot grow to {} because it is open for reading alone",
                options.size_bytes
            )));
        }
        let path = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default();
        Ok(Some(BackingFile {
            path,
            device: stat.st_dev,
            inode: stat.st_ino,
            owner_uid: stat.st_uid,
            read_only,
        }))
    }
}

/// The file of a descriptor, opened anew: the one that came shares its flags with whoever sent it, and O_APPEND would
/// lead every page to the file's end. A file that the host's own user may not open is used through what came, as long
/// as that has no such flag.
pub(super) fn own_description(given: OwnedFd, read_only: bool) -> Result<OwnedFd> {
    let mode = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let path = format!("/proc/self/fd/{}", given.as_raw_fd());
    let flags = mode | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let errno = match rustix::fs::open(path.as_str(), flags, rustix::fs::Mode::empty()) {
        Ok(fd) => return Ok(fd),
        Err(errno) => errno,
    };
    let flags =
        rustix::fs::fcntl_getfl(&given).map_err(std::io::Error::from).doing("looking at the backing file")?;
    if flags.intersects(OFlags::APPEND | OFlags::DIRECT) {
        return Err(Error::invalid(format!(
            "the host cannot open the backing file itself ({errno}), and the descriptor it was given has O_APPEND or \
             O_DIRECT set, with which pages cannot be stored: open the file without them"
        )));
    }
    Ok(given)
}

/// Makes a backing file as long as its object, and takes its space; on an error it is as it was.
pub(super) fn grow_file(fd: &OwnedFd, options: &CreateOptions) -> Result<()> {
    let stat = rustix::fs::fstat(fd).map_err(std::io::Error::from).doing("looking at the backing file")?;
    let length = stat.st_size as u64;
    let grown = if options.size_bytes > length {
        rustix::fs::ftruncate(fd, options.size_bytes)
            .map_err(std::io::Error::from)
            .doing("growing the backing file")
    } else {
        Ok(())
    };
    let reserve =
        || frames::allocate(fd, 0, options.size_bytes).doing("reserving disk space for the backing file");
    let done = grown.and_then(|()| if options.reserves() { reserve() } else { Ok(()) });
    if done.is_err() && options.size_bytes > length {
        let _ = rustix::fs::ftruncate(fd, length);
    }
    done
}

/// Opens a backing file again after a reboot: only if it is the same file of the same owner.
pub(super) fn reopen_backing(file: &BackingFile) -> Result<OwnedFd> {
    use rustix::fs::Mode;
    let mode = if file.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let path = file.path.display();
    let fd = rustix::fs::open(
        &file.path,
        mode | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK,
        Mode::empty(),
    )
    .map_err(std::io::Error::from)
    .doing(format!("the backing file {path} cannot be opened again"))?;
    let now = rustix::fs::fstat(&fd).map_err(std::io::Error::from).doing("looking at the backing file")?;
    if (now.st_dev, now.st_ino, now.st_uid) != (file.device, file.inode, file.owner_uid) {
        return Err(Error::new(
            ErrorKind::Lost,
            format!(
                "{path} is not the file that the object was created from (device, inode or owner differ): put the \
                 original back, or remove the object and create it from the new file"
            ),
        ));
    }
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_backing_file_is_written_in_place_whatever_flags_its_descriptor_came_with() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, [0; 8192]).unwrap();
        let mut theirs = std::fs::File::options().read(true).append(true).open(&path).unwrap();
        let ours: std::fs::File = own_description(theirs.try_clone().unwrap().into(), false).unwrap().into();
        ours.write_all_at(b"page", 4096).unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[4096..4100], *b"page");
        theirs.write_all(b"end").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 8195);
    }
}
