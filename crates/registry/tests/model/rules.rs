//! The model: the rules of names, modes and quotas once more, over plain maps and text.

use super::{Answer, Credentials, ErrorKind};
use commonhold_registry::{Entry, Registry};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    Directory { uid: u32, gid: u32, mode: u32 },
    Object(u64),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
    pub nonce: u128,
    pub charge: u64,
    pub charged_uid: u32,
}

pub struct Model {
    pub tree: BTreeMap<String, Item>,
    pub objects: BTreeMap<u64, Object>,
    pub nameless: BTreeSet<u64>,
    quota: u64,
    most: u64,
    next: u64,
}

/// Whether `who` has every letter of `wanted` (of `rwx`).
fn may(who: &Credentials, uid: u32, gid: u32, mode: u32, wanted: &str) -> bool {
    let digits = format!("{mode:03o}");
    let member = who.gid == gid || who.groups.contains(&gid);
    let class = if who.uid == uid {
        0
    } else if member {
        1
    } else {
        2
    };
    let digit = digits.as_bytes()[class] - b'0';
    let has = |letter| match letter {
        'r' => digit >= 4,
        'w' => digit % 4 >= 2,
        _ => digit % 2 == 1,
    };
    who.uid == 0 || wanted.chars().all(has)
}

fn above(name: &str) -> Vec<String> {
    let mut found = vec!["/".to_owned()];
    found.extend(name.match_indices('/').skip(1).map(|(at, _)| name[..at].to_owned()));
    if name == "/" { Vec::new() } else { found }
}

fn parent(name: &str) -> String {
    above(name).pop().unwrap_or("/".to_owned())
}

fn inside(name: &str, directory: &str) -> bool {
    name != directory && (directory == "/" || name.starts_with(&format!("{directory}/")))
}

impl Model {
    pub fn new(quota: u64, most: u64, registry: &Registry) -> Model {
        let root = super::name("/");
        let Entry::Directory { ownership: o, .. } = registry.stat(&root, &super::user(0)).unwrap() else {
            panic!()
        };
        assert_eq!(o.mode, 0o777);
        let root = Item::Directory { uid: o.uid, gid: o.gid, mode: o.mode };
        let tree = BTreeMap::from([("/".to_owned(), root)]);
        Model { tree, objects: BTreeMap::new(), nameless: BTreeSet::new(), quota, most, next: 1 }
    }

    fn reach(&self, name: &str, who: &Credentials) -> Answer<()> {
        for directory in above(name) {
            match self.tree.get(&directory) {
                Some(Item::Directory { uid, gid, mode }) if may(who, *uid, *gid, *mode, "x") => {}
                Some(Item::Directory { .. }) => return Err(ErrorKind::Permission),
                Some(Item::Object(_)) => return Err(ErrorKind::Mismatch),
                None => break,
            }
        }
        Ok(())
    }

    fn add(&self, name: &str, who: &Credentials) -> Answer<()> {
        self.reach(name, who)?;
        let nearest = above(name).into_iter().rev().find_map(|d| self.tree.get(&d)).unwrap();
        let Item::Directory { uid, gid, mode } = nearest else { return Err(ErrorKind::Mismatch) };
        if may(who, *uid, *gid, *mode, "wx") { Ok(()) } else { Err(ErrorKind::Permission) }
    }

    fn owner(&self, item: &Item) -> (u32, u32) {
        match item {
            Item::Directory { uid, gid, .. } => (*uid, *gid),
            Item::Object(id) => (self.objects[id].uid, self.objects[id].gid),
        }
    }

    fn take(&self, name: &str, who: &Credentials) -> Answer<()> {
        let Some(Item::Directory { uid, gid, mode }) = self.tree.get(&parent(name)) else { unreachable!() };
        let whose = self.owner(&self.tree[name]).0;
        let sticky = parent(name) == "/" && ![0, whose, *uid].contains(&who.uid) && who.uid != 0;
        if may(who, *uid, *gid, *mode, "wx") && !sticky { Ok(()) } else { Err(ErrorKind::Permission) }
    }

    fn make_above(&mut self, name: &str, who: &Credentials) {
        for directory in above(name) {
            self.tree.entry(directory).or_insert(Item::Directory { uid: who.uid, gid: who.gid, mode: 0o755 });
        }
    }

    pub fn usage(&self, uid: u32) -> (u64, u64) {
        let mine = self.objects.values().filter(|o| o.charged_uid == uid);
        mine.fold((0, 0), |(n, bytes), o| (n + 1, bytes + o.charge))
    }

    pub fn create(
        &mut self,
        name: &str,
        who: &Credentials,
        mode: u32,
        nonce: u128,
        charge: u64,
    ) -> Answer<u64> {
        self.reach(name, who)?;
        match self.tree.get(name) {
            Some(Item::Directory { .. }) => return Err(ErrorKind::Mismatch),
            Some(Item::Object(id)) => {
                let same = self.objects[id].nonce == nonce && self.objects[id].charged_uid == who.uid;
                return if same { Ok(*id) } else { Err(ErrorKind::Exists) };
            }
            None => self.add(name, who)?,
        }
        let (objects, bytes) = self.usage(who.uid);
        if objects == self.most || charge > 0 && bytes + charge > self.quota {
            return Err(ErrorKind::Quota);
        }
        self.make_above(name, who);
        let id = self.next;
        self.next += 1;
        let object = Object { uid: who.uid, gid: who.gid, mode, nonce, charge, charged_uid: who.uid };
        self.objects.insert(id, object);
        self.tree.insert(name.to_owned(), Item::Object(id));
        Ok(id)
    }

