//! Open files. Each is kept with the keeper, with the descriptor of its object's memory: the next server has them all.

use crate::caller::{Caller, Line};
use crate::fuse::Device;
use crate::fuse::flags::open;
use crate::lock;
use crate::served::Served;
use commonhold::{ErrorKind, ObjectId, Result};
use commonhold_keeper::{Kept, Key, Vault};
use commonhold_object::Error;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

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
    /// Its identity.
    pub uuid: u128,
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
    /// The append that is under way: its request, and where it writes.
    pub append: Option<(u64, u64)>,
    /// Under explicit coherence: something was written, and not published since.
    pub unpublished: bool,
    /// It is being closed, as the last of its node: the kernel may have given back the file behind.
    pub ends: bool,
}

impl Saved {
    /// As a server kept it: perhaps one that did not know of `ends`, and kept no byte of it.
    fn read(blob: &[u8]) -> Result<Saved> {
        let blob = [blob, &[0]].concat(); // what is too much is left
        postcard::from_bytes(&blob).map_err(|error| {
            Error::invalid(format!("an open file of the server before is not readable: {error}"))
        })
    }
}

/// An open file.
pub struct OpenFile {
    /// What is known of it.
    pub saved: Saved,
    /// The part of that which changes: `append` and `unpublished`.
    changing: Mutex<(Option<(u64, u64)>, bool)>,
    /// What a server that died had of it that was not published is lost: its next sync says so.
    lost: AtomicBool,
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

    /// One that was opened just now, or that the server before had.
    pub fn new(saved: Saved, fd: Option<Arc<OwnedFd>>, line: Option<Arc<Line>>, served: Served) -> OpenFile {
        OpenFile {
            object: AtomicU64::new(saved.object),
            changing: Mutex::new((saved.append, saved.unpublished)),
            lost: AtomicBool::new(saved.unpublished),
            saved,
            fd,
            line: Mutex::new(line),
            served,
        }
    }

    /// Where the append of that request began, if a server died in the midst of it.
    pub fn append_of(&self, unique: u64) -> Option<u64> {
        lock(&self.changing).0.filter(|(of, _)| *of == unique).map(|(_, offset)| offset)
    }

    /// Whether something was written to it that is not published.
    pub fn is_unpublished(&self) -> bool {
        lock(&self.changing).1
    }

    /// Whether what was written to it is lost in part. It is said once.
    pub fn takes_loss(&self) -> bool {
        self.lost.swap(false, Ordering::Relaxed)
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
    /// One at a time lets it grow.
    growing: Arc<Mutex<()>>,
}

/// All open files.
pub struct Files {
    vault: Vault,
    device: Device,
    files: Mutex<HashMap<u64, Arc<OpenFile>>>,
    nodes: Mutex<HashMap<u64, Common>>,
    last: AtomicU64,
    /// Open files that an ordinary user may have.
    share: u64,
}

/// Open files of an ordinary user that take mappings, of which this process has so many for all.
const SERVED: u64 = 128;

impl Files {
    /// None yet.
    pub fn new(vault: Vault, device: Device) -> Files {
        let last = AtomicU64::new(0);
        let descriptors = commonhold_keeper::raise_descriptor_limit();
        let share = descriptors.min(commonhold_keeper::KEPT_THINGS as u64) / 4;
        Files { share, vault, device, files: Mutex::default(), nodes: Mutex::default(), last }
    }

