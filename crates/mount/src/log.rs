//! The log of the nodes, in memory that the keeper keeps: the next server reads it.

use crate::nodes::{Change, Nodes};
use commonhold_keeper::{Kept, Key, Vault};
use commonhold_object::error::Doing;
use commonhold_object::format::other_version;
use commonhold_object::{Error, Result};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The key of that memory.
pub const KEY: &str = "nodes";
/// The key of the version of the log, and of what is kept of open files. A mount that has none is of the first.
pub const VERSION_KEY: &str = "version";
/// That version.
pub const VERSION: u8 = 1;
/// What may be added before the log is written anew, unless what it says needs more.
const ADDED_BYTES: u64 = 1 << 20;

/// The nodes, and where each change of them is written before the kernel hears of it.
pub struct NodeLog {
    /// The nodes.
    pub nodes: Nodes,
    memory: Arc<OwnedFd>,
    end: u64,
    /// Where it is written anew.
    longest: u64,
    vault: Vault,
}

impl NodeLog {
    /// A log for a mount without nodes.
    pub fn new(vault: Vault) -> Result<NodeLog> {
        let memory = Arc::new(fresh()?);
        vault.put(&Key::new(KEY), &[], Some(memory.clone()))?;
        vault.put(&Key::new(VERSION_KEY), &[VERSION], None)?;
        Ok(NodeLog { nodes: Nodes::default(), memory, end: 0, longest: ADDED_BYTES, vault })
    }

    /// That of the server before. What a death cut short the kernel has not heard of.
    pub fn inherited(vault: Vault, memory: Arc<OwnedFd>) -> Result<NodeLog> {
        let bytes = read(&memory).doing("reading the nodes that the server before knew")?;
        let mut nodes = Nodes::default();
        let mut rest = &bytes[..];
        while let Ok((change, after)) = postcard::take_from_bytes::<Change>(rest) {
            nodes.replay(&change);
            rest = after;
        }
        let end = (bytes.len() - rest.len()) as u64;
        // What is written next may be shorter: nothing of what was cut short may stand behind it.
        rustix::fs::ftruncate(&memory, end).doing("cutting off what was not noted to its end")?;
        Ok(NodeLog { nodes, memory, end, longest: end.max(ADDED_BYTES) * 2, vault })
    }

    /// Writes changes down.
    pub fn note(&mut self, changes: impl IntoIterator<Item = Change>) -> Result<()> {
        let mut bytes = Vec::new();
        for change in changes {
            bytes = postcard::to_extend(&change, bytes).map_err(|error| Error::invalid(error.to_string()))?;
        }
        write(&self.memory, &bytes, self.end).doing("noting a node")?;
        self.end += bytes.len() as u64;
        if self.end > self.longest { self.write_anew() } else { Ok(()) }
    }

    fn write_anew(&mut self) -> Result<()> {
        let mut bytes = Vec::new();
        for change in self.nodes.changes() {
            bytes = postcard::to_extend(&change, bytes).map_err(|error| Error::invalid(error.to_string()))?;
        }
        let memory = Arc::new(fresh()?);
        write(&memory, &bytes, 0).doing("noting the nodes anew")?;
        self.vault.put(&Key::new(KEY), &[], Some(memory.clone()))?;
        (self.memory, self.end) = (memory, bytes.len() as u64);
        self.longest = self.end.max(ADDED_BYTES) * 2;
        Ok(())
    }
}

/// Refuses what a server of another version has kept.
pub fn check_version(kept: Option<&Kept>) -> Result<()> {
    match kept.map(|kept| kept.blob.as_slice()) {
        None | Some([VERSION]) => Ok(()),
        Some(other) => {
            let found = other.first().copied().unwrap_or_default().into();
            let way_out =
                "put the program of that version in its place, which then goes on, or end the mount";
            Err(other_version("what is kept of this mount", found, VERSION.into(), way_out))
        }
    }
}

fn fresh() -> Result<OwnedFd> {
    commonhold_sys::frames::create("commonhold-nodes", 0).doing("making memory for the nodes of the mount")
}

fn read(memory: &OwnedFd) -> io::Result<Vec<u8>> {
    let file = File::from(memory.try_clone()?);
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn write(memory: &OwnedFd, bytes: &[u8], at: u64) -> io::Result<()> {
    commonhold_sys::frames::write_in_place(memory, bytes, at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden;

    #[test]
    fn changes_are_those_of_their_version_and_another_is_refused() {
        let changes = [
            Change::Known { node: 3, parent: 2, leaf: "a".into(), object: Some(1 << 100) },
            Change::Known { node: 4, parent: 3, leaf: "b".into(), object: None },
            Change::Again { node: 3, times: 5 },
            Change::Forgotten { node: 3, times: 2 },
            Change::Unnamed { node: 3 },
        ];
        let written = changes.iter().flat_map(|change| postcard::to_stdvec(change).unwrap());
        let written: Vec<u8> = written.collect();
        let kept = golden::check(env!("CARGO_MANIFEST_DIR"), "nodes", VERSION.into(), &written);
        let mut rest = &kept[..];
        for change in &changes {
            let (read, after) = postcard::take_from_bytes::<Change>(rest).unwrap();
            assert_eq!(read, *change);
            rest = after;
        }
        assert!(rest.is_empty());
        let of = |blob: &[u8]| Kept { key: Key::new(VERSION_KEY), blob: blob.to_vec(), fd: None };
        check_version(None).unwrap();
        check_version(Some(&of(&[VERSION]))).unwrap();
        for blob in [&[VERSION + 1][..], &[0], &[]] {
            let why = check_version(Some(&of(blob))).unwrap_err();
            assert!(why.message.contains("another") || why.message.contains("end the mount"), "{why}");
        }
    }
}
