//! After a write failed (a full disk, most often): what callers were told is in memory, and the file is made to say
//! the same before anything else is changed.

use crate::Registry;
use crate::open::{Contents, damaged};
use crate::record::ObjectRecord;
use crate::records::Records;
use crate::tree::{Node, Tree};
use commonhold_object::{Name, ObjectId, Ownership, Result};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

impl Registry {
    /// Before every change. The failed one may be in the file, if it failed at the very end: it is taken back, for
    /// it was refused. While the disk stays full this fails too, and the next change tries again.
    pub(crate) fn ready(&mut self) -> Result<()> {
        if !self.store.is_broken() {
            return Ok(());
        }
        let found = self.store.reopen()?;
        let stored: HashMap<ObjectId, &ObjectRecord> = found.records.iter().map(|r| (r.id, r)).collect();
        let directories: BTreeMap<&Name, &Ownership> =
            found.directories.iter().map(|(n, o)| (n, o)).collect();
        let mut change = self.store.change()?;
        for name in directories.keys().filter(|name| !matches!(self.tree.get(name), Some(Node::Directory(_))))
        {
            change.remove_directory(name)?;
        }
        for (name, ownership) in self.tree.directories() {
            if directories.get(&name) != Some(&&ownership) {
                change.put_directory(&name, &ownership)?;
            }
        }
        for id in stored.keys().filter(|id| self.records.get(**id).is_none()) {
            change.remove_record(*id)?;
        }
        let is_to_be = |record: &&ObjectRecord| {
            !self.unstored.contains(&record.id) && stored.get(&record.id) != Some(record)
        };
        for record in self.records.values().filter(is_to_be) {
            change.put_record(record)?;
        }
        change.put_next_object()?;
        change.commit()
    }
}

/// The tree and the records of a file; refused when they contradict each other.
pub(crate) fn build(path: &Path, contents: Contents) -> Result<(Tree, Records)> {
    let mut tree = Tree::default();
    for (name, ownership) in contents.directories {
        tree.insert(&name, Node::Directory(ownership));
    }
    let mut records = Records::default();
    for record in contents.records {
        // Pages of a damaged file may say twice what a sound one can say but once.
        if records.get(record.id).is_some() {
            return Err(damaged(path, format!("object {} is there twice", record.id.0)));
        }
        if let Some(name) = &record.name {
            if tree.get(name).is_some() {
                return Err(damaged(path, format!("{name} is there twice")));
            }
            tree.insert(name, Node::Object(record.id));
        }
        records.insert(record);
    }
    if let Some(lost) = tree.without_directory() {
        return Err(damaged(path, format!("{lost} lies in no directory")));
    }
    Ok((tree, records))
}
