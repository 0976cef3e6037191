//! Opening the very file that a mapping shows, whatever its name is now, and looking at it without touching more.

use super::mappings::Backing;
use super::mounts::{Mounts, has_several_devices};
use super::procdir::{ProcDir, has_ended, identity, is_forbidden, stat};
use super::{Elf, FileKey, Rights, elf};
use rustix::fs::{Advice, AtFlags, CWD, FileType, Mode, OFlags, Statx, fadvise, fstatfs, openat};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a file was seen, and all that is needed to open it there.
#[derive(Clone, Debug)]
pub struct Place {
    /// The process that maps it.
    pub directory: ProcDir,
    /// The addresses of the mapping.
    pub range: (u64, u64),
    /// What smaps calls it.
    pub backing: Backing,
    /// Whether the process sees the reader's own mounts: then the path is the reader's too.
    pub is_readers: bool,
    /// The mounts that the process sees.
    pub mounts: Arc<Mounts>,
    /// Bytes of a page.
    pub page: u64,
}

/// Why a file could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// This user may not.
    Forbidden,
    /// Its name leads to another file, or nowhere.
    Gone,
    /// The file system failed.
    Failed,
    /// It did not answer in time.
    Hung,
}

impl Miss {
    fn of(error: &io::Error) -> Self {
        if is_forbidden(error) {
            Miss::Forbidden
        } else if has_ended(error) {
            Miss::Gone
        } else {
            Miss::Failed
        }
    }

    /// In words that help.
    pub fn why(self) -> &'static str {
        match self {
            Miss::Forbidden if rustix::process::geteuid().is_root() => "permission denied even to root",
            Miss::Forbidden => "permission denied: run as root to look into files of other users",
            Miss::Gone => "removed or replaced while it was mapped: only root can open such a file",
            Miss::Failed => "its file system failed to open or read it",
            Miss::Hung => "its file system did not answer in time",
        }
    }
}

/// What was found of a file.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Which it is.
    pub key: FileKey,
    /// Its length.
    pub size: u64,
    /// Its name is gone.
    pub deleted: bool,
    /// Another file has its name.
    pub replaced: bool,
    /// The path, with what belongs to it.
    pub path: PathBuf,
    /// Kind of file system.
    pub file_system: String,
    /// What its headers say.
    pub elf: Result<Elf, elf::Unfit>,
    /// It is there, but could not be read.
    pub unreadable: Option<Miss>,
    /// Whose it is.
    pub rights: Rights,
}

/// Looks at the file of a mapping. `Ok(None)`: it is no regular file (a device, say).
pub fn look(place: &Place) -> Result<Option<Facts>, Miss> {
    let (handle, about) = exact(place)?;
    if FileType::from_raw_mode(about.stx_mode.into()) != FileType::RegularFile {
        return Ok(None);
    }
    let (device, inode) = identity(&about);
    let backing = &place.backing;
    let mut facts = Facts {
        key: FileKey { device, inode },
        size: about.stx_size,
        deleted: backing.deleted && !backing.is_nameless(),
        replaced: false,
        path: backing.path.clone(),
        file_system: file_system(place, &handle, device),
        elf: Err(elf::Unfit::OtherKind),
        unreadable: None,
        rights: Rights {
            uid: about.stx_uid,
            gid: about.stx_gid,
            mode: about.stx_mode & 0o7777,
            apart_from_others: is_apart(place, about.stx_uid),
        },
    };
    if facts.deleted {
        name_now(place, &mut facts);
    }
    match readable(&handle) {
        Ok(file) => {
            // Headers alone: no pages are to come in that nobody asked for.
            let _ = fadvise(&file, 0, None, Advice::Random);
            facts.elf = elf::read(&file, facts.size, place.page);
        }
        Err(error) => facts.unreadable = Some(Miss::of(&error)),
    }
    Ok(Some(facts))
}

/// Opens the file of a mapping for reading, if it is still the one with this key.
pub fn open(place: &Place, key: FileKey) -> Result<File, Miss> {
    let (handle, about) = exact(place)?;
    if identity(&about) != (key.device, key.inode) {
        return Err(Miss::Gone);
    }
    readable(&handle).map_err(|error| Miss::of(&error))
}

/// A handle (no more than that: a device is not opened by it) of the very file.
fn exact(place: &Place) -> Result<(OwnedFd, Statx), Miss> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let link = format!("map_files/{:x}-{:x}", place.range.0, place.range.1);
    let mut miss = None;
    // The link leads to the mapped file itself: only another mapping may stand there by now.
    if let Ok(handle) = openat(&place.directory, &link, flags, Mode::empty())
        && let Ok(about) = about(&handle)
        && (about.stx_ino == place.backing.inode || passes_on(place, &about))
    {
        return Ok((handle, about));
    }
    if place.backing.deleted || place.backing.is_nameless() {
        return Err(Miss::Gone);
    }
    for path in paths(place) {
        match path.open(flags).map_err(io::Error::from).and_then(|handle| Ok((about(&handle)?, handle))) {
            Ok((about, handle)) if agrees(place, &about) => return Ok((handle, about)),
            Ok(_) => miss = Some(miss.unwrap_or(Miss::Gone)),
            Err(error) => {
                miss = Some(miss.filter(|miss| *miss == Miss::Forbidden).unwrap_or(Miss::of(&error)))
            }
        }
    }
    Err(miss.unwrap_or(Miss::Gone))
}

