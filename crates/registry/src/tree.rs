//! The tree of names, with the permission rules of a file system.

use commonhold_object::permission::bits;
use commonhold_object::{Credentials, Error, ErrorKind, Name, ObjectId, Ownership, Result};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// An object.
    Object(ObjectId),
    /// A directory.
    Directory(Ownership),
}

/// All names.
#[derive(Default)]
pub struct Tree {
    nodes: BTreeMap<String, Node>,
    /// How many directories each user owns.
    owned: HashMap<u32, u64>,
}

fn refused(what: String) -> Error {
    Error::new(ErrorKind::Permission, what)
}

impl Tree {
    pub fn insert(&mut self, name: &Name, node: Node) {
        if let Node::Directory(ownership) = &node {
            *self.owned.entry(ownership.uid).or_default() += 1;
        }
        let before = self.nodes.insert(name.as_str().to_owned(), node);
        self.count_out(before);
    }

    pub fn remove(&mut self, name: &Name) {
        let before = self.nodes.remove(name.as_str());
        self.count_out(before);
    }

    fn count_out(&mut self, node: Option<Node>) {
        let Some(Node::Directory(ownership)) = node else { return };
        if let Some(count) = self.owned.get_mut(&ownership.uid) {
            *count -= 1;
            if *count == 0 {
                self.owned.remove(&ownership.uid);
            }
        }
    }

    /// How many directories belong to a user.
    pub fn directories_of(&self, uid: u32) -> u64 {
        self.owned.get(&uid).copied().unwrap_or(0)
    }

    pub fn get(&self, name: &Name) -> Option<&Node> {
        self.nodes.get(name.as_str())
    }

    /// Refuses when a directory above `name` does not let `who` through, or is no directory.
    pub fn check_reach(&self, name: &Name, who: &Credentials) -> Result<()> {
        for above in name.ancestors() {
            match self.get(&above) {
                Some(Node::Directory(ownership)) if ownership.allows(who, bits::SEARCH) => {}
                Some(Node::Directory(_)) => {
                    return Err(refused(format!("directory {above} does not let user {} through", who.uid)));
                }
                Some(Node::Object(_)) => {
                    return Err(Error::new(
                        ErrorKind::Mismatch,
                        format!("{above} is an object, not a directory"),
                    ));
                }
                None => return Ok(()), // what lies below does not exist, which the caller says better
            }
        }
        Ok(())
    }

    /// The deepest directory above `name` that exists.
    pub fn nearest_directory(&self, name: &Name) -> Option<(Name, Ownership)> {
        name.ancestors().into_iter().rev().find_map(|above| match self.get(&above) {
            Some(Node::Directory(ownership)) => Some((above, *ownership)),
            _ => None,
        })
    }

    /// Refuses unless `who` may add names to the directory in which `name` would be made.
    pub fn check_add(&self, name: &Name, who: &Credentials) -> Result<()> {
        self.check_reach(name, who)?;
        let Some((directory, ownership)) = self.nearest_directory(name) else {
            return Err(refused("there is no root directory".into()));
        };
        if ownership.allows(who, bits::WRITE | bits::SEARCH) {
            return Ok(());
        }
        Err(refused(format!(
            "user {} may not add names to {directory}: it belongs to user {} with mode {:03o}",
            who.uid, ownership.uid, ownership.mode
        )))
    }

    /// Refuses unless `who` may take `name`, which belongs to `owner`, out of its directory. The root is sticky, as
    /// /tmp is: there only the owner of an entry (or of the root) takes it out.
    pub fn check_take(&self, name: &Name, owner: u32, who: &Credentials) -> Result<()> {
        self.check_reach(name, who)?;
        let parent = name.parent();
        let Some(Node::Directory(ownership)) = self.get(&parent) else {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no directory {parent}")));
        };
        let sticky = parent.as_str() == "/";
        let mine = who.is_root() || who.uid == owner || who.uid == ownership.uid;
        if ownership.allows(who, bits::WRITE | bits::SEARCH) && (!sticky || mine) {
            return Ok(());
        }
        Err(refused(format!("user {} may not take {name} out of {parent}", who.uid)))
    }

    /// Names directly in a directory, in order, after `after`.
    pub fn children(
        &self,
        directory: &Name,
        who: &Credentials,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<Name>> {
        self.check_reach(directory, who)?;
        match self.get(directory) {
            Some(Node::Directory(ownership)) if ownership.allows(who, bits::READ) => {}
            Some(Node::Directory(_)) => {
                return Err(refused(format!("user {} may not list {directory}", who.uid)));
            }
            Some(Node::Object(_)) => return Ok(vec![directory.clone()]),
            None => return Err(crate::unknown(directory)),
        }
        let prefix = prefix_of(directory);
        let mut found = Vec::new();
        let after = after.map_or("", Name::as_str);
        let mut from = Bound::Excluded(after.max(&prefix).to_owned());
        while found.len() < limit {
            let Some((path, _)) = self.nodes.range((from.clone(), Bound::Unbounded)).next() else { break };
            let Some(rest) = path.strip_prefix(&prefix) else { break };
            match rest.find('/') {
                // Inside a directory below: go on behind all of it.
                Some(at) => from = Bound::Included(format!("{prefix}{}0", &rest[..at])),
                None => {
                    found.extend(Name::directory(path));
                    from = Bound::Excluded(path.clone());
                }
            }
        }
        Ok(found)
    }

    /// Whether nothing lies below the directory.
    pub fn is_empty_directory(&self, directory: &Name) -> bool {
        let prefix = prefix_of(directory);
        let next = self.nodes.range((Bound::Excluded(prefix.clone()), Bound::Unbounded)).next();
        !next.is_some_and(|(path, _)| path.starts_with(&prefix))
    }

    /// All directories.
    pub fn directories(&self) -> impl Iterator<Item = (Name, Ownership)> {
        self.nodes.iter().filter_map(|(path, node)| match node {
            Node::Directory(ownership) => Some((Name::directory(path).ok()?, *ownership)),
            Node::Object(_) => None,
        })
    }

    /// A name whose directory is not there, if there is one (of a whole tree there is none).
    pub fn without_directory(&self) -> Option<&str> {
        let lies_well = |path: &str| {
            Name::directory(path)
                .is_ok_and(|name| matches!(self.get(&name.parent()), Some(Node::Directory(_))))
        };
        if self.nodes.is_empty() {
            return Some("/");
        }
        self.nodes.keys().map(String::as_str).find(|path| !lies_well(path))
    }

    /// Everything below a directory.
    pub fn below(&self, directory: &Name) -> Vec<(Name, Node)> {
        let prefix = prefix_of(directory);
        self.nodes
            .range(prefix.clone()..)
            .take_while(|(path, _)| path.starts_with(&prefix))
            .filter(|(path, _)| **path != prefix)
            .filter_map(|(path, node)| Some((Name::directory(path).ok()?, node.clone())))
            .collect()
    }
}

fn prefix_of(directory: &Name) -> String {
    if directory.as_str() == "/" { "/".to_owned() } else { format!("{directory}/") }
}
