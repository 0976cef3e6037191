//! Nodes: what the kernel calls files and directories by. Pure.
//!
//! A node is an object, by its identity, wherever its name is; or a directory, which is its name. The kernel says when it has
//! forgotten one. All of it outlives the server: each change is a
//! [`Change`], which [`log`](crate::log) keeps, and [`Nodes::replay`] takes again.

use crate::fuse::flags::ROOT;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Most directories above a name: names have 1024 bytes at most.
const DEPTH: usize = 1024;

/// A change of the nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// The kernel was told of a node, once more; it has that name now.
    Known {
        /// Its number.
        node: u64,
        /// The directory.
        parent: u64,
        /// The name there.
        leaf: String,
        /// The object; none: it is a directory.
        object: Option<u128>,
    },
    /// The kernel was told more often of a node that has the name it had.
    Again {
        /// Its number.
        node: u64,
        /// How many times.
        times: u64,
    },
    /// The kernel knows it so many times less.
    Forgotten {
        /// Its number.
        node: u64,
        /// How many times.
        times: u64,
    },
    /// What has that name is not this node any more.
    Unnamed {
        /// The node.
        node: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    parent: u64,
    leaf: String,
    object: Option<u128>,
    /// How often the kernel was told of it.
    known: u64,
}

/// All nodes that the kernel knows.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    nodes: HashMap<u64, Node>,
    by_object: HashMap<u128, u64>,
    by_name: HashMap<(u64, String), u64>,
    last: u64,
}

impl Nodes {
    /// The node of a name, of which the kernel is told now; and the change that this is.
    pub fn look(&mut self, parent: u64, leaf: &str, object: Option<u128>) -> (u64, Change) {
        let found = match object {
            Some(object) => self.by_object.get(&object).copied(),
            None => self.directory_of_name(parent, leaf),
        };
        let same = found.is_some() && self.by_name.get(&(parent, leaf.to_owned())).copied() == found;
        let node = found.unwrap_or(self.last.max(ROOT) + 1);
        let change = if same {
            Change::Again { node, times: 1 }
        } else {
            Change::Known { node, parent, leaf: leaf.to_owned(), object }
        };
        self.replay(&change);
        (node, change)
    }

    /// The kernel knows a node so many times less.
    pub fn forget(&mut self, node: u64, times: u64) -> Change {
        let change = Change::Forgotten { node, times };
        self.replay(&change);
        change
    }

    /// Nothing has that name any longer: a directory that gets it is another node.
    pub fn unname(&mut self, parent: u64, leaf: &str) -> Option<Change> {
        let node = *self.by_name.get(&(parent, leaf.to_owned()))?;
        let change = Change::Unnamed { node };
        self.replay(&change);
        Some(change)
    }

    /// What had the name `from`, this object or a directory, has the name `to` now.
    pub fn rename(&mut self, from: (u64, &str), to: (u64, &str), object: Option<u128>) -> Vec<Change> {
        let found = match object {
            Some(object) => self.by_object.get(&object).copied(),
            None => self.directory_of_name(from.0, from.1),
        };
        let mut changes: Vec<Change> = self.unname(to.0, to.1).into_iter().collect();
        if let Some(node) = found {
            // Told once more, and once less: only the name changes.
            let moved = [
                Change::Known { node, parent: to.0, leaf: to.1.to_owned(), object },
                Change::Forgotten { node, times: 1 },
            ];
            moved.iter().for_each(|change| self.replay(change));
            changes.extend(moved);
        }
        changes
    }

    /// Whether a node is that directory, or lies somewhere below it.
    pub fn is_below(&self, node: u64, directory: u64) -> bool {
        let above = |node: &u64| self.nodes.get(node).map(|node| node.parent);
        std::iter::successors(Some(node), above).take(DEPTH).any(|node| node == directory)
    }