fn about(handle: &OwnedFd) -> Result<Statx, rustix::io::Errno> {
    stat(handle, "", AtFlags::EMPTY_PATH)
}

/// Whether this is the file that smaps means.
fn agrees(place: &Place, about: &Statx) -> bool {
    let (device, inode) = identity(about);
    inode == place.backing.inode && (device == place.backing.device || passes_on(place, about))
}

/// Whether the file system has other devices (or inodes) for stat than for smaps.
fn passes_on(place: &Place, about: &Statx) -> bool {
    let kind = |device| place.mounts.kind(device).is_some_and(has_several_devices);
    kind(identity(about).0) || kind(place.backing.device)
}

/// A path, from where it begins.
enum Route<'a> {
    OfReader(&'a Path),
    OfProcess(&'a ProcDir, PathBuf),
}

impl Route<'_> {
    fn open(&self, flags: OFlags) -> Result<OwnedFd, rustix::io::Errno> {
        match self {
            Route::OfReader(path) => openat(CWD, *path, flags, Mode::empty()),
            Route::OfProcess(directory, path) => openat(*directory, path, flags, Mode::empty()),
        }
    }

    fn identity(&self) -> Option<(u64, u64)> {
        let about = match self {
            Route::OfReader(path) => stat(CWD, *path, AtFlags::SYMLINK_NOFOLLOW),
            Route::OfProcess(directory, path) => stat(*directory, path, AtFlags::SYMLINK_NOFOLLOW),
        };
        about.ok().map(|about| identity(&about))
    }
}

/// smaps shows a path from the reader's root, or, in another mount namespace, from that one's.
fn paths(place: &Place) -> [Route<'_>; 2] {
    routes(place, &place.backing.path)
}

fn routes<'a>(place: &'a Place, path: &'a Path) -> [Route<'a>; 2] {
    let within = Path::new("root").join(path.strip_prefix("/").unwrap_or(path));
    let (own, other) = (Route::OfReader(path), Route::OfProcess(&place.directory, within));
    if place.is_readers { [own, other] } else { [other, own] }
}

/// Who has the name of a file that the kernel marked as deleted.
fn name_now(place: &Place, facts: &mut Facts) {
    let key = (facts.key.device, facts.key.inode);
    // It may really be called so.
    let mut marked = facts.path.as_os_str().to_owned();
    marked.push(" (deleted)");
    let [route, _] = routes(place, Path::new(&marked));
    if route.identity() == Some(key) {
        facts.path = PathBuf::from(marked);
        facts.deleted = false;
        return;
    }
    let [route, _] = paths(place);
    // The same file under its old name again was linked anew.
    match route.identity() {
        Some(now) if now == key => facts.deleted = false,
        now => facts.replaced = now.is_some(),
    }
}

/// Whether another file has the name of one that is gone, and that could not be opened.
pub fn has_successor(place: &Place) -> bool {
    let [route, _] = paths(place);
    place.backing.deleted && !place.backing.is_nameless() && route.identity().is_some()
}

/// Whether every directory above the file's path is its owner's or root's, and nobody else may write there.
fn is_apart(place: &Place, owner: u32) -> bool {
    place.backing.path.ancestors().skip(1).all(|above| {
        let [route, _] = routes(place, above);
        let about = match &route {
            Route::OfReader(path) => stat(CWD, *path, AtFlags::SYMLINK_NOFOLLOW),
            // The root is a link there.
            Route::OfProcess(directory, path) => stat(*directory, path, AtFlags::empty()),
        };
        about.is_ok_and(|about| {
            let is_directory = FileType::from_raw_mode(about.stx_mode.into()) == FileType::Directory;
            is_directory && [0, owner].contains(&about.stx_uid) && about.stx_mode & 0o022 == 0
        })
    })
}

fn file_system(place: &Place, handle: &OwnedFd, device: u64) -> String {
    let known = place.mounts.kind(device).or_else(|| place.mounts.kind(place.backing.device));
    known.map_or_else(|| kind_by_number(handle), str::to_owned)
}

/// Kinds that are mounted by the kernel alone, out of sight.
fn kind_by_number(handle: &OwnedFd) -> String {
    let Ok(about) = fstatfs(handle) else { return String::new() };
    match about.f_type {
        0x0102_1994 => "tmpfs".into(),
        0x9584_58f6 => "hugetlbfs".into(),
        0x794c_7630 => "overlay".into(),
        0xef53 => "ext4".into(),
        0x5846_5342 => "xfs".into(),
        0x9123_683e => "btrfs".into(),
        0x6969 => "nfs".into(),
        0x6573_5546 => "fuse".into(),
        other => format!("{other:#x}"),
    }
}

/// Opens a handle for reading; where that is allowed, without leaving a time of access behind.
fn readable(handle: &OwnedFd) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    read_only(CWD, Path::new(&path), OFlags::empty())
}

/// Opens a regular file for reading, without waiting and, where that is allowed, without leaving a time of access.
pub fn read_only(directory: impl std::os::fd::AsFd, path: &Path, more: OFlags) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | more;
    let path = path.as_os_str().as_bytes();
    match openat(&directory, path, flags | OFlags::NOATIME, Mode::empty()) {
        Err(rustix::io::Errno::PERM) => Ok(openat(&directory, path, flags, Mode::empty())?.into()),
        opened => Ok(opened?.into()),
    }
}
