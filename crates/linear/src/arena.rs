//! Versions of a register that a loss may bring back, as chains that configurations share.

use std::collections::HashMap;

/// A version, and those that may come back if it is taken back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Version(u32);

/// A value is the number of the write that made it; 0 is what was there at first.
type Write = u32;

/// Chains of versions: each with the one before it, if that may come back, and whether it is at more than one host.
#[derive(Default)]
pub(crate) struct Arena {
    nodes: Vec<Node>,
    known: HashMap<Node, Version>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Node {
    write: Write,
    before: Option<Version>,
    is_elsewhere: bool,
}

impl Arena {
    fn node(&mut self, node: Node) -> Version {
        *self.known.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            Version(self.nodes.len() as u32 - 1)
        })
    }

    fn at(&self, version: Version) -> Node {
        self.nodes[version.0 as usize]
    }

    /// The same value, which another host has now too. Of those before it, looked at from the newest on, stay those that
    /// are `kept`, and the first, and of each what stands for it: else each order of writes that nobody saw would be a chain
    /// of its own.
    pub fn elsewhere(
        &mut self,
        version: Version,
        mut kept: impl FnMut(Write) -> bool,
        stands_for: impl Fn(Write) -> Write,
    ) -> Version {
        let mut all = self.before(version, true);
        let Some(first) = all.pop().map(|first| self.write(first)) else {
            return self.certain(self.write(version));
        };
        let older = all.into_iter().map(|older| self.write(older)).filter(|write| kept(*write));
        let older: Vec<Write> = older.map(&stands_for).collect();
        let mut before = self.certain(stands_for(first));
        for older in older.into_iter().rev() {
            before = self.node(Node { write: older, before: Some(before), is_elsewhere: true });
        }
        self.node(Node { write: self.write(version), before: Some(before), is_elsewhere: true })
    }

    /// A value that nothing takes back.
    pub fn certain(&mut self, write: Write) -> Version {
        self.node(Node { write, before: None, is_elsewhere: true })
    }

    /// A newer value, which one host alone has. One before it that this host alone has and that does not matter is left
    /// out.
    pub fn newer(&mut self, before: Version, write: Write, matters: impl Fn(Write) -> bool) -> Version {
        let last = self.at(before);
        let before = match last.before {
            Some(older) if !last.is_elsewhere && !matters(last.write) => older,
            _ => before,
        };
        self.node(Node { write, before: Some(before), is_elsewhere: false })
    }

    /// Which write made the value.
    pub fn write(&self, version: Version) -> Write {
        self.at(version).write
    }

    /// Whether one host alone has it.
    pub fn is_alone(&self, version: Version) -> bool {
        !self.at(version).is_elsewhere
    }

    /// Every version before it that may come back, the newest first: up to the newest of which another host had a copy, or
    /// all that there are.
    pub fn before(&self, version: Version, all: bool) -> Vec<Version> {
        let mut found = Vec::new();
        let mut at = self.at(version);
        while let Some(before) = at.before.filter(|_| all || !at.is_elsewhere) {
            found.push(before);
            at = self.at(before);
        }
        found
    }
}
