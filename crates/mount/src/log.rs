//! The log of the nodes, in memory that the keeper keeps: the next server reads it.

use crate::nodes::{Change, Nodes};
use commonhold_keeper::{Key, Vault};
use commonhold_object::error::Doing;
use commonhold_object::{Error, Result};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The key of that memory.
pub const KEY: &str = "nodes";
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
