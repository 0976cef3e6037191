//! The backing file of an object: what descriptor may become one, and finding the same file after a reboot.
//!
//! The host uses the descriptor that the client sent, and gives it to whoever may write the object: it never opens for writing
//! what a client sent, since it would do that with its own rights. Some files, such as /proc/PID/mem, are another file to
//! whoever opens them.

use super::Host;
use super::session::Session;
use crate::pagers::check_room;
use commonhold_object::error::Doing;
use commonhold_object::{CreateOptions, Error, ErrorKind, PagerKind, Result};
use commonhold_registry::{BackingFile, ObjectRecord};
use commonhold_sys::frames;
use commonhold_sys::inspect::{self, Inspected};
use commonhold_sys::mounts::Mounts;
use commonhold_sys::process;
use rustix::fs::{FileType, OFlags, SealFlags};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// File systems from which files of all users are taken: the kernel itself answers for them, so nobody can make the host wait,
/// and a file is the same file to whoever opens it.
const TAKEN: [&str; 19] = [
    "bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "msdos", "nilfs2", "ntfs3",
    "overlay", "ramfs", "squashfs", "tmpfs", "vfat", "xfs", "zfs",
];

/// Of whom a file comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    /// Anybody that a host of root serves.
    Ordinary,
    /// Root, and the host's own user: nothing that the host does with a file could they not do.
    Trusted,
}

/// Refuses file systems that root names, but that hold no files.
pub(super) fn check_file_systems(named: &[String]) -> Result<()> {
    match named.iter().find(|name| inspect::is_of_the_kernel(name)) {
        None => Ok(()),
        Some(name) => Err(Error::invalid(format!(
            "--file-system {name}: what lies there is the kernel or a process, and cannot be an object: leave it out"
        ))),
    }
}

/// Memory that is counted for an object on a file, besides what is reserved for it: a file in memory has no disk on which a
/// quota of the machine would count it.
pub(super) fn bytes_in_memory(fd: impl AsFd, size_bytes: u64) -> Result<u64> {
    let fd = fd.as_fd();
    if inspect::in_memory(fd).doing("looking at the backing file")?.is_none() {
        return Ok(0);
    }
    let stat = rustix::fs::fstat(fd).map_err(std::io::Error::from).doing("looking at the backing file")?;
    Ok(size_bytes.max(stat.st_size as u64))
}

/// A backing file that may become an object.
pub(super) struct Taken {
    pub file: BackingFile,
    /// See [`bytes_in_memory`].
    pub memory_bytes: u64,
}

/// The mounts as they are now.
pub(super) fn read_mounts() -> Result<Mounts> {
    Mounts::read().doing("reading /proc/self/mountinfo")
}

fn look(fd: impl AsFd, mounts: &Mounts) -> Result<Inspected> {
    Inspected::of(fd, mounts).doing("looking at the backing file")
}

impl Host {
    fn comes_from(&self, uid: u32) -> From {
        if self.machine.is_ordinary(uid) { From::Ordinary } else { From::Trusted }
    }

    /// Looks at the descriptor of a backing file. `is_own`: the host has made it.
    pub(super) fn take_backing(
        &self,
        options: &mut CreateOptions,
        given: Option<&OwnedFd>,
        session: &Session,
        is_own: bool,
    ) -> Result<Option<Taken>> {
        if options.pager != PagerKind::File {
            return Ok(None);
        }
        let fd = given.ok_or_else(|| {
            Error::invalid(
                "an object with a file pager needs the file's descriptor: open the file, then create",
            )
        })?;
        let found = look(fd, &read_mounts()?)?;
        if found.kind != FileType::RegularFile {
            return Err(Error::invalid("the backing file is not a regular file: only those can be objects"));
        }
        if found.flags.contains(OFlags::PATH) || found.flags & OFlags::RWMODE == OFlags::WRONLY {
            return Err(Error::invalid("the backing file must be open for reading: open it so, then create"));
        }
        if !is_own {
            self.check_file_system(&found, fd, self.comes_from(session.credentials.uid))?;
            check_seals(&found, self.comes_from(session.credentials.uid))?;
        }
        check_flags(&found, options)?;
        let (length, read_only) = (found.size_bytes, found.is_read_only());
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
        if options.size_bytes > length && !is_own {
            check_file_limit(session, options.size_bytes)?;
        }
        let path = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default();
        let memory_bytes = bytes_in_memory(fd, options.size_bytes)?;
        let file = BackingFile {
            path,
            device: found.device,
            inode: found.inode,
            owner_uid: found.owner_uid,
            read_only,
        };
        Ok(Some(Taken { file, memory_bytes }))
    }

