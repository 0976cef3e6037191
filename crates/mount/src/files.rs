//! Open files. Each is kept with the keeper, with the descriptor of its object's memory: the next server has them all.

use crate::caller::{Caller, Line};
use crate::fuse::Device;
use crate::fuse::flags::open;
use crate::served::Served;
use commonhold::{ObjectId, Result};
use commonhold_keeper::{Kept, Key, Vault};
use commonhold_object::Error;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Begins the keys of open files.
const KEY: &str = "file/";

/// What the next server must know of an open file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Saved {
    /// The request that opened it: if it comes again, this is the answer.
    pub unique: u64,
    /// Its node.
    pub node: u64,
    /// The object's number.
    pub object: u64,
    /// The name by which it was opened.
    pub path: String,
    /// It may be written.
    pub writes: bool,
    /// User, group and supplementary groups of who opened it.
    pub caller: (u32, u32, Vec<u32>),
    /// The number of the file behind, if the kernel maps that itself.
    pub backing: Option<i32>,
    /// What OPEN was answered.
    pub flags: u32,
}

/// An open file.
pub struct OpenFile {
    /// What is known of it.
    pub saved: Saved,
    /// The object's number now: of one whose home is another host, it has another for each use.
    pub object: AtomicU64,
    /// The memory or file of a direct object.
    pub fd: Option<Arc<OwnedFd>>,
    /// The connection on which its object is open; none after this server took over.
    pub line: Mutex<Option<Arc<Line>>>,
    /// What is mapped of it.
    pub served: Served,
}

impl OpenFile {
    /// Who opened it.
    pub fn caller(&self) -> Caller {
        let (uid, gid, groups) = self.saved.caller.clone();
        Caller { uid, gid, groups }
    }

    /// Whether the kernel has copies of its pages.
    pub fn is_cached(&self) -> bool {
        self.saved.flags & (open::DIRECT_IO | open::PASSTHROUGH) == 0
    }

    /// Its object.
    pub fn object(&self) -> ObjectId {
        ObjectId(self.object.load(Ordering::Relaxed))
    }

    /// It has that number now.
    pub fn is_object(&self, object: ObjectId) {
        self.object.store(object.0, Ordering::Relaxed);
    }
}

/// What all open files of a node have in common.
#[derive(Default)]
struct Common {
    /// How many there are.
    files: u64,
    /// The number that the kernel gave the object's memory. All who have a node open have the same, says the kernel.
    backing: Option<i32>,
    /// One appends at a time.
    appending: Arc<Mutex<()>>,
}

/// All open files.
pub struct Files {
    vault: Vault,
    device: Device,
    files: Mutex<HashMap<u64, Arc<OpenFile>>>,
    nodes: Mutex<HashMap<u64, Common>>,
    last: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Files {
    /// None yet.
    pub fn new(vault: Vault, device: Device) -> Files {
        let last = AtomicU64::new(0);
        Files { vault, device, files: Mutex::default(), nodes: Mutex::default(), last }
    }

    /// Takes over a kept thing, if it is an open file.
    pub fn inherit(&self, kept: &Kept) -> Result<()> {
        let Some(number) = kept.key.0.strip_prefix(KEY).and_then(|number| number.parse().ok()) else {
            return Ok(());
        };
        let saved: Saved = postcard::from_bytes(&kept.blob).map_err(|error| {
            Error::invalid(format!("an open file of the server before is not readable: {error}"))
        })?;
        let mut nodes = lock(&self.nodes);
        let common = nodes.entry(saved.node).or_default();
        common.files += 1;
        common.backing = common.backing.or(saved.backing);
        drop(nodes);
        let file = OpenFile {
            object: AtomicU64::new(saved.object),
            saved,
            fd: kept.fd.clone(),
            line: Mutex::default(),
            served: Served::default(),
        };
        lock(&self.files).insert(number, Arc::new(file));
        self.last.fetch_max(number, Ordering::Relaxed);
        Ok(())
    }

    /// An open file.
    pub fn get(&self, number: u64) -> Option<Arc<OpenFile>> {
        lock(&self.files).get(&number).cloned()
    }

    /// The file that this request has opened already.
    pub fn opened_by(&self, unique: u64) -> Option<(u64, Arc<OpenFile>)> {
        let files = lock(&self.files);
        let found = files.iter().find(|(_, file)| file.saved.unique == unique)?;
        Some((*found.0, found.1.clone()))
    }

    /// Whether somebody has a node open.
    pub fn is_open(&self, node: u64) -> bool {
        lock(&self.nodes).contains_key(&node)
    }

    /// One at a time appends to a node that is open.
    pub fn appending(&self, node: u64) -> Arc<Mutex<()>> {
        lock(&self.nodes).get(&node).map(|common| common.appending.clone()).unwrap_or_default()
    }

    /// All open files.
    pub fn all(&self) -> Vec<Arc<OpenFile>> {
        lock(&self.files).values().cloned().collect()
    }

    /// All who have a node open.
    pub fn of_node(&self, node: u64) -> Vec<Arc<OpenFile>> {
        lock(&self.files).values().filter(|file| file.saved.node == node).cloned().collect()
    }

    /// Keeps an open file. Gives its number.
    pub fn add(&self, file: OpenFile) -> Result<u64> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let blob = postcard::to_stdvec(&file.saved).map_err(|error| Error::invalid(error.to_string()))?;
        self.vault.put(&key(number), &blob, file.fd.clone())?;
        lock(&self.files).insert(number, Arc::new(file));
        Ok(number)
    }

    /// It is open no longer.
    pub fn remove(&self, number: u64) -> Option<Arc<OpenFile>> {
        let file = lock(&self.files).remove(&number)?;
        self.vault.forget(&key(number));
        self.end(file.saved.node);
        Some(file)
    }

    /// A node is being opened, once more.
    pub fn begin(&self, node: u64) {
        lock(&self.nodes).entry(node).or_default().files += 1;
    }

    /// Once less: the last one takes back what the kernel was given.
    pub fn end(&self, node: u64) {
        let mut nodes = lock(&self.nodes);
        let Some(common) = nodes.get_mut(&node) else { return };
        common.files -= 1;
        if common.files > 0 {
            return;
        }
        if let Some(backing) = nodes.remove(&node).and_then(|common| common.backing) {
            // The kernel knows it no longer where the mount has ended; else it is there.
            let _ = self.device.pass_no_longer(backing);
        }
    }

    /// Gives the kernel the memory of a node that is being opened. `None`: it takes none (no privilege; a file system upon
    /// others).
    pub fn back(&self, node: u64, fd: &OwnedFd) -> Option<i32> {
        let mut nodes = lock(&self.nodes);
        let common = nodes.get_mut(&node)?;
        if common.backing.is_none() {
            common.backing = self.device.pass_through(fd.as_fd()).ok();
        }
        common.backing
    }
}

fn key(number: u64) -> Key {
    Key(format!("{KEY}{number}"))
}