    /// The directory of which the kernel was told that it has that name.
    pub fn directory_of_name(&self, parent: u64, leaf: &str) -> Option<u64> {
        let node = self.by_name.get(&(parent, leaf.to_owned())).copied();
        node.filter(|node| self.nodes.get(node).is_some_and(|node| node.object.is_none()))
    }

    /// Whether the kernel was told of something that has that name now.
    pub fn is_named(&self, parent: u64, leaf: &str) -> bool {
        self.by_name.contains_key(&(parent, leaf.to_owned()))
    }

    /// The object of which the kernel was told last that it has that name.
    pub fn object_named(&self, parent: u64, leaf: &str) -> Option<u128> {
        self.object(*self.by_name.get(&(parent, leaf.to_owned()))?)
    }

    /// The object that a node is.
    pub fn object(&self, node: u64) -> Option<u128> {
        self.nodes.get(&node)?.object
    }

    /// The name of a node at the host.
    pub fn path(&self, node: u64) -> Option<String> {
        let mut parts = Vec::new();
        let mut at = node;
        while at != ROOT {
            let node = self.nodes.get(&at).filter(|_| parts.len() < DEPTH)?;
            parts.push(node.leaf.as_str());
            at = node.parent;
        }
        parts.push("");
        parts.reverse();
        Some(if parts.len() == 1 { "/".to_owned() } else { parts.join("/") })
    }

    /// The name of something in a directory.
    pub fn path_in(&self, parent: u64, leaf: &str) -> Option<String> {
        let above = self.path(parent)?;
        Some(if above == "/" { format!("/{leaf}") } else { format!("{above}/{leaf}") })
    }

    /// Takes a change.
    pub fn replay(&mut self, change: &Change) {
        match change {
            Change::Known { node, parent, leaf, object } => {
                self.last = self.last.max(*node);
                let known = self.take(*node).map_or(0, |node| node.known);
                let new = Node { parent: *parent, leaf: leaf.clone(), object: *object, known: known + 1 };
                if let Some(object) = object {
                    self.by_object.insert(*object, *node);
                }
                self.by_name.insert((*parent, leaf.clone()), *node);
                self.nodes.insert(*node, new);
            }
            Change::Again { node, times } => {
                if let Some(node) = self.nodes.get_mut(node) {
                    node.known += times;
                }
            }
            Change::Forgotten { node, times } => {
                let Some(there) = self.nodes.get_mut(node) else { return };
                there.known = there.known.saturating_sub(*times);
                if there.known == 0 {
                    self.take(*node);
                }
            }
            Change::Unnamed { node } => {
                if let Some(there) = self.nodes.get(node) {
                    let name = (there.parent, there.leaf.clone());
                    if self.by_name.get(&name) == Some(node) {
                        self.by_name.remove(&name);
                    }
                }
            }
        }
    }

    /// Changes from which all of it can be made again.
    pub fn changes(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        for (number, node) in &self.nodes {
            let Node { parent, leaf, object, known } = node.clone();
            let is_named = self.by_name.get(&(parent, leaf.clone())) == Some(number);
            changes.push(Change::Known { node: *number, parent, leaf, object });
            changes.extend((known > 1).then(|| Change::Again { node: *number, times: known - 1 }));
            if !is_named {
                changes.push(Change::Unnamed { node: *number });
            }
        }
        // What has a name now comes last: it has it in what is made of this, too.
        changes.sort_by_key(|change| match change {
            Change::Known { node, parent, leaf, .. } => {
                self.by_name.get(&(*parent, leaf.clone())) == Some(node)
            }
            _ => false,
        });
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        for change in changes {
            match change {
                Change::Known { .. } => first.push(change),
                _ => rest.push(change),
            }
        }
        first.extend(rest);
        first
    }

