//! `FILE.commonhold`, beside the file of an object whose home moves: which pages of the object may be newer than the file.
//! It outlives the home, and its machine: the next home reads there what it must not take from the file.
//!
//! ```text
//! 0     magic, identity of the object: whoever opens the file by its path finds out that it is the same file
//! 24    of what a replica keeps: in which boot it was whole, and under which of their numbers hosts had it last
//! 4096  one bit a page, sparse
//! ```
//!
//! A bit is on disk before the page is granted for writing, or written at the home; it is cleared when the page is stored
//! (nothing depends on when that is on disk: a page with its bit set counts as newer than the file, which costs it if
//! nobody has it, and is never an older version taken for the newest).
//!
//! Of an object without a common file each host that keeps its pages has a file of its own, and this beside it. What is there
//! outlives processes, not the machine: nothing is flushed, and another boot takes it for nothing.

use crate::pagers::Replicas;
use crate::waiting::may_wait;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Format, Result};
use commonhold_points as points;
use roaring::RoaringBitmap;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How it begins.
const FORMAT: Format = Format { magic: *b"ChNewer", version: 1 };
const WAY_OUT: &str =
    "use the version that wrote it, or store the object there (`commonhold sync`) and make it anew here";
const BITS_OFFSET: u64 = 4096;
const BOOT_OFFSET: u64 = 24;
const BOOT_BYTES: usize = 64;

/// The open file.
pub struct Newer {
    file: File,
    /// What it says.
    pages: RoaringBitmap,
    /// Whether it outlives the machine.
    is_durable: bool,
    /// Who is told the same.
    replicas: Option<Arc<dyn Replicas>>,
}

fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".commonhold");
    name.into()
}

/// Makes it for a new object on that open file. `owner`: whose the directory must be, for a host that may write everywhere.
pub fn make(file: &Path, opened: &File, object: u128, owner: Option<u32>) -> Result<()> {
    let path = beside(file);
    let making = || format!("making {}, which says what is newer than the file", path.display());
    let (Some(folder), Some(name), Some(own)) = (file.parent(), file.file_name(), path.file_name()) else {
        return Err(Error::invalid(format!("{} is no path of a file", file.display())));
    };
    // By one descriptor: what is looked at is where the file is made.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder =
        rustix::fs::open(folder, flags, Mode::empty()).map_err(std::io::Error::from).doing(making())?;
    let folder = File::from(folder);
    let looked = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(std::io::Error::from);
    let (looked, its) = (looked.doing(making())?, opened.metadata().doing(making())?);
    if (looked.st_dev, looked.st_ino) != (its.dev(), its.ino()) {
        return Err(Error::invalid(format!("{} leads to another file than was given", file.display())));
    }
    let whose = folder.metadata().doing(making())?.uid();
    if let Some(owner) = owner.filter(|owner| *owner != whose) {
        return Err(Error::new(
            ErrorKind::Permission,
            format!(
                "{} would lie in a directory of user {whose}, not {owner}: use a directory of yours",
                path.display()
            ),
        ));
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(its.mode() & 0o666 | 0o600);
    let made = match rustix::fs::openat(&folder, own, flags, mode) {
        Err(rustix::io::Errno::EXIST) => {
            let text = format!(
                "{} is there already: the file is that of an object whose home moves",
                path.display()
            );
            return Err(Error::new(ErrorKind::Exists, text + "; remove it if that object is no more"));
        }
        made => File::from(made.map_err(std::io::Error::from).doing(making())?),
    };
    let mut header = vec![0; BITS_OFFSET as usize];
    header[..8].copy_from_slice(&FORMAT.begin());
    header[8..24].copy_from_slice(&object.to_le_bytes());
    points::pwrite(|| made.write_all_at(&header, 0))
        .and_then(|()| points::fsync(|| made.sync_all()))
        .and_then(|()| points::fsync(|| folder.sync_all()))
        .doing(making())
}

/// A host's own file of an object, made if there is none. In a directory that is the host's alone.
pub fn open_own(file: &Path) -> Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(file, flags, Mode::from_raw_mode(0o600)).map_err(std::io::Error::from);
    opened.map(File::from).doing(format!("opening {}", file.display()))
}

