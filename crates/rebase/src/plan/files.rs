//! Programs and libraries, each read once, however many programs use it and by whatever path.

use crate::elf::Elf;
use crate::{Error, Result};
use commonhold_record::State;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// A file among [`Files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(usize);

/// The state of the file at a path.
pub fn state_of(path: &Path) -> Result<State> {
    let metadata = std::fs::metadata(path).map_err(Error::file(path))?;
    let ns = |seconds: i64, rest: i64| seconds.wrapping_mul(1_000_000_000).wrapping_add(rest);
    Ok(State {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.size(),
        modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
        changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
    })
}

/// All files.
#[derive(Default)]
pub struct Files {
    all: Vec<(State, Arc<Elf>)>,
    by_state: HashMap<State, Id>,
}

impl Files {
    /// The file at a path, read if it was not.
    pub fn open(&mut self, path: &Path) -> Result<Id> {
        let state = state_of(path)?;
        if let Some(id) = self.by_state.get(&state) {
            return Ok(*id);
        }
        let real = path.canonicalize().map_err(Error::file(path))?;
        let elf = Elf::open(&real)?;
        if state_of(path)? != state {
            return Err(Error::unfit(path, "it was replaced while it was read: try again"));
        }
        let id = Id(self.all.len());
        self.all.push((state, Arc::new(elf)));
        self.by_state.insert(state, id);
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
    pub fn state(&self, id: Id) -> State {
        self.all[id.0].0
    }
}
