//! Changing what exists: sizes, modes, owners, names.

use crate::record::ObjectRecord;
use crate::tree::Node;
use crate::{Registry, unknown};
use commonhold_object::tags::Types;
use commonhold_object::{Credentials, Error, ErrorKind, Name, ObjectId, Ownership, Result, system_v};

/// How a name is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Renaming {
    /// What has the new name loses it, as with rename(2); else it must be free.
    pub replace: bool,
    /// Only if the present name is that object's.
    pub of: Option<u128>,
}

impl Registry {
    fn record(&self, id: ObjectId) -> Result<&ObjectRecord> {
        self.records
            .get(id)
            .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no object {}", id.0)))
    }

    fn replace(&mut self, record: ObjectRecord) -> Result<ObjectRecord> {
        if self.unstored.contains(&record.id) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "an object that was made without a name stays as it is: make another one",
            ));
        }
        self.ready()?;
        let mut change = self.store.change()?;
        change.put_record(&record)?;
        change.commit()?;
        self.records.insert(record.clone());
        Ok(record)
    }

    /// Refuses a size whose reserved bytes would pass the quota of the object's owner.
    pub fn check_size(&self, id: ObjectId, charged_bytes: u64) -> Result<()> {
        let record = self.record(id)?;
        self.check_quota(record.charged_uid, 0, charged_bytes.saturating_sub(record.charged_bytes))
    }

    /// Notes a new size.
    pub fn set_size(&mut self, id: ObjectId, size_bytes: u64, charged_bytes: u64) -> Result<ObjectRecord> {
        let mut record = self.record(id)?.clone();
        record.options.size_bytes = size_bytes;
        record.charged_bytes = charged_bytes;
        self.replace(record)
    }

    /// Notes what is in its pages.
    pub fn set_types(&mut self, id: ObjectId, types: &Types) -> Result<ObjectRecord> {
        let mut record = self.record(id)?.clone();
        record.options.types = types.clone();
        self.replace(record)
    }

    /// Frees a name now. Of an object, gives its record, which stays (nameless) until [`forget`](Self::forget); an
    /// empty directory just goes. A repeated request whose name is gone already has succeeded.
    pub fn remove(&mut self, name: &Name, who: &Credentials, repeated: bool) -> Result<Option<ObjectRecord>> {
        Name::new(name.as_str())?;
        self.tree.check_reach(name, who)?;
        match self.tree.get(name).cloned() {
            None if repeated => Ok(None),
            None => Err(unknown(name)),
            Some(Node::Directory(ownership)) => {
                self.tree.check_take(name, ownership.uid, who)?;
                if !self.tree.is_empty_directory(name) {
                    return Err(Error::new(
                        ErrorKind::Busy,
                        format!("directory {name} is not empty: remove what is in it first"),
                    ));
                }
                self.ready()?;
                let mut change = self.store.change()?;
                change.remove_directory(name)?;
                change.commit()?;
                self.tree.remove(name);
                Ok(None)
            }
            Some(Node::Object(id)) => {
                self.tree.check_take(name, self.record(id)?.ownership.uid, who)?;
                self.take_name(name, id).map(Some)
            }
        }
    }

    fn take_name(&mut self, name: &Name, id: ObjectId) -> Result<ObjectRecord> {
        let mut record = self.record(id)?.clone();
        record.name = None;
        let record = self.replace(record)?;
        self.tree.remove(name);
        Ok(record)
    }

    /// Takes the name of an object that nobody uses, whosever it is.
    pub fn remove_unused(&mut self, id: ObjectId) -> Result<()> {
        match self.record(id)?.name.clone() {
            Some(name) => self.take_name(&name, id).map(drop),
            None => Ok(()),
        }
    }

    /// Takes the name of a System V segment that is gone, whosever it is.
    pub fn remove_segment(&mut self, name: &Name) -> Result<ObjectRecord> {
        match self.tree.get(name) {
            Some(Node::Object(id)) if system_v::is_segment(name) => self.take_name(name, *id),
            _ => Err(unknown(name)),
        }
    }

    /// An object that nobody uses any more, and that has no name, is no more.
    pub fn forget(&mut self, id: ObjectId) -> Result<()> {
        self.forget_all(&[id])
    }

    /// The same for several, all or none.
    pub fn forget_all(&mut self, ids: &[ObjectId]) -> Result<()> {
        let (unstored, ids): (Vec<ObjectId>, Vec<ObjectId>) =
            ids.iter().partition(|id| self.unstored.contains(id));
        for id in unstored {
            self.unstored.remove(&id);
            self.records.remove(id);
        }
        let known: Vec<(ObjectId, Option<Name>)> =
            ids.iter().filter_map(|id| Some((*id, self.records.get(*id)?.name.clone()))).collect();
        if known.is_empty() {
            return Ok(());
        }
        self.ready()?;
        let mut change = self.store.change()?;
        for (id, _) in &known {
            change.remove_record(*id)?;
        }
        change.commit()?;
        for (id, name) in known {
            if let Some(name) = &name {
                self.tree.remove(name);
            }
            self.records.remove(id);
        }
        Ok(())
    }

    /// Gives an object or a directory, with all below it, another name. Gives the records that changed; that of an object
    /// which lost the name is among them.
    pub fn rename(
        &mut self,
        from: &Name,
        to: &Name,
        who: &Credentials,
        Renaming { replace, of }: Renaming,
        repeated: bool,
    ) -> Result<Vec<ObjectRecord>> {
        Name::new(from.as_str())?;
        Name::new(to.as_str())?;
        [from, to].iter().try_for_each(|name| system_v::check_change(name, "name"))?;
        self.tree.check_reach(from, who)?;
        self.tree.check_reach(to, who)?;
        let Some(node) = self.tree.get(from).cloned() else {
            if repeated && self.tree.get(to).is_some() {
                return Ok(Vec::new());
            }
            return Err(unknown(from));
        };
        if let Err(error) = self.check_is(from, of) {
            // The one that was meant has its new name already, and another has the one before.
            return if repeated && self.check_is(to, of).is_ok() { Ok(Vec::new()) } else { Err(error) };
        }
        let owner = match &node {
            Node::Object(id) => self.record(*id)?.ownership,
            Node::Directory(ownership) => *ownership,
        };
        self.tree.check_take(from, owner.uid, who)?;
        self.tree.check_add(to, who)?;
        if from == to {
            return match replace {
                true => Ok(Vec::new()),
                false => Err(Error::invalid(format!("{from} has that name already: give another one"))),
            };
        }
        let replaced = self.tree.get(to).cloned();
        match &replaced {
            Some(there) if replace => self.check_replace(&node, to, there, who)?,
            Some(_) => {
                return Err(Error::new(ErrorKind::Exists, format!("{to} exists already: remove it first")));
            }
            None => {}
        }
        if to.as_str().starts_with(&format!("{from}/")) {
            return Err(Error::invalid(format!("{from} cannot be moved into itself")));
        }
        let mut moves = vec![(from.clone(), to.clone(), node)];
        for (name, node) in self.tree.below(from) {
            let target = Name::new(&format!("{to}{}", &name.as_str()[from.as_str().len()..]))?;
            moves.push((name, target, node));
        }
        self.carry_out(to, who, moves, replaced)
    }

    /// Refuses to put `node` in the place of what has the name `to`.
    fn check_replace(&self, node: &Node, to: &Name, there: &Node, who: &Credentials) -> Result<()> {
        let mismatch = |text: String| Err(Error::new(ErrorKind::Mismatch, text));
        match (node, there) {
            (Node::Object(from), Node::Object(id)) => {
                let (from, there) = (self.record(*from)?, self.record(*id)?);
                if from.options.is_shared() || there.options.is_shared() {
                    return Err(Error::new(
                        ErrorKind::Unsupported,
                        format!(
                            "{to} cannot be replaced by name among hosts that share objects: remove it first"
                        ),
                    ));
                }
                self.tree.check_take(to, there.ownership.uid, who)
            }
            (Node::Directory(_), Node::Directory(_)) if !self.tree.is_empty_directory(to) => Err(Error::new(
                ErrorKind::Busy,
                format!("directory {to} is not empty: remove what is in it first"),
            )),
            (Node::Directory(_), Node::Directory(there)) => self.tree.check_take(to, there.uid, who),
            (Node::Object(_), Node::Directory(_)) => {
                mismatch(format!("{to} is a directory: choose another name"))
            }
            (Node::Directory(_), Node::Object(_)) => {
                mismatch(format!("{to} is an object, and no directory takes its place: remove it first"))
            }
        }
    }

    fn carry_out(
        &mut self,
        to: &Name,
        who: &Credentials,
        moves: Vec<(Name, Name, Node)>,
        replaced: Option<Node>,
    ) -> Result<Vec<ObjectRecord>> {
        self.ready()?;
        let new_directories: Vec<Name> =
            to.ancestors().into_iter().filter(|n| self.tree.get(n).is_none()).collect();
        self.check_directories(who.uid, new_directories.len() as u64)?;
        let fresh = Ownership { uid: who.uid, gid: who.gid, mode: 0o755 };
        let mut records = Vec::new();
        let mut change = self.store.change()?;
        for directory in &new_directories {
            change.put_directory(directory, &fresh)?;
        }
        match replaced {
            Some(Node::Object(id)) => {
                let record = ObjectRecord { name: None, ..self.record(id)?.clone() };
                change.put_record(&record)?;
                records.push(record);
            }
            Some(Node::Directory(_)) => change.remove_directory(to)?,
            None => {}
        }
        for (old, new, node) in &moves {
            match node {
                Node::Directory(ownership) => {
                    change.remove_directory(old)?;
                    change.put_directory(new, ownership)?;
                }
                Node::Object(id) => {
                    let mut record = self.record(*id)?.clone();
                    record.name = Some(new.clone());
                    change.put_record(&record)?;
                    records.push(record);
                }
            }
        }
        change.commit()?;
        new_directories.iter().for_each(|d| self.tree.insert(d, Node::Directory(fresh)));
        for (old, new, node) in moves {
            self.tree.remove(&old);
            self.tree.insert(&new, node);
        }
        records.iter().for_each(|record| self.records.insert(record.clone()));
        Ok(records)
    }

    /// Makes a directory in one that is there. A repeated request finds its own.
    pub fn make_directory(
        &mut self,
        name: &Name,
        who: &Credentials,
        mode: u32,
        repeated: bool,
    ) -> Result<()> {
        Name::new(name.as_str())?;
        if mode & !0o777 != 0 {
            return Err(Error::invalid(format!("mode {mode:o} has bits beyond rwxrwxrwx")));
        }
        system_v::check_change(name, "name")?;
        self.tree.check_reach(name, who)?;
        match self.tree.get(name) {
            Some(Node::Directory(ownership)) if repeated && ownership.uid == who.uid => return Ok(()),
            Some(_) => {
                return Err(Error::new(
                    ErrorKind::Exists,
                    format!("{name} exists already: choose another name"),
                ));
            }
            None => {}
        }
        self.tree.check_add(name, who)?;
        self.check_is_in_directory(name)?;
        self.check_directories(who.uid, 1)?;
        let ownership = Ownership { uid: who.uid, gid: who.gid, mode };
        self.ready()?;
        let mut change = self.store.change()?;
        change.put_directory(name, &ownership)?;
        change.commit()?;
        self.tree.insert(name, Node::Directory(ownership));
        Ok(())
    }

    /// Refuses a name whose directory is not there.
    pub fn check_is_in_directory(&self, name: &Name) -> Result<()> {
        match self.missing_above(name)?.first() {
            None => Ok(()),
            Some(missing) => Err(unknown(missing)),
        }
    }

    /// Refuses if the name is not that object's.
    pub fn check_is(&self, name: &Name, of: Option<u128>) -> Result<()> {
        let Some(of) = of else { return Ok(()) };
        match self.tree.get(name) {
            Some(Node::Object(id)) => self.record(*id)?.check_is(name, Some(of)),
            _ => Err(Error::new(ErrorKind::NotFound, format!("{name} is no object any more"))),
        }
    }

    /// Changes mode bits: only the owner, or root. Gives the record, if it is an object's.
    pub fn set_mode(&mut self, name: &Name, who: &Credentials, mode: u32) -> Result<Option<ObjectRecord>> {
        if mode & !0o777 != 0 {
            return Err(Error::invalid(format!("mode {mode:o} has bits beyond rwxrwxrwx")));
        }
        self.change_ownership(name, who, |ownership| {
            if !who.is_root() && who.uid != ownership.uid {
                return Err(Error::new(
                    ErrorKind::Permission,
                    format!(
                        "only user {}, whose it is, or root may change the mode of {name}",
                        ownership.uid
                    ),
                ));
            }
            Ok(Ownership { mode, ..ownership })
        })
    }

    /// Changes owner (root alone) or group (the owner, to a group of his). Gives the record, if it is an object's.
    pub fn set_owner(
        &mut self,
        name: &Name,
        who: &Credentials,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<Option<ObjectRecord>> {
        if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
            return Err(Error::invalid(format!(
                "{} is nobody's number: the kernel keeps it for itself",
                u32::MAX
            )));
        }
        self.change_ownership(name, who, |ownership| {
            let new = Ownership {
                uid: uid.unwrap_or(ownership.uid),
                gid: gid.unwrap_or(ownership.gid),
                mode: ownership.mode,
            };
            let group_only = new.uid == ownership.uid && who.uid == ownership.uid && who.in_group(new.gid);
            if who.is_root() || group_only {
                return Ok(new);
            }
            Err(Error::new(
                ErrorKind::Permission,
                format!("only root may give {name} away; its owner may change the group to one of his own"),
            ))
        })
    }

    fn change_ownership(
        &mut self,
        name: &Name,
        who: &Credentials,
        decide: impl FnOnce(Ownership) -> Result<Ownership>,
    ) -> Result<Option<ObjectRecord>> {
        self.tree.check_reach(name, who)?;
        match self.tree.get(name).cloned() {
            None => Err(unknown(name)),
            Some(Node::Object(id)) => {
                let mut record = self.record(id)?.clone();
                record.ownership = decide(record.ownership)?;
                self.replace(record).map(Some)
            }
            Some(Node::Directory(ownership)) => {
                let new = decide(ownership)?;
                self.ready()?;
                let mut change = self.store.change()?;
                change.put_directory(name, &new)?;
                change.commit()?;
                self.tree.insert(name, Node::Directory(new));
                Ok(None)
            }
        }
    }
}