/// Makes what lies beside such a file, or takes what is there: the file is not whole.
pub fn make_own(file: &Path, object: u128) -> Result<()> {
    let path = beside(file);
    let making = || format!("making {}, which says what is newer than a replica", path.display());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600)).map_err(std::io::Error::from);
    let mut header = vec![0; BITS_OFFSET as usize];
    header[..8].copy_from_slice(&FORMAT.begin());
    header[8..24].copy_from_slice(&object.to_le_bytes());
    let made = File::from(made.doing(making())?);
    points::pwrite(|| made.write_all_at(&header, 0)).doing(making())
}

/// A host's own file, and what lies beside it, under another path of the same directory too, in place of what was there. None of
/// it where it is not there.
pub fn also_as(file: &Path, other: &Path) -> Result<()> {
    let is_there = |done: std::io::Result<()>| match done {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        done => Ok(done.is_ok()),
    };
    let link = |from: &Path, to: &Path| {
        is_there(std::fs::remove_file(to))?;
        is_there(std::fs::hard_link(from, to)).map(drop)
    };
    link(file, other).and_then(|()| link(&beside(file), &beside(other))).doing(format!(
        "keeping {} as {}",
        file.display(),
        other.display()
    ))
}

/// What a host kept is no more, whatever there is of it.
pub fn remove_own(file: &Path) {
    let _ = std::fs::remove_file(beside(file));
}

/// The object is no more.
pub fn remove(file: &Path, object: u128) {
    if Newer::open(file, object).is_ok() {
        let _ = std::fs::remove_file(beside(file));
    }
}

impl Newer {
    /// Whether what is noted outlives the machine.
    pub fn is_durable(&self) -> bool {
        self.is_durable
    }

