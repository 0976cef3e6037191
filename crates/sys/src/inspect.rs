//! What a descriptor is that somebody else sent. No question that is asked here waits for whoever serves the file: fstat and
//! fstatfs of a file in a file system in user space, or on a network, wait for its server, which may be the sender.

use crate::mounts::Mounts;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, SealFlags, StatxFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// File systems of the kernel that hold no files of users: what is read and written there is the kernel itself, a process
/// or a device, and who opens it decides what may be done. Names as in /proc/filesystems, and numbers as of statfs(2).
const OF_THE_KERNEL: [(&str, u32); 20] = [
    ("proc", 0x9fa0),
    ("sysfs", 0x6265_6572),
    ("debugfs", 0x6462_6720),
    ("tracefs", 0x7472_6163),
    ("securityfs", 0x7363_6673),
    ("selinuxfs", 0xf97c_ff8c),
    ("smackfs", 0x4341_5d53),
    ("apparmorfs", 0x5a3c_69f0),
    ("configfs", 0x6265_6570),
    ("cgroup", 0x0027_e0eb),
    ("cgroup2", 0x6367_7270),
    ("bpf", 0xcafe_4a11),
    ("binfmt_misc", 0x4249_4e4d),
    ("pstore", 0x6165_676c),
    ("efivarfs", 0xde5e_81e4),
    ("devpts", 0x1cd1),
    ("mqueue", 0x1980_0202),
    ("rpc_pipefs", 0x6759_6969),
    ("nsfs", 0x6e73_6673),
    ("fusectl", 0x6573_5543),
];
const TMPFS: u32 = 0x0102_1994;
const RAMFS: u32 = 0x8584_58f6;
const HUGETLBFS: u32 = 0x9584_58f6;

/// Whether a file is of a file system that is memory alone: no page of it is ever written back. False if that cannot be told.
pub fn is_in_memory(file: impl AsFd) -> bool {
    let found = rustix::fs::fstatfs(file).map(|found| found.f_type as u32);
    found.is_ok_and(|kind| [TMPFS, RAMFS].contains(&kind))
}

/// Whether files of that file system are the kernel itself, a process or a device.
pub fn is_of_the_kernel(file_system: &str) -> bool {
    OF_THE_KERNEL.iter().any(|(name, _)| *name == file_system)
}

/// What a descriptor is.
#[derive(Clone, Debug)]
pub struct Inspected {
    /// Kind of file.
    pub kind: FileType,
    /// How it is open.
    pub flags: OFlags,
    /// Bytes, as far as is known without asking a server.
    pub size_bytes: u64,
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Owner.
    pub owner_uid: u32,
    /// Group.
    pub group_gid: u32,
    /// Who may read, write and execute it.
    pub mode: u32,
    /// The type of its file system; `None` if that is none that this process sees.
    pub file_system: Option<String>,
    /// Its seals, if it lies in memory (a memfd, a file of tmpfs or hugetlbfs).
    pub seals: Option<SealFlags>,
    /// It has no path: a memfd, or a file of a mount that this process does not see.
    pub is_apart: bool,
}

