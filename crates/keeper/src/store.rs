//! The things held, with their limits: the keeper's holding, and the vault's mirror of it.

use crate::kept::{BLOB_BYTES, BLOBS_BYTES, KEPT_THINGS, Key, check_key};
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Kept things by key. Whatever changes it is checked first, so a refused change has changed nothing.
#[derive(Debug)]
pub(crate) struct Store {
    things: BTreeMap<Key, Thing>,
    blob_bytes: usize,
    descriptors: usize,
    /// Things and bytes of blobs of each session.
    of_session: HashMap<u64, (usize, usize)>,
    /// Most descriptors that may be held at once.
    pub descriptor_limit: usize,
}

/// A thing without its key.
#[derive(Debug)]
pub(crate) struct Thing {
    pub blob: Vec<u8>,
    pub fd: Option<Arc<OwnedFd>>,
}

impl Store {
    pub fn new(descriptor_limit: usize) -> Self {
        Store {
            things: BTreeMap::new(),
            blob_bytes: 0,
            descriptors: 0,
            of_session: HashMap::new(),
            descriptor_limit,
        }
    }

    pub fn len(&self) -> usize {
        self.things.len()
    }

    pub fn descriptors(&self) -> usize {
        self.descriptors
    }

    pub fn blob_bytes(&self) -> usize {
        self.blob_bytes
    }

    /// How many things are held of a session, and how many bytes of blobs.
    pub fn of_session(&self, session: u64) -> (usize, usize) {
        self.of_session.get(&session).copied().unwrap_or_default()
    }

    pub fn get(&self, key: &Key) -> Option<&Thing> {
        self.things.get(key)
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.things.keys()
    }

    /// The first thing after `key` in the order of keys (the first of all for `None`).
    pub fn after(&self, key: Option<&Key>) -> Option<(&Key, &Thing)> {
        match key {
            None => self.things.first_key_value(),
            Some(key) => self.things.range::<Key, _>((Bound::Excluded(key), Bound::Unbounded)).next(),
        }
    }

    /// Whether a thing of this size may be put under `key`, replacing what is there.
    pub fn check_put(&self, key: &Key, blob_bytes: usize, has_fd: bool) -> Result<()> {
        check_key(&key.0)?;
        let old = self.things.get(key);
        self.check_blob(key, old, blob_bytes)?;
        if old.is_none() && self.things.len() >= KEPT_THINGS {
            return Err(Error::new(
                ErrorKind::TooMany,
                format!(
                    "{key} cannot be kept: there are {KEPT_THINGS} kept things already, which is the limit"
                ),
            ));
        }
        let freed = usize::from(old.is_some_and(|old| old.fd.is_some()));
        if has_fd && self.descriptors - freed >= self.descriptor_limit {
            return Err(Error::new(
                ErrorKind::TooMany,
                format!(
                    "the descriptor of {key} cannot be kept: {} are held already, the limit is {}; raise the limit \
                     on open files (ulimit -n, LimitNOFILE) and start host and keeper again",
                    self.descriptors, self.descriptor_limit
                ),
            ));
        }
        Ok(())
    }

    /// Whether the blob of `key` may be replaced by one of this size.
    pub fn check_update(&self, key: &Key, blob_bytes: usize) -> Result<()> {
        let Some(old) = self.things.get(key) else {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("nothing is kept under {key}: put it first"),
            ));
        };
        self.check_blob(key, Some(old), blob_bytes)
    }

    fn check_blob(&self, key: &Key, old: Option<&Thing>, blob_bytes: usize) -> Result<()> {
        if blob_bytes > BLOB_BYTES {
            return Err(Error::invalid(format!(
                "a blob of {blob_bytes} bytes for {key} cannot be kept: the limit is {BLOB_BYTES}"
            )));
        }
        let others = self.blob_bytes - old.map_or(0, |old| old.blob.len());
        if others + blob_bytes > BLOBS_BYTES {
            return Err(Error::new(
                ErrorKind::TooMany,
                format!(
                    "{blob_bytes} bytes for {key} cannot be kept: {others} bytes of others are, and the limit for all \
                     is {BLOBS_BYTES}"
                ),
            ));
        }
        Ok(())
    }

    /// Puts what `check_put` allowed; gives back what was there.
    pub fn put(&mut self, key: Key, thing: Thing) -> Option<Thing> {
        self.blob_bytes += thing.blob.len();
        self.descriptors += usize::from(thing.fd.is_some());
        if let Some(session) = session_of(&key) {
            let (things, bytes) = self.of_session.entry(session).or_default();
            (*things, *bytes) = (*things + 1, *bytes + thing.blob.len());
        }
        let old = self.things.insert(key.clone(), thing);
        self.account_removed(&key, old.as_ref());
        old
    }

    /// Replaces the blob, as `check_update` allowed.
    pub fn update(&mut self, key: &Key, blob: &[u8]) {
        if let Some(thing) = self.things.get_mut(key) {
            self.blob_bytes = self.blob_bytes - thing.blob.len() + blob.len();
            if let Some((_, bytes)) = session_of(key).and_then(|id| self.of_session.get_mut(&id)) {
                *bytes = *bytes - thing.blob.len() + blob.len();
            }
            if !points::mutant("keeper.update_lost") {
                thing.blob.clear();
                thing.blob.extend_from_slice(blob);
            }
        }
    }

    pub fn remove(&mut self, key: &Key) -> Option<Thing> {
        let old = self.things.remove(key);
        self.account_removed(key, old.as_ref());
        old
    }

    fn account_removed(&mut self, key: &Key, old: Option<&Thing>) {
        let Some(old) = old else { return };
        self.blob_bytes -= old.blob.len();
        if !points::mutant("keeper.replaced_stays_counted") {
            self.descriptors -= usize::from(old.fd.is_some());
        }
        let Some(session) = session_of(key) else { return };
        if let Some((things, bytes)) = self.of_session.get_mut(&session) {
            (*things, *bytes) = (*things - 1, *bytes - old.blob.len());
            if *things == 0 {
                self.of_session.remove(&session);
            }
        }
    }
}

