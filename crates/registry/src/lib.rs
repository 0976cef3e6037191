//! The registry: which objects there are, under which names, whose they are, and what they may cost.
//!
//! Everything is in memory for reading and in `meta.redb` for ever: a change is one transaction, and durable when
//! the call returns. Names are a tree with owners and modes as of files (Shirriff, 5.1: the file system's way of
//! naming shared segments, in which they can be listed and removed by hand).
#![forbid(unsafe_code)]

mod change;
mod create;
mod open;
mod record;
mod restore;
mod store;
mod tree;

pub use create::{NewObject, Prepared};
pub use record::{BackingFile, Entry, ObjectRecord};

use commonhold_object::{Access, Credentials, Error, ErrorKind, Name, ObjectId, Ownership, Result};
use std::collections::HashMap;
use std::path::Path;
use store::Store;
use tree::{Node, Tree};

/// All metadata of one host.
pub struct Registry {
    store: Store,
    tree: Tree,
    records: HashMap<ObjectId, ObjectRecord>,
    /// Reserved by creations that are under way: user and bytes.
    pending: HashMap<ObjectId, (u32, u64)>,
    quota_bytes: u64,
    max_objects: u64,
    boot_id: String,
}

impl Registry {
    /// Opens `directory/meta.redb`, or begins it. Refused, and the file left alone, when it is of a newer version, or damaged.
    pub fn open(directory: &Path, quota_bytes: u64, max_objects: u64) -> Result<Registry> {
        let (store, contents) = Store::open(&directory.join("meta.redb"))?;
        let (tree, records) = restore::build(&store, contents)?;
        let boot_id =
            std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
        Ok(Registry { store, tree, records, pending: HashMap::new(), quota_bytes, max_objects, boot_id })
    }

    /// The object of that name, if `who` may open it for `access`.
    pub fn lookup(&self, name: &Name, who: &Credentials, access: Access) -> Result<ObjectRecord> {
        self.tree.check_reach(name, who)?;
        let record = self.object_at(name)?;
        if !record.ownership.allows(who, Ownership::wanted(access)) {
            let what = if access.writes() { "written" } else { "read" };
            return Err(Error::new(
                ErrorKind::Permission,
                format!(
                    "{name} may not be {what} by user {}: it belongs to {}:{} with mode {:03o}",
                    who.uid, record.ownership.uid, record.ownership.gid, record.ownership.mode
                ),
            ));
        }
        Ok(record.clone())
    }

    fn object_at(&self, name: &Name) -> Result<&ObjectRecord> {
        match self.tree.get(name) {
            Some(Node::Object(id)) => self.records.get(id).ok_or_else(|| unknown(name)),
            Some(Node::Directory(_)) => Err(Error::new(
                ErrorKind::Mismatch,
                format!("{name} is a directory, not an object: name an object below it"),
            )),
            None => Err(unknown(name)),
        }
    }

    /// What is at that name.
    pub fn stat(&self, name: &Name, who: &Credentials) -> Result<Entry> {
        self.tree.check_reach(name, who)?;
        self.entry(name).ok_or_else(|| unknown(name))
    }

    fn entry(&self, name: &Name) -> Option<Entry> {
        match self.tree.get(name)? {
            Node::Object(id) => self.records.get(id).cloned().map(|r| Entry::Object(Box::new(r))),
            Node::Directory(ownership) => {
                Some(Entry::Directory { name: name.clone(), ownership: *ownership })
            }
        }
    }

    /// The entries of a directory in the order of their names, after `after`, at most `limit`; whether more follow.
    pub fn list(
        &self,
        directory: &Name,
        who: &Credentials,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<(Vec<Entry>, bool)> {
        let mut names = self.tree.children(directory, who, after, limit.saturating_add(1))?;
        let more = names.len() > limit;
        names.truncate(limit);
        Ok((names.iter().filter_map(|name| self.entry(name)).collect(), more))
    }

    /// Every record, nameless ones (removed while in use) included.
    pub fn records(&self) -> Result<Vec<ObjectRecord>> {
        Ok(self.records.values().cloned().collect())
    }

    /// Objects and reserved bytes of a user.
    pub fn usage(&self, uid: u32) -> (u64, u64) {
        let mine = self.records.values().filter(|r| r.charged_uid == uid);
        let (objects, bytes) = mine.fold((0, 0), |(n, b), r| (n + 1, b + r.charged_bytes));
        let pending = self.pending.values().filter(|(user, _)| *user == uid);
        pending.fold((objects, bytes), |(n, b), (_, more)| (n + 1, b + more))
    }

    /// Refuses growth alone: who is past a quota that was lowered may still shrink, and create what reserves nothing.
    fn check_quota(&self, uid: u32, more_objects: u64, more_bytes: u64) -> Result<()> {
        let (objects, bytes) = self.usage(uid);
        if more_objects > 0 && objects + more_objects > self.max_objects {
            return Err(Error::new(
                ErrorKind::Quota,
                format!(
                    "user {uid} has {objects} objects, the limit: remove some, or start the host with more"
                ),
            ));
        }
        if more_bytes > 0 && bytes.saturating_add(more_bytes) > self.quota_bytes {
            return Err(Error::new(
                ErrorKind::Quota,
                format!(
                    "user {uid} has reserved {bytes} of {} bytes, and {more_bytes} more were asked: remove something, \
                     or create the object with --reserve no",
                    self.quota_bytes
                ),
            ));
        }
        Ok(())
    }
}

fn unknown(name: &Name) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("there is no {name}: `commonhold ls {}` shows what there is", name.parent()),
    )
}
