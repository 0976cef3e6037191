//! Programs and libraries, each read once, however many programs use it and by whatever path.

use crate::elf::Elf;
use crate::{Error, Result};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// A file among [`Files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(usize);

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Device.
    pub device: u64,
    /// Inode.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of content, in ns.
    pub modified_ns: i64,
    /// Time of the last change of the inode, in ns.
    pub changed_ns: i64,
}

impl Identity {
    /// Of the file at a path.
    pub fn of(path: &Path) -> Result<Identity> {
        let metadata = std::fs::metadata(path).map_err(Error::file(path))?;
        let ns = |seconds: i64, rest: i64| seconds.wrapping_mul(1_000_000_000).wrapping_add(rest);
        Ok(Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// All files.
#[derive(Default)]
pub struct Files {
    all: Vec<(Identity, Arc<Elf>)>,
    by_identity: HashMap<Identity, Id>,
}

impl Files {
    /// The file at a path, read if it was not.
    pub fn open(&mut self, path: &Path) -> Result<Id> {
        let identity = Identity::of(path)?;
        if let Some(id) = self.by_identity.get(&identity) {
            return Ok(*id);
        }
        let real = path.canonicalize().map_err(Error::file(path))?;
        let elf = Elf::open(&real)?;
        if Identity::of(path)? != identity {
            return Err(Error::unfit(path, "it was replaced while it was read: try again"));
        }
        let id = Id(self.all.len());
        self.all.push((identity, Arc::new(elf)));
        self.by_identity.insert(identity, id);
        Ok(id)
    }

    /// What it holds.
    pub fn elf(&self, id: Id) -> &Elf {
        &self.all[id.0].1
    }

    /// The same, to keep.
    pub fn shared(&self, id: Id) -> Arc<Elf> {
        self.all[id.0].1.clone()
    }

    /// Which state of the file was read.
    pub fn identity(&self, id: Id) -> Identity {
        self.all[id.0].0
    }
}
