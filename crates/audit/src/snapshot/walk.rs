//! The ELF files below a directory, running or not. Never above it: no symbolic link is followed, and other file systems
//! are entered only if that was asked for.

use super::budget::{Budget, Work};
use super::elf;
use super::mounts::Mounts;
use super::open::read_only;
use super::procdir::{identity, stat};
use super::residency::cached_pages;
use super::watch::Outlet;
use super::{File, FileKey};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What is said of a mount in the way.
const ELSEWHERE: &str = "another file system is mounted there: it was not entered";

/// Something on the way.
#[derive(Debug)]
pub enum Found {
    /// An ELF file.
    Elf(Box<File>),
    /// A file or directory that could not be looked at, and why.
    Unseen(PathBuf, String),
}

/// What to walk through.
#[derive(Clone)]
pub struct Walk {
    /// Where.
    pub top: PathBuf,
    /// Into other file systems too.
    pub cross: bool,
    /// The reader's mounts.
    pub mounts: Arc<Mounts>,
    /// Processor time.
    pub budget: Budget,
    /// Bytes of a page.
    pub page: u64,
    /// Where the walk is, for whoever waits for it.
    pub now: Arc<Mutex<PathBuf>>,
}

impl Walk {
    /// Walks; ends early when nobody waits any more or the budget is spent.
    pub fn run(&self, out: &Outlet<Found>) {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = match openat(CWD, &self.top, flags, Mode::empty()) {
            Ok(top) => top,
            Err(error) => {
                out.put(Found::Unseen(self.top.clone(), said(error)));
                return;
            }
        };
        let device = stat(&top, "", AtFlags::EMPTY_PATH).map(|about| identity(&about).0).unwrap_or(0);
        let mut met = HashSet::new();
        let mut waiting = vec![PathBuf::from(".")];
        while let Some(path) = waiting.pop() {
            if let Ok(mut now) = self.now.lock() {
                *now = self.top.join(&path);
            }
            out.progress().beat();
            if !self.budget.allows(Work::Needed) {
                let why = format!("{}; it and {} more were left", self.budget.why(), waiting.len());
                out.put(Found::Unseen(self.top.join(&path), why));
                return;
            }
            if let Err(why) = self.directory(&top, device, &path, &mut met, &mut waiting, out)
                && !out.put(Found::Unseen(self.top.join(&path), why))
            {
                return;
            }
        }
    }