    /// Refuses files of file systems that could make the host wait, or act for who sent them.
    fn check_file_system(&self, found: &Inspected, fd: impl AsFd, from: From) -> Result<()> {
        let named = |name: &str| self.limits.file_systems.iter().any(|other| is_of_type(name, other));
        let refused = |text: String| Err(Error::new(ErrorKind::Unsupported, text));
        match found.file_system.as_deref() {
            Some("fuse.commonhold") => refused(
                "the backing file is a file of a mount of Commonhold, and would wait for itself: name the object instead".into(),
            ),
            Some(name) if inspect::is_of_the_kernel(name) => refused(format!(
                "the backing file lies on {name}, where files are the kernel or a process: give a file of a disk, or a \
                 memfd"
            )),
            Some("hugetlbfs") => {
                refused("the backing file is made of huge pages: give a file of a disk, or a memfd without MFD_HUGETLB".into())
            }
            Some(name) if TAKEN.contains(&name) || named(name) || from == From::Trusted => Ok(()),
            Some(name) => refused(format!(
                "the backing file lies on {name}, whose server could make this host wait: give a file of a local file \
                 system, or let root start the host with --file-system {name}"
            )),
            None if from == From::Trusted => {
                let is_kernel = inspect::is_of_the_kernel_by_asking(fd).doing("looking at the backing file")?;
                if is_kernel { refused("the backing file is the kernel or a process: give a file of a disk".into()) } else { Ok(()) }
            }
            None => refused(
                "the backing file lies on a file system that this host does not see (of a container, perhaps): give a \
                 file of a file system that is mounted where the host runs, or a memfd"
                    .into(),
            ),
        }
    }

    /// The same of a descriptor that a host before this one took, which may have been an older version.
    pub(super) fn check_kept_backing(&self, fd: &OwnedFd, mounts: &Mounts) -> Result<()> {
        let found = look(fd, mounts)?;
        let of_the_kernel = found.file_system.as_deref().is_some_and(inspect::is_of_the_kernel);
        if found.kind == FileType::RegularFile && !of_the_kernel {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Lost,
            "the backing file is the kernel or a process, which the host before took for a file: remove the object",
        ))
    }

    /// Opens a backing file again after a reboot: only if it is the same file of the same owner, whom its object's user need not
    /// be. Nothing is opened before that is known: opening a device or a pipe does something.
    pub(super) fn reopen_backing(
        &self,
        record: &ObjectRecord,
        file: &BackingFile,
        mounts: &Mounts,
    ) -> Result<OwnedFd> {
        let path = file.path.display();
        let failed = || format!("the backing file {path} cannot be opened again");
        let held = inspect::hold(&file.path).doing(failed())?;
        let now = look(&held, mounts)?;
        let is_same = (now.device, now.inode, now.owner_uid) == (file.device, file.inode, file.owner_uid);
        if !is_same || now.kind != FileType::RegularFile {
            return Err(Error::new(
                ErrorKind::Lost,
                format!(
                    "{path} is not the file that the object was created from (device, inode or owner differ): put the \
                     original back, or remove the object and create it from the new file"
                ),
            ));
        }
        let from = self.comes_from(record.charged_uid);
        // The host's own files lie wherever its state does.
        if !file.path.starts_with(&self.machine.directory) {
            self.check_file_system(&now, &held, from)?;
        }
        let needed = if file.read_only { 0o4 } else { 0o6 };
        if from == From::Ordinary && !may_open(&now, record, needed) {
            return Err(Error::new(
                ErrorKind::Permission,
                format!(
                    "the mode of {path} ({:o}) does not let user {} open it any more: change it, or create the object \
                     again from an open file",
                    now.mode, record.charged_uid
                ),
            ));
        }
        let mode = if file.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        inspect::open_held(&held, mode).doing(failed())
    }

    /// Holds a file by its path, looks at it, and opens it for reading and writing: a path that another host told.
    pub(super) fn open_by_path(&self, path: &std::path::Path) -> Result<OwnedFd> {
        let held = inspect::hold(path).doing(format!("opening {}", path.display()))?;
        let found = look(&held, &read_mounts()?)?;
        if found.kind != FileType::RegularFile {
            return Err(Error::invalid(format!("{} is not a regular file", path.display())));
        }
        self.check_file_system(&found, &held, From::Trusted)?;
        inspect::open_held(&held, OFlags::RDWR).doing(format!("opening {}", path.display()))
    }
}