/// The seals of a file in memory and the type of its file system, which the kernel itself tells; `None` for any other file.
pub fn in_memory(fd: impl AsFd) -> io::Result<Option<(SealFlags, Option<&'static str>)>> {
    let fd = fd.as_fd();
    let seals = match rustix::fs::fcntl_get_seals(fd) {
        Ok(seals) => seals,
        // Other files have none, and what is open as a path alone tells nothing.
        Err(Errno::INVAL | Errno::BADF) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let number = rustix::fs::fstatfs(fd)?.f_type as u32;
    let known = [(TMPFS, "tmpfs"), (HUGETLBFS, "hugetlbfs")];
    Ok(Some((seals, known.iter().find(|(other, _)| *other == number).map(|(_, name)| *name))))
}

impl Inspected {
    /// Looks at a descriptor.
    pub fn of(fd: impl AsFd, mounts: &Mounts) -> io::Result<Inspected> {
        let fd = fd.as_fd();
        let memory = in_memory(fd)?;
        let flags = rustix::fs::fcntl_getfl(fd)?;
        let wanted = StatxFlags::TYPE
            | StatxFlags::MODE
            | StatxFlags::INO
            | StatxFlags::SIZE
            | StatxFlags::UID
            | StatxFlags::GID
            | StatxFlags::MNT_ID;
        let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = rustix::fs::statx(fd, "", how, wanted)?;
        let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
        let is_apart = !mounts.has(found.stx_mnt_id);
        let file_system = match &memory {
            Some((_, name)) => *name,
            None => mounts.file_system(found.stx_mnt_id, device),
        };
        Ok(Inspected {
            kind: FileType::from_raw_mode(found.stx_mode.into()),
            flags,
            size_bytes: found.stx_size,
            device,
            inode: found.stx_ino,
            owner_uid: found.stx_uid,
            group_gid: found.stx_gid,
            mode: u32::from(found.stx_mode) & 0o7777,
            file_system: file_system.map(str::to_owned),
            seals: memory.map(|(seals, _)| seals),
            is_apart,
        })
    }

    /// Whether it may be read but not written through the descriptor.
    pub fn is_read_only(&self) -> bool {
        self.flags & OFlags::RWMODE == OFlags::RDONLY
    }

    /// Whether nobody can make it larger any more.
    pub fn cannot_grow(&self) -> bool {
        self.seals.is_some_and(|seals| seals.contains(SealFlags::GROW))
    }
}

/// The same as [`is_of_the_kernel`] of a file whose mount is not seen. This asks the file system, which may wait for whoever
/// serves it: only for files of those whom the host serves alone.
pub fn is_of_the_kernel_by_asking(fd: impl AsFd) -> io::Result<bool> {
    let number = rustix::fs::fstatfs(fd)?.f_type as u32;
    Ok(OF_THE_KERNEL.iter().any(|(_, other)| *other == number))
}

/// Holds what lies at a path without opening it: neither a device, nor a pipe, nor a server learns of it.
pub fn hold(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens the very file that is held, which has been looked at.
pub fn open_held(held: impl AsFd, mode: OFlags) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", held.as_fd().as_raw_fd());
    Ok(rustix::fs::open(path, mode | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn look(fd: impl AsFd) -> Inspected {
        Inspected::of(fd, &Mounts::read().unwrap()).unwrap()
    }

    #[test]
    fn files_of_the_kernel_are_told_from_others() {
        for path in ["/proc/self/mem", "/proc/self/maps", "/sys/kernel/mm/transparent_hugepage/enabled"] {
            let Ok(file) = File::open(path) else { continue };
            let found = look(&file);
            assert_eq!(found.kind, FileType::RegularFile, "{path}");
            assert!(found.file_system.as_deref().is_some_and(is_of_the_kernel), "{path}: {found:?}");
            assert!(is_of_the_kernel_by_asking(&file).unwrap(), "{path}");
        }
        let file = tempfile::tempfile().unwrap();
        let found = look(&file);
        assert!(found.file_system.as_deref().is_some_and(|name| !is_of_the_kernel(name)));
        assert!(!is_of_the_kernel_by_asking(&file).unwrap());
        assert!(!found.is_apart);
    }

    #[test]
    fn memory_is_known_by_its_seals() {
        let frames = crate::frames::create("inspect", 8192).unwrap();
        let found = look(&frames);
        assert_eq!((found.file_system.as_deref(), found.size_bytes), (Some("tmpfs"), 8192));
        assert!(found.is_apart && !found.cannot_grow());
        let theirs = rustix::fs::memfd_create("theirs", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::fcntl_add_seals(&theirs, SealFlags::GROW).unwrap();
        let found = look(&theirs);
        assert!(found.cannot_grow());
    }

    #[test]
    fn what_is_held_is_not_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, b"bytes").unwrap();
        let held = hold(&path).unwrap();
        let found = look(&held);
        assert!(found.flags.contains(OFlags::PATH) && found.size_bytes == 5);
        // Another file takes the path: the one that was held is opened.
        std::fs::rename(&path, directory.path().join("before")).unwrap();
        std::fs::write(&path, b"other").unwrap();
        let opened = open_held(&held, OFlags::RDONLY).unwrap();
        assert_eq!(look(&opened).inode, found.inode);
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(look(hold(&link).unwrap()).kind, FileType::Symlink);
    }
}
