//! The registry: which objects there are, under which names, whose they are, and what they may cost.
//!
//! Everything is in memory for reading and in `meta.redb` for ever: a change is one transaction, and durable when
//! the call returns. Names are a tree with owners and modes as of files (Shirriff, 5.1: the file system's way of
//! naming shared segments, in which they can be listed and removed by hand).
#![forbid(unsafe_code)]

mod change;
mod create;
#[cfg(test)]
mod cut_off;
mod file;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
#[cfg(test)]
mod golden;
mod moving;
mod open;
mod quota;
mod record;
mod records;
mod restore;
mod store;
mod tree;

pub use change::Renaming;
pub use create::{NewObject, Prepared};
pub use quota::{Quota, Quotas};
pub use record::{BackingFile, Entry, ObjectRecord};
pub use store::VERSION;

use commonhold_object::{Access, Credentials, Error, ErrorKind, Name, ObjectId, Ownership, Result};
use records::Records;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::Store;
use tree::{Node, Tree};

/// All metadata of one host.
pub struct Registry {
    store: Store,
    tree: Tree,
    records: Records,
    /// Creations that are under way: they count already.
    pending: HashMap<ObjectId, ObjectRecord>,
    /// Objects that the store does not know.
    unstored: HashSet<ObjectId>,
    quotas: Quotas,
    boot_id: String,
    identities: Identities,
}

/// Draws identities of new objects, by keys that nobody else knows: who chooses a nonce does not choose an identity, and who sees
/// one learns nothing of others.
struct Identities([RandomState; 2]);

impl Identities {
    fn new() -> Identities {
        Identities([RandomState::new(), RandomState::new()])
    }

    fn draw(&self, nonce: u128, id: ObjectId) -> u128 {
        let [high, low] = self.0.each_ref().map(|keys| u128::from(keys.hash_one((nonce, id.0))));
        high << 64 | low
    }
}

fn path_in(directory: &Path) -> PathBuf {
    directory.join("meta.redb")
}

impl Registry {
    /// Refuses `directory/meta.redb` of another version, or damaged. A host may be using it: nothing of it is changed.
    pub fn check(directory: &Path) -> Result<()> {
        /// Looks before it counts as damaged: while it is read the host may write.
        const LOOKS: usize = 10;
        const PAUSE: Duration = Duration::from_millis(20);
        let path = path_in(directory);
        let mut found = Ok(());
        for _ in 0..LOOKS {
            let Ok(bytes) = std::fs::read(&path) else { return Ok(()) };
            found = open::contents_of(&path, bytes)
                .and_then(|contents| restore::build(&path, contents).map(drop));
            match &found {
                Err(error) if error.kind != ErrorKind::Version => std::thread::sleep(PAUSE),
                _ => break,
            }
        }
        found
    }

    /// Opens `directory/meta.redb`, or begins it. The caller has the lock of the directory. Refused, and the file left alone, when it is of a newer version, or damaged.
    pub fn open(directory: &Path, quotas: Quotas) -> Result<Registry> {
        let path = path_in(directory);
        let (store, contents) = Store::open(&path)?;
        let (tree, records) = restore::build(&path, contents)?;
        let boot_id =
            std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
        Ok(Registry {
            store,
            tree,
            records,
            pending: HashMap::new(),
            unstored: HashSet::new(),
            quotas,
            boot_id,
            identities: Identities::new(),
        })
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
            Some(Node::Object(id)) => self.records.get(*id).ok_or_else(|| unknown(name)),
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
            Node::Object(id) => self.records.get(*id).cloned().map(|r| Entry::Object(Box::new(r))),
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
        let pending = self.pending.values().filter(|record| record.charged_uid == uid);
        pending
            .fold(self.records.usage(uid), |(n, b), record| (n + 1, b.saturating_add(record.charged_bytes)))
    }
}

fn unknown(name: &Name) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("there is no {name}: `commonhold ls {}` shows what there is", name.parent()),
    )
}
