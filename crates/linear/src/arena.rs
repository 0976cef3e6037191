//! Versions of a register that a loss may bring back, as chains that configurations share.

use std::collections::HashMap;

/// A version, and those that may come back if it is taken back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Version(u32);

/// A value is the number of the write that made it; 0 is what was there at first.
type Write = u32;

/// Chains of versions. One without a predecessor is at more than one host, or stored: nothing takes it back.
#[derive(Default)]
pub(crate) struct Arena {
    nodes: Vec<(Write, Option<Version>)>,
    known: HashMap<(Write, Option<Version>), Version>,
}

impl Arena {
    fn node(&mut self, write: Write, before: Option<Version>) -> Version {
        *self.known.entry((write, before)).or_insert_with(|| {
            self.nodes.push((write, before));
            Version(self.nodes.len() as u32 - 1)
        })
    }

    /// The same value, which nothing takes back any more.
    pub fn kept(&mut self, version: Version) -> Version {
        self.certain(self.write(version))
    }

    /// A value that nothing takes back.
    pub fn certain(&mut self, write: Write) -> Version {
        self.node(write, None)
    }

    /// A newer value, which may be taken back.
    pub fn newer(&mut self, before: Version, write: Write) -> Version {
        self.node(write, Some(before))
    }

    /// Which write made the value.
    pub fn write(&self, version: Version) -> Write {
        self.nodes[version.0 as usize].0
    }

    /// Whether it may be taken back.
    pub fn is_uncertain(&self, version: Version) -> bool {
        self.nodes[version.0 as usize].1.is_some()
    }

    /// Every version that may come back in its place, the newest first.
    pub fn before(&self, version: Version) -> impl Iterator<Item = Version> + '_ {
        std::iter::successors(self.nodes[version.0 as usize].1, |version| self.nodes[version.0 as usize].1)
    }
}