/// `nfs4` is `nfs4`, and `fuse.sshfs` is `fuse` too.
fn is_of_type(name: &str, wanted: &str) -> bool {
    name == wanted || name.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.'))
}

/// A memfd has no disk that bounds it: what could grow would count for nobody.
fn check_seals(found: &Inspected, from: From) -> Result<()> {
    let Some(seals) = found.seals else { return Ok(()) };
    if seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) && !found.is_read_only() {
        return Err(Error::invalid(
            "the backing file is sealed against writing: open it for reading alone (/proc/self/fd/N), then create",
        ));
    }
    if from == From::Ordinary && found.is_apart && !found.cannot_grow() {
        return Err(Error::invalid(
            "the backing file is memory that can grow past what your quota counts: make the memfd with \
             MFD_ALLOW_SEALING, give it its size, and seal it with F_SEAL_GROW, then create",
        ));
    }
    Ok(())
}

/// Pages are read and written through buffers of any address; what is mapped alone has no such need.
fn check_flags(found: &Inspected, options: &CreateOptions) -> Result<()> {
    let is_copied = options.is_controlled() || options.is_fetched();
    if found.flags.contains(OFlags::DIRECT) && is_copied {
        return Err(Error::invalid("the backing file is open with O_DIRECT: open it without, then create"));
    }
    let appends = found.flags.contains(OFlags::APPEND) && !found.is_read_only();
    if appends && is_copied && !frames::writes_in_place_despite_append() {
        return Err(Error::invalid(
            "the backing file is open with O_APPEND, and this kernel would write every page at its end: open it without, \
             then create",
        ));
    }
    Ok(())
}

/// Whether the file's mode lets the user of the object open it so: as its owner, or in the object's group, or as anybody. The
/// user's other groups are not known any more.
fn may_open(file: &Inspected, record: &ObjectRecord, needed: u32) -> bool {
    let shift = match () {
        () if file.owner_uid == record.charged_uid => 6,
        () if file.group_gid == record.ownership.gid => 3,
        () => 0,
    };
    file.mode >> shift & needed == needed
}

/// Refuses what the client's process itself could not do: files larger than its limit (RLIMIT_FSIZE). Of a process that the host
/// does not see nothing is known.
pub(super) fn check_file_limit(session: &Session, size_bytes: u64) -> Result<()> {
    if session.process.start_ticks == 0 {
        return Ok(());
    }
    let limit =
        process::file_size_limit(session.process).doing("asking for the process's file size limit")?;
    if size_bytes <= limit {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Quota,
        format!(
            "the file would have {size_bytes} bytes, and this process may make files of {limit} at most: raise the limit \
             (ulimit -f), or give a smaller size"
        ),
    ))
}

/// Makes a backing file as long as its object, and takes its space; on an error it is as it was.
/// `leaves_room`: the space that the disk keeps for root is not for it.
pub(super) fn grow_file(fd: &OwnedFd, options: &CreateOptions, leaves_room: bool) -> Result<()> {
    let stat = rustix::fs::fstat(fd).map_err(std::io::Error::from).doing("looking at the backing file")?;
    let length = stat.st_size as u64;
    let missing = options.size_bytes.saturating_sub(stat.st_blocks as u64 * 512);
    if leaves_room && options.reserves() {
        check_room(fd, missing)?;
    }
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
        // The first error is told: of this one there is nothing more to say than that the file stayed longer.
        let _ = rustix::fs::ftruncate(fd, length);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_file_systems() {
        for (name, wanted, is) in [
            ("nfs4", "nfs4", true),
            ("nfs4", "nfs", false),
            ("fuse.sshfs", "fuse", true),
            ("fuse", "fuse", true),
            ("fuseblk", "fuse", false),
            ("fuse", "fuse.sshfs", false),
        ] {
            assert_eq!(is_of_type(name, wanted), is, "{name} {wanted}");
        }
        check_file_systems(&["nfs4".into()]).unwrap();
        check_file_systems(&["nfs4".into(), "proc".into()]).unwrap_err();
    }
}