    /// Takes over a kept thing, if it is an open file.
    pub fn inherit(&self, kept: &Kept) -> Result<()> {
        let Some(number) = kept.key.0.strip_prefix(KEY).and_then(|number| number.parse().ok()) else {
            return Ok(());
        };
        let saved = Saved::read(&kept.blob)?;
        if saved.ends {
            // Its RELEASE comes again, and finds nothing. Somebody may have opened the node since,
            // with another file behind.
            if let Some(backing) = saved.backing {
                let _ = self.device.pass_no_longer(backing); // an error: it was given back before
            }
            self.vault.forget(&kept.key);
            return Ok(());
        }
        let mut nodes = lock(&self.nodes);
        let common = nodes.entry(saved.node).or_default();
        common.files += 1;
        common.backing = common.backing.or(saved.backing);
        drop(nodes);
        let file = OpenFile::new(saved, kept.fd.clone(), None, Served::default());
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

    /// One at a time lets a node grow that is open.
    pub fn growing(&self, node: u64) -> Arc<Mutex<()>> {
        lock(&self.nodes).get(&node).map(|common| common.growing.clone()).unwrap_or_default()
    }

    /// All open files.
    pub fn all(&self) -> Vec<Arc<OpenFile>> {
        lock(&self.files).values().cloned().collect()
    }

    /// The numbers of those with something that is not published.
    pub fn unpublished(&self) -> Vec<u64> {
        let files = lock(&self.files);
        files.iter().filter(|(_, file)| file.is_unpublished()).map(|(number, _)| *number).collect()
    }

    /// All who have a node open.
    pub fn of_node(&self, node: u64) -> Vec<Arc<OpenFile>> {
        lock(&self.files).values().filter(|file| file.saved.node == node).cloned().collect()
    }

    /// Refuses another open file of an ordinary user who has his share already: of all, or of those that take mappings.
    pub fn check_share(&self, uid: u32, is_served: bool) -> Result<()> {
        if uid == 0 {
            return Ok(());
        }
        let files = lock(&self.files);
        let own = files.values().filter(|file| file.saved.caller.0 == uid);
        let (all, served) =
            own.fold((0, 0), |(all, served), file| (all + 1, served + u64::from(file.fd.is_none())));
        if all < self.share && (!is_served || served < SERVED) {
            return Ok(());
        }
        let text =
            format!("user {uid} has {all} files of the mount open, {served} of them served: close some");
        Err(Error::new(ErrorKind::TooMany, text))
    }

    /// What changes of an open file is kept: `change` says whether it has.
    pub fn change(
        &self,
        number: u64,
        file: &OpenFile,
        change: impl FnOnce(&mut (Option<(u64, u64)>, bool)) -> bool,
    ) -> Result<()> {
        let mut changing = lock(&file.changing);
        if !change(&mut changing) {
            return Ok(());
        }
        let (append, unpublished) = *changing;
        let saved = Saved { append, unpublished, ..file.saved.clone() };
        let blob = postcard::to_stdvec(&saved).map_err(|error| Error::invalid(error.to_string()))?;
        self.vault.update_blob(&key(number), &blob)
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
        // First: what the kernel has of it would stay, if this process died in between.
        self.end_with(file.saved.node, || {
            let saved = Saved { ends: true, ..file.saved.clone() };
            if let Ok(blob) = postcard::to_stdvec(&saved) {
                let _ = self.vault.update_blob(&key(number), &blob); // refused: what is kept is what was kept before
            }
        });
        self.vault.forget(&key(number));
        Some(file)
    }

    /// A node is being opened, once more.
    pub fn begin(&self, node: u64) {
        lock(&self.nodes).entry(node).or_default().files += 1;
    }

    /// Once less: the last one takes back what the kernel was given.
    pub fn end(&self, node: u64) {
        self.end_with(node, || {});
    }

    /// The same. Before something is taken back it is kept that it will be.
    fn end_with(&self, node: u64, keep: impl FnOnce()) {
        let mut nodes = lock(&self.nodes);
        let Some(common) = nodes.get_mut(&node) else { return };
        common.files -= 1;
        if common.files > 0 {
            return;
        }
        if let Some(backing) = nodes.remove(&node).and_then(|common| common.backing) {
            keep();
            let _ = self.device.pass_no_longer(backing); // an error: the mount has ended, and it with that
        }
    }

    /// Gives the kernel the memory of a node that is being opened. `None`: it takes none (no privilege; a file system upon
    /// others).
    pub fn back(&self, node: u64, fd: &OwnedFd) -> Option<i32> {
        let mut nodes = lock(&self.nodes);
        let common = nodes.get_mut(&node)?;
        if common.backing.is_none() {
            common.backing = self.device.pass_through(fd.as_fd()).ok(); // else the server reads and writes it
        }
        common.backing
    }
}

fn key(number: u64) -> Key {
    Key(format!("{KEY}{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_kept_that_did_not_know_of_the_end_is_readable() {
        let saved = Saved {
            unique: 2,
            node: 3,
            object: 4,
            uuid: 5,
            path: "/a".into(),
            writes: true,
            caller: (6, 7, vec![8]),
            backing: Some(9),
            flags: 10,
            append: None,
            unpublished: true,
            ends: true,
        };
        let blob = postcard::to_stdvec(&saved).unwrap();
        let version = crate::log::VERSION.into();
        let blob = crate::golden::check(env!("CARGO_MANIFEST_DIR"), "open-file", version, &blob);
        let read = Saved::read(&blob).unwrap();
        assert!(read.ends && read.unpublished && read.backing == Some(9));
        let read = Saved::read(&blob[..blob.len() - 1]).unwrap();
        assert!(!read.ends && read.unpublished && read.path == "/a");
        assert!(Saved::read(&blob[..5]).is_err());
    }
}
