//! Which versions are being built: whoever builds `words@1.2.0` holds a lock of `building/words@1.2.0`. The kernel
//! gives the lock back with the process, so the next change sees which builds ended without a word, and frees what
//! they had reserved.

use super::{Store, names, range_name, trust};
use crate::{Error, Result};
use commonhold_image::{Kind, Version, Wanted, is_name};
use rustix::fs::{AtFlags, FlockOperation, flock, fstat, unlinkat};
use std::cell::Cell;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};

const DIRECTORY: &str = "building";

/// A version that this process builds. Others may build it as well: one of them is going to publish it.
pub struct Building {
    directory: OwnedFd,
    name: String,
    file: OwnedFd,
    /// Nothing is reserved for it any more: it was published, or its addresses were given back.
    is_over: Cell<bool>,
}

/// Whether a file has a name: who removes it holds its lock alone.
fn has_name(file: impl AsFd) -> bool {
    fstat(file).is_ok_and(|stat| stat.st_nlink > 0)
}

impl Building {
    /// Nothing is left to be freed.
    pub fn settle(&self) {
        self.is_over.set(true);
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        // What is not removed now the next change removes.
        if self.is_over.get() && flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = unlinkat(&self.directory, &self.name, AtFlags::empty());
        }
    }
}

impl Store {
    fn building_directory(&self) -> Result<OwnedFd> {
        trust::directory_below(trust::directory(&self.root)?, DIRECTORY, &|| self.root.join(DIRECTORY))
    }

    /// Says that this process builds a version, until the result is dropped. To be said before addresses are reserved
    /// for it: if the process ends without publishing it, the next change frees them.
    pub fn building(&self, name: &str, version: Version) -> Result<Building> {
        if !is_name(name) {
            return Err(names::not_a_name(name));
        }
        self.create()?;
        let directory = self.building_directory()?;
        let name = format!("{name}@{version}");
        let path = self.root.join(DIRECTORY).join(&name);
        loop {
            let file = trust::lock_below(&directory, &name, &|| path.clone())?;
            flock(&file, FlockOperation::LockShared).map_err(|error| Error::file(&path)(error.into()))?;
            if has_name(&file) {
                return Ok(Building { directory, name, file, is_over: Cell::new(false) });
            }
        }
    }

    /// Whether some process builds it now.
    pub(super) fn is_being_built(&self, name: &str, version: Version) -> bool {
        let path = self.root.join(DIRECTORY).join(format!("{name}@{version}"));
        let file = self.building_directory().and_then(|directory| {
            trust::file_below(directory, &format!("{name}@{version}"), &|| path.clone()).map(|(file, _)| file)
        });
        file.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_err())
    }

    /// Frees what was reserved for versions that nobody builds any more, and that were never published. Under the
    /// store's lock.
    pub(super) fn free_abandoned(&self) -> Result<()> {
        let path = self.root.join(DIRECTORY);
        let entries = match fs::read_dir(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()), // of an earlier Commonhold
            entries => entries.map_err(Error::file(&path))?,
        };
        let directory = self.building_directory()?;
        let (mut abandoned, mut alive) = (Vec::new(), Vec::new());
        for entry in entries.flatten() {
            let file_name = entry.file_name();
            let Some(wanted) = file_name.to_str().and_then(Wanted::parse) else { continue };
            let Some(version) = wanted.exact() else { continue };
            let file = trust::lock_below(&directory, &file_name.to_string_lossy(), &|| entry.path())?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => abandoned.push((wanted.name.to_owned(), version, file)),
                Err(_) => alive.push((wanted.name.to_owned(), version.major)),
            }
        }
        for (name, version, _alone) in abandoned {
            let all = self.versions(&name)?;
            if !all.iter().any(|entry| entry.version == version) {
                self.ranges()?.release(&range_name(Kind::Data, &name, version))?;
            }
            let has_major = all.iter().any(|entry| entry.version.major == version.major)
                || alive.contains(&(name.clone(), version.major));
            if !has_major {
                self.ranges()?.release(&range_name(Kind::Code, &name, version))?;
                self.forget_slots(&name, version.major)?;
            }
            // Last: until then the next change would do it.
            let _ = unlinkat(&directory, format!("{name}@{version}"), AtFlags::empty());
        }
        Ok(())
    }
}