/// The session of which a thing is kept: `session/17/map/7f00`.
fn session_of(key: &Key) -> Option<u64> {
    key.0.strip_prefix("session/")?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::KEY_BYTES;
    use commonhold_sys::frames;

    fn thing(bytes: usize, fd: bool) -> Thing {
        let fd = fd.then(|| Arc::new(frames::create("store test", 0).unwrap()));
        Thing { blob: vec![1; bytes], fd }
    }

    #[test]
    fn every_limit_is_checked_before_anything_changes() {
        let mut store = Store::new(1);
        let (a, b) = (Key::new("a"), Key::new("b"));
        assert!(store.check_put(&Key::new(""), 0, false).is_err());
        assert!(store.check_put(&Key::new("k".repeat(KEY_BYTES)), 0, false).is_ok());
        assert!(store.check_put(&Key::new("k".repeat(KEY_BYTES + 1)), 0, false).is_err());
        assert!(store.check_put(&a, BLOB_BYTES + 1, false).is_err());
        assert_eq!(store.check_update(&a, 1).unwrap_err().kind, ErrorKind::NotFound);
        store.check_put(&a, BLOB_BYTES, true).unwrap();
        store.put(a.clone(), thing(BLOB_BYTES, true));
        assert_eq!(store.check_put(&b, 0, true).unwrap_err().kind, ErrorKind::TooMany);
        store.check_put(&a, 0, true).expect("replacing a descriptor needs no more of them");
        assert!(store.check_update(&a, BLOB_BYTES + 1).is_err());
        assert_eq!((store.len(), store.descriptors()), (1, 1));
    }

    #[test]
    fn each_session_has_an_account() {
        let mut store = Store::new(10);
        let [socket, map] = ["session/17/socket", "session/17/map/7f00"].map(Key::new);
        store.put(socket.clone(), thing(10, true));
        store.put(map.clone(), thing(5, false));
        store.put(map.clone(), thing(6, false));
        store.put(Key::new("session/170/socket"), thing(3, false));
        store.put(Key::new("object/17/frames"), thing(3, false));
        store.update(&socket, &[0; 20]);
        assert_eq!((store.of_session(17), store.of_session(170)), ((2, 26), (1, 3)));
        store.remove(&socket);
        store.remove(&map);
        store.remove(&map);
        assert_eq!((store.of_session(17), store.of_session.len()), ((0, 0), 1));
    }

    #[test]
    fn accounts_return_to_zero() {
        let mut store = Store::new(10);
        for round in 0..3 {
            store.put(Key::new("a"), thing(round * 7, true));
            store.put(Key::new("b"), thing(9, false));
            store.update(&Key::new("b"), &[0; 100]);
        }
        assert_eq!((store.blob_bytes, store.descriptors), (114, 1));
        store.remove(&Key::new("a"));
        store.remove(&Key::new("b"));
        store.remove(&Key::new("b"));
        assert_eq!((store.blob_bytes, store.descriptors, store.len()), (0, 0, 0));
    }

    #[test]
    fn the_total_of_blobs_is_limited() {
        let mut store = Store::new(0);
        for n in 0..BLOBS_BYTES / BLOB_BYTES {
            let key = Key::new(format!("{n}"));
            store.check_put(&key, BLOB_BYTES, false).unwrap();
            store.put(key, thing(BLOB_BYTES, false));
        }
        assert_eq!(store.check_put(&Key::new("x"), 1, false).unwrap_err().kind, ErrorKind::TooMany);
        store.check_put(&Key::new("0"), BLOB_BYTES, false).expect("replacing takes no more");
    }

    #[test]
    fn walks_in_the_order_of_keys() {
        let mut store = Store::new(0);
        for key in ["b", "a", "c"] {
            store.put(Key::new(key), thing(0, false));
        }
        let mut at: Option<Key> = None;
        let mut seen = String::new();
        while let Some((key, _)) = store.after(at.as_ref()) {
            seen.push_str(&key.0);
            at = Some(key.clone());
        }
        assert_eq!(seen, "abc");
    }
}