    fn directory(
        &self,
        top: &OwnedFd,
        device: u64,
        path: &Path,
        met: &mut HashSet<FileKey>,
        waiting: &mut Vec<PathBuf>,
        out: &Outlet<Found>,
    ) -> Result<(), String> {
        let opened = self.beneath(top, path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(said)?;
        let about = stat(&opened, "", AtFlags::EMPTY_PATH).map_err(said)?;
        if identity(&about).0 != device && !self.cross {
            return Err(ELSEWHERE.into());
        }
        for entry in Dir::read_from(&opened).map_err(said)? {
            let entry = entry.map_err(said)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || out.progress().left() {
                continue;
            }
            let below = path.join(OsStr::from_bytes(name));
            let kind = match entry.file_type() {
                FileType::Unknown => stat(&opened, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |about| FileType::from_raw_mode(about.stx_mode.into())),
                known => known,
            };
            match kind {
                FileType::Directory => waiting.push(below),
                FileType::RegularFile => {
                    out.progress().beat();
                    match self.file(&opened, OsStr::from_bytes(name), met) {
                        Ok(None) => {}
                        Ok(Some(mut file)) => {
                            file.path = self.top.join(below.strip_prefix(".").unwrap_or(&below));
                            out.put(Found::Elf(Box::new(file)));
                        }
                        Err(why) => {
                            out.put(Found::Unseen(self.top.join(below), why));
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// An ELF file, the first time that its inode is met.
    fn file(
        &self,
        directory: impl AsFd,
        name: &OsStr,
        met: &mut HashSet<FileKey>,
    ) -> Result<Option<File>, String> {
        let about = stat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(said)?;
        let (device, inode) = identity(&about);
        let key = FileKey { device, inode };
        let is_file = FileType::from_raw_mode(about.stx_mode.into()) == FileType::RegularFile;
        if !is_file || about.stx_size < 16 || !met.insert(key) {
            return Ok(None);
        }
        let file =
            read_only(&directory, Path::new(name), OFlags::NOFOLLOW).map_err(|error| error.to_string())?;
        // It may have been replaced since.
        if stat(&file, "", AtFlags::EMPTY_PATH).map_err(said).map(|now| identity(&now))? != (device, inode) {
            return Ok(None);
        }
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
        match elf::read(&file, about.stx_size, self.page) {
            Ok(elf) => Ok(Some(File {
                key,
                size: Some(about.stx_size),
                elf: Some(elf),
                cached_pages: cached_pages(&file, about.stx_size),
                file_system: self.mounts.kind(device).unwrap_or_default().to_owned(),
                ..File::default()
            })),
            // Files of symbols alone have the segments of their program in their headers, and not in themselves.
            Err(elf::Unfit::Truncated) if Path::new(name).extension() == Some(OsStr::new("debug")) => {
                Ok(None)
            }
            Err(unfit) => unfit.why().map_or(Ok(None), |why| Err(why.to_owned())),
        }
    }

    /// Opens a path below the top that no symbolic link leads out of.
    fn beneath(&self, top: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        if !self.cross {
            resolve |= ResolveFlags::NO_XDEV;
        }
        match openat2(top, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            // Kernels before 5.6: the directory's device is looked at instead.
            Err(Errno::NOSYS) => openat(top, path, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty()),
            opened => opened,
        }
    }
}

fn said(error: Errno) -> String {
    if error == Errno::XDEV {
        return ELSEWHERE.into();
    }
    std::io::Error::from(error).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::watch;
    use super::*;
    use std::time::Duration;

    fn walk(top: &Path) -> (Vec<File>, Vec<(PathBuf, String)>) {
        let walk = Walk {
            top: top.to_owned(),
            cross: false,
            mounts: Arc::new(Mounts::default()),
            budget: Budget::new(None),
            page: 4096,
            now: Arc::default(),
        };
        let (mut files, mut unseen) = (Vec::new(), Vec::new());
        let end = watch::stream(
            Duration::from_secs(60),
            move |out| walk.run(out),
            |found| match found {
                Found::Elf(file) => files.push(*file),
                Found::Unseen(path, why) => unseen.push((path, why)),
            },
        );
        assert_eq!(end, watch::End::Done);
        (files, unseen)
    }

    #[test]
    fn elf_files_once_each_and_no_link_out_of_the_directory() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let top = folder.path().join("root");
        std::fs::create_dir_all(top.join("usr/lib")).expect("made");
        let own = std::env::current_exe().expect("a path");
        std::fs::copy(&own, folder.path().join("outside")).expect("copied");
        std::fs::copy(&own, top.join("usr/lib/one")).expect("copied");
        std::fs::hard_link(top.join("usr/lib/one"), top.join("usr/same")).expect("linked");
        std::os::unix::fs::symlink(folder.path().join("outside"), top.join("link")).expect("linked");
        std::os::unix::fs::symlink(folder.path(), top.join("up")).expect("linked");
        std::fs::write(top.join("script"), "#!/bin/sh\nexit 0 # not one\n").expect("written");
        std::fs::write(top.join("damaged"), b"\x7fELF and then nothing of the kind").expect("written");
        let (files, unseen) = walk(&top);
        assert_eq!(files.len(), 1, "{files:?}");
        assert!(files[0].path.starts_with(&top) && files[0].elf.as_ref().is_some_and(|elf| elf.is_program));
        assert_eq!(unseen.len(), 1, "{unseen:?}");
        assert!(unseen[0].0.ends_with("damaged") && unseen[0].1.contains("damaged"), "{unseen:?}");
    }

    #[test]
    fn a_directory_that_is_not_there_is_told() {
        let (files, unseen) = walk(Path::new("/no such directory"));
        assert!(files.is_empty() && unseen.len() == 1, "{unseen:?}");
    }
}