    fn take(&mut self, number: u64) -> Option<Node> {
        let node = self.nodes.remove(&number)?;
        if let Some(object) = node.object.filter(|object| self.by_object.get(object) == Some(&number)) {
            self.by_object.remove(&object);
        }
        let name = (node.parent, node.leaf.clone());
        if self.by_name.get(&name) == Some(&number) {
            self.by_name.remove(&name);
        }
        Some(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_one_node_wherever_its_name_is() {
        let mut nodes = Nodes::default();
        let (directory, _) = nodes.look(ROOT, "d", None);
        let (node, _) = nodes.look(directory, "a", Some(7));
        assert_eq!(nodes.path(node).unwrap(), "/d/a");
        assert_eq!(nodes.look(ROOT, "b", Some(7)).0, node, "renamed by somebody else");
        assert_eq!(nodes.path(node).unwrap(), "/b");
        assert_ne!(nodes.look(ROOT, "b", Some(8)).0, node, "another object of that name");
    }

    #[test]
    fn what_lies_in_a_renamed_directory_comes_with_it() {
        let mut nodes = Nodes::default();
        let (directory, _) = nodes.look(ROOT, "d", None);
        let (node, _) = nodes.look(directory, "a", Some(7));
        assert!(
            nodes.is_below(node, directory) && nodes.is_below(node, node) && !nodes.is_below(directory, node)
        );
        nodes.rename((ROOT, "d"), (ROOT, "e"), None);
        assert_eq!(nodes.path(node).unwrap(), "/e/a");
        assert_eq!(nodes.look(ROOT, "e", None).0, directory);
        assert_ne!(nodes.look(ROOT, "d", None).0, directory);
    }

    #[test]
    fn a_removed_directory_is_not_the_next_of_its_name() {
        let mut nodes = Nodes::default();
        let (first, _) = nodes.look(ROOT, "d", None);
        nodes.unname(ROOT, "d");
        let (second, _) = nodes.look(ROOT, "d", None);
        assert_ne!(first, second);
        nodes.forget(first, 1);
        assert_eq!(nodes.look(ROOT, "d", None).0, second);
    }

    #[test]
    fn the_kernel_forgets_what_it_was_told_of() {
        let mut nodes = Nodes::default();
        let (node, _) = nodes.look(ROOT, "a", Some(1));
        nodes.look(ROOT, "a", Some(1));
        nodes.forget(node, 1);
        assert_eq!(nodes.nodes.len(), 1);
        nodes.forget(node, 1);
        assert_eq!((nodes.nodes.len(), nodes.path(node)), (0, None));
        nodes.forget(node, 5); // of a node that is not there
        assert_ne!(nodes.look(ROOT, "a", Some(1)).0, node, "numbers are not used again");
    }

    /// Every history, by chance: what is made of the changes, and what of all at the end, is the same.
    #[test]
    fn nodes_can_be_made_again_from_their_changes() {
        let mut state = 1u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let (mut nodes, mut log) = (Nodes::default(), Vec::new());
            let mut known = vec![ROOT];
            for _ in 0..draw(60) {
                let parent = known[draw(known.len() as u64) as usize];
                let leaf = ["a", "b", "c"][draw(3) as usize];
                match draw(6) {
                    0..=2 => {
                        let object = (draw(2) == 0).then(|| u128::from(draw(4)));
                        let (node, change) = nodes.look(parent, leaf, object);
                        log.push(change);
                        known.push(node);
                    }
                    3 => log.push(nodes.forget(parent.max(ROOT + 1), draw(3))),
                    4 => log.extend(nodes.unname(parent, leaf)),
                    _ => {
                        let to = known[draw(known.len() as u64) as usize];
                        let object = nodes.object(to).filter(|_| draw(2) == 0);
                        log.extend(nodes.rename((parent, leaf), (to, "z"), object));
                    }
                }
            }
            for changes in [log, nodes.changes()] {
                let mut again = Nodes::default();
                changes.iter().for_each(|change| again.replay(change));
                assert_eq!(again.nodes, nodes.nodes);
                assert_eq!(again.by_object, nodes.by_object);
                assert_eq!(again.by_name, nodes.by_name);
            }
        }
    }
}