    pub fn remove(&mut self, name: &str, who: &Credentials, repeated: bool) -> Answer<Option<u64>> {
        self.reach(name, who)?;
        let Some(item) = self.tree.get(name).cloned() else {
            return if repeated { Ok(None) } else { Err(ErrorKind::NotFound) };
        };
        self.take(name, who)?;
        if let Item::Object(id) = item {
            self.nameless.insert(id);
            self.tree.remove(name);
            return Ok(Some(id));
        }
        if self.tree.keys().any(|other| inside(other, name)) {
            return Err(ErrorKind::Busy);
        }
        self.tree.remove(name);
        Ok(None)
    }

    pub fn rename(&mut self, from: &str, to: &str, who: &Credentials, repeated: bool) -> Answer<()> {
        self.reach(from, who)?;
        self.reach(to, who)?;
        if !self.tree.contains_key(from) {
            return if repeated && self.tree.contains_key(to) { Ok(()) } else { Err(ErrorKind::NotFound) };
        }
        self.take(from, who)?;
        self.add(to, who)?;
        match to {
            _ if to == from => return Err(ErrorKind::Invalid),
            _ if self.tree.contains_key(to) => return Err(ErrorKind::Exists),
            _ if inside(to, from) => return Err(ErrorKind::Invalid),
            _ => self.make_above(to, who),
        }
        let moved: Vec<String> =
            self.tree.keys().filter(|n| *n == from || inside(n, from)).cloned().collect();
        for old in moved {
            let item = self.tree.remove(&old).unwrap();
            self.tree.insert(format!("{to}{}", &old[from.len()..]), item);
        }
        Ok(())
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut u32, &mut u32, &mut u32)) {
        match self.tree.get_mut(name) {
            Some(Item::Directory { uid, gid, mode }) => change(uid, gid, mode),
            Some(Item::Object(id)) => {
                let object = self.objects.get_mut(id).unwrap();
                change(&mut object.uid, &mut object.gid, &mut object.mode);
            }
            None => unreachable!(),
        }
    }

    pub fn set_mode(&mut self, name: &str, who: &Credentials, new: u32) -> Answer<()> {
        self.reach(name, who)?;
        let owner = self.owner(self.tree.get(name).ok_or(ErrorKind::NotFound)?).0;
        if who.uid != 0 && who.uid != owner {
            return Err(ErrorKind::Permission);
        }
        self.change(name, |_, _, mode| *mode = new);
        Ok(())
    }

    pub fn set_owner(
        &mut self,
        name: &str,
        who: &Credentials,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Answer<()> {
        self.reach(name, who)?;
        let before = self.owner(self.tree.get(name).ok_or(ErrorKind::NotFound)?);
        let after = (uid.unwrap_or(before.0), gid.unwrap_or(before.1));
        let his = who.gid == after.1 || who.groups.contains(&after.1);
        if who.uid != 0 && !(after.0 == before.0 && who.uid == before.0 && his) {
            return Err(ErrorKind::Permission);
        }
        self.change(name, |uid, gid, _| (*uid, *gid) = after);
        Ok(())
    }

    pub fn object_at(&self, name: &str) -> Option<u64> {
        match self.tree.get(name) {
            Some(Item::Object(id)) => Some(*id),
            _ => None,
        }
    }

    pub fn check_size(&self, id: u64, charge: u64) -> Answer<()> {
        let more = charge.saturating_sub(self.objects[&id].charge);
        let (_, bytes) = self.usage(self.objects[&id].charged_uid);
        if more > 0 && bytes + more > self.quota { Err(ErrorKind::Quota) } else { Ok(()) }
    }

    pub fn lookup(&self, name: &str, who: &Credentials, writes: bool) -> Answer<u64> {
        self.reach(name, who)?;
        match self.tree.get(name) {
            None => Err(ErrorKind::NotFound),
            Some(Item::Directory { .. }) => Err(ErrorKind::Mismatch),
            Some(Item::Object(id)) => {
                let object = &self.objects[id];
                let wanted = if writes { "rw" } else { "r" };
                let allowed = may(who, object.uid, object.gid, object.mode, wanted);
                if allowed { Ok(*id) } else { Err(ErrorKind::Permission) }
            }
        }
    }

    pub fn list(&self, name: &str, who: &Credentials, limit: usize) -> Answer<(Vec<String>, bool)> {
        self.reach(name, who)?;
        let mut found: Vec<String> = match self.tree.get(name) {
            None => return Err(ErrorKind::NotFound),
            Some(Item::Object(_)) => vec![name.to_owned()],
            Some(Item::Directory { uid, gid, mode }) if may(who, *uid, *gid, *mode, "r") => {
                self.tree.keys().filter(|n| *n != "/" && parent(n) == name).cloned().collect()
            }
            Some(Item::Directory { .. }) => return Err(ErrorKind::Permission),
        };
        let more = found.len() > limit;
        found.truncate(limit);
        for entry in &mut found {
            if matches!(self.tree[entry.as_str()], Item::Directory { .. }) {
                entry.push('/');
            }
        }
        Ok((found, more))
    }
}