    /// Opens what lies beside the file of that object.
    pub fn open(file: &Path, object: u128) -> Result<Newer> {
        let path = beside(file);
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::empty()).map_err(std::io::Error::from);
        let opened = File::from(opened.doing(format!("opening {}", path.display()))?);
        let mut header = [0; 24];
        let is_whole = opened.read_exact_at(&mut header, 0).is_ok();
        let its = if is_whole { FORMAT.body(&header, path.display(), WAY_OUT)? } else { None };
        if its != Some(&object.to_le_bytes()) {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!("{} is not of this object: the path leads to another file here", path.display()),
            ));
        }
        let mut newer = Newer { file: opened, pages: RoaringBitmap::new(), is_durable: true, replicas: None };
        newer.read().doing(format!("reading {}", path.display()))?;
        Ok(newer)
    }

    fn read(&mut self) -> std::io::Result<()> {
        let mut bytes = vec![0; 1 << 16];
        let mut at = 0;
        loop {
            let got = self.file.read_at(&mut bytes, BITS_OFFSET + at)?;
            if got == 0 {
                return Ok(());
            }
            for (offset, byte) in bytes[..got].iter().enumerate().filter(|(_, byte)| **byte != 0) {
                let first = (at + offset as u64) * 8;
                self.pages
                    .extend((0..8).filter(|bit| byte & (1 << bit) != 0).map(|bit| (first + bit) as u32));
            }
            at += got as u64;
        }
    }

    /// Pages that may be newer than the file.
    pub fn pages(&self) -> &RoaringBitmap {
        &self.pages
    }

    /// Whether hosts are to be told the same, before anybody relies on it.
    pub fn has_replicas(&self) -> bool {
        self.replicas.is_some()
    }

    /// These may be from now on. On disk when this returns; replicas are told by whoever says it here, who need not wait with
    /// a lock for that. On an error they are not, but where replicas have it.
    pub fn set(&mut self, pages: &RoaringBitmap) -> Result<()> {
        if pages.is_subset(&self.pages) {
            return Ok(());
        }
        let new = pages - &self.pages;
        self.pages |= &new;
        let noting = || "noting that pages are newer than the file".to_owned();
        let flushed = |newer: &Self| {
            if !newer.is_durable {
                return Ok(());
            }
            may_wait("a flush of what is newer than the file");
            points::fsync(|| newer.file.sync_data())
        };
        let noted = self.write(&new).and_then(|()| flushed(self)).doing(noting());
        noted.inspect_err(|_| {
            if !self.has_replicas() {
                self.pages -= &new;
            }
        })
    }

    /// These are in the file.
    pub fn clear(&mut self, pages: &RoaringBitmap) -> Result<()> {
        let gone = pages & &self.pages;
        self.pages -= &gone;
        self.replicas.iter().for_each(|others| others.clear_newer(&gone));
        self.write(&gone).doing("noting that pages are stored")
    }

    /// It lies beside a host's own file, which these keep too, or nobody yet; it outlives no machine.
    pub fn kept_by(&mut self, replicas: Option<Arc<dyn Replicas>>) {
        (self.is_durable, self.replicas) = (false, replicas);
    }

    /// The host's own file has everything from now on that this host was told to keep, under these numbers of its.
    pub fn note_whole(&self, boot: &str, numbers: [u32; 2]) -> Result<()> {
        let mut header = [0; BOOT_BYTES + 8];
        let length = boot.len().min(BOOT_BYTES);
        header[..length].copy_from_slice(&boot.as_bytes()[..length]);
        header[BOOT_BYTES..BOOT_BYTES + 4].copy_from_slice(&numbers[0].to_le_bytes());
        header[BOOT_BYTES + 4..].copy_from_slice(&numbers[1].to_le_bytes());
        points::pwrite(|| self.file.write_all_at(&header, BOOT_OFFSET)).doing("noting what a replica has")
    }

    /// If the host's own file has everything in this boot: under which numbers.
    pub fn whole_as(&self, boot: &str) -> Option<[u32; 2]> {
        let mut header = [0; BOOT_BYTES + 8];
        self.file.read_exact_at(&mut header, BOOT_OFFSET).ok()?;
        let mut own = [0; BOOT_BYTES];
        let length = boot.len().min(BOOT_BYTES);
        own[..length].copy_from_slice(&boot.as_bytes()[..length]);
        let number = |at: usize| {
            let bytes = header[BOOT_BYTES + at..].first_chunk().copied().unwrap_or_default();
            u32::from_le_bytes(bytes)
        };
        (length > 0 && header[..BOOT_BYTES] == own).then(|| [number(0), number(4)])
    }

    /// Writes the bytes in which the bits of these pages are.
    fn write(&self, pages: &RoaringBitmap) -> std::io::Result<()> {
        let mut at: Vec<u32> = pages.iter().map(|page| page / 8).collect();
        at.dedup();
        for run in at.chunk_by(|one, next| one + 1 == *next) {
            let bits = |byte: &u32| {
                (0..8).filter(|bit| self.pages.contains(byte * 8 + bit)).map(|bit| 1 << bit).sum()
            };
            let bytes: Vec<u8> = run.iter().map(bits).collect();
            points::pwrite(|| self.file.write_all_at(&bytes, BITS_OFFSET + u64::from(run[0])))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_replica_has_counts_in_the_boot_in_which_it_was_whole() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        make_own(&file, 7).unwrap();
        let mut newer = Newer::open(&file, 7).unwrap();
        assert_eq!(newer.whole_as("boot"), None);
        newer.kept_by(None);
        newer.set(&[3].into()).unwrap();
        newer.note_whole("boot", [5, 6]).unwrap();
        let again = Newer::open(&file, 7).unwrap();
        assert_eq!(
            (again.whole_as("boot"), again.whole_as("boo"), again.whole_as("boot2")),
            (Some([5, 6]), None, None)
        );
        assert_eq!(*again.pages(), [3].into());
        make_own(&file, 7).unwrap();
        assert!(Newer::open(&file, 7).unwrap().pages().is_empty());
    }

    #[test]
    fn a_hosts_own_file_is_had_by_another_path() {
        let dir = tempfile::tempdir().unwrap();
        let (own, kept) = (dir.path().join("own"), dir.path().join("kept"));
        also_as(&own, &kept).unwrap();
        assert!(!kept.exists());
        std::fs::write(&own, [1]).unwrap();
        make_own(&own, 7).unwrap();
        Newer::open(&own, 7).unwrap().note_whole("boot", [5, 6]).unwrap();
        std::fs::write(&kept, [2]).unwrap();
        also_as(&own, &kept).unwrap();
        assert_eq!(std::fs::read(&kept).unwrap(), [1]);
        assert_eq!(Newer::open(&kept, 7).unwrap().whole_as("boot"), Some([5, 6]));
        remove_own(&kept);
        assert!(Newer::open(&kept, 7).is_err() && Newer::open(&own, 7).is_ok());
    }

    #[test]
    fn what_was_noted_is_found_by_the_next_home_of_the_same_object_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, [0; 8]).unwrap();
        let opened = File::open(&file).unwrap();
        let own = opened.metadata().unwrap().uid();
        make(&file, &opened, 7, Some(own + 1)).unwrap_err();
        make(&file, &File::open("/dev/null").unwrap(), 7, None).unwrap_err();
        make(&file, &opened, 7, Some(own)).unwrap();
        let mut newer = Newer::open(&file, 7).unwrap();
        assert!(newer.pages().is_empty());
        newer.set(&[0, 9, 17, 18, 1_000_000].into()).unwrap();
        newer.clear(&[9, 17, 500].into()).unwrap();
        newer.set(&[19].into()).unwrap();
        assert_eq!(*Newer::open(&file, 7).unwrap().pages(), [0, 18, 19, 1_000_000].into());
        assert!(Newer::open(&file, 8).is_err());
        make(&file, &opened, 8, None).unwrap_err();
        remove(&file, 8);
        Newer::open(&file, 7).unwrap();
        remove(&file, 7);
        make(&file, &opened, 8, None).unwrap();
        assert!(Newer::open(&file, 7).is_err() && Newer::open(&file, 8).unwrap().pages().is_empty());
    }

    #[test]
    fn the_file_is_that_of_its_version_and_another_is_told_from_another_objects() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        make_own(&file, 1 << 100).unwrap();
        let mut newer = Newer::open(&file, 1 << 100).unwrap();
        newer.kept_by(None);
        newer.set(&[0, 9, 17].into()).unwrap();
        newer.note_whole("boot", [5, 6]).unwrap();
        let written = std::fs::read(beside(&file)).unwrap();
        let directory = env!("CARGO_MANIFEST_DIR");
        let mut kept = crate::golden::check(directory, "newer", FORMAT.version.into(), &written);
        std::fs::write(beside(&file), &kept).unwrap();
        let newer = Newer::open(&file, 1 << 100).unwrap();
        assert_eq!((newer.pages(), newer.whole_as("boot")), (&[0, 9, 17].into(), Some([5, 6])));
        let why = Newer::open(&file, 7).err().unwrap();
        assert!(why.kind == ErrorKind::Mismatch && why.message.contains("another file"), "{why}");
        for version in [FORMAT.version - 1, FORMAT.version + 1] {
            kept[7] = version;
            std::fs::write(beside(&file), &kept).unwrap();
            let why = Newer::open(&file, 1 << 100).err().unwrap();
            assert!(why.kind == ErrorKind::Version && why.message.contains(WAY_OUT), "{why}");
            remove(&file, 1 << 100);
            assert_eq!(std::fs::read(beside(&file)).unwrap(), kept, "it stays as it is");
        }
    }
}
