//! What the test hosts keep, computable on both sides: the driver's model and the host's vault apply the same
//! operations, and are compared by digest.

use commonhold_keeper::{Key, Vault};
use commonhold_sys::frames;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A small random generator (splitmix64), the same in driver and host.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn bytes(&mut self, count: u64) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

pub enum Operation {
    Put(String, Vec<u8>, Option<Vec<u8>>),
    Update(String, Vec<u8>),
    Forget(String),
}

/// `count` operations on `keys` keys, as the seed says.
pub fn operations(seed: u64, count: u64, keys: u64) -> Vec<Operation> {
    let mut random = Random(seed);
    let mut each = || {
        let key = format!("object/{}/frames", random.below(keys));
        let blob_bytes = match random.below(50) {
            0 => 65_536,
            _ => random.below(100),
        };
        let blob = random.bytes(blob_bytes);
        match random.below(8) {
            0 => Operation::Forget(key),
            1 | 2 => Operation::Update(key, blob),
            3 => Operation::Put(key, blob, None),
            _ => {
                let length = 1 + random.below(200);
                Operation::Put(key, blob, Some(random.bytes(length)))
            }
        }
    };
    (0..count).map(|_| each()).collect()
}

/// What must be kept.
#[derive(Default)]
pub struct Model(BTreeMap<String, (Vec<u8>, Option<Vec<u8>>)>);

impl Model {
    pub fn apply(&mut self, operations: Vec<Operation>) {
        for operation in operations {
            match operation {
                Operation::Put(key, blob, content) => drop(self.0.insert(key, (blob, content))),
                Operation::Update(key, blob) => {
                    if let Some(thing) = self.0.get_mut(&key) {
                        thing.0 = blob;
                    }
                }
                Operation::Forget(key) => drop(self.0.remove(&key)),
            }
        }
    }

    pub fn digest(&self) -> String {
        let mut digest = DefaultHasher::new();
        for (key, (blob, content)) in &self.0 {
            (key, blob, content).hash(&mut digest);
        }
        format!("{} {:016x}", self.0.len(), digest.finish())
    }
}

/// A vault, and the keys of things that tests put there.
pub struct Holding {
    pub vault: Vault,
    pub keys: BTreeSet<String>,
}

impl Holding {
    pub fn apply(&mut self, operations: Vec<Operation>) {
        for operation in operations {
            match operation {
                Operation::Put(key, blob, content) => {
                    let fd = content.map(|content| Arc::new(memfd(&content)));
                    self.vault.put(&Key::new(key.clone()), &blob, fd).unwrap();
                    self.keys.insert(key);
                }
                Operation::Update(key, blob) => {
                    let updated = self.vault.update_blob(&Key::new(key.clone()), &blob);
                    assert_eq!(updated.is_ok(), self.keys.contains(&key), "{updated:?}");
                }
                Operation::Forget(key) => {
                    self.vault.forget(&Key::new(key.clone()));
                    self.keys.remove(&key);
                }
            }
        }
    }

    pub fn digest(&self) -> String {
        let mut digest = DefaultHasher::new();
        for key in &self.keys {
            let kept = self.vault.get(&Key::new(key.clone())).expect("a key that was put");
            let content = kept.fd.as_ref().map(|fd| content(fd));
            (key, &kept.blob, content).hash(&mut digest);
        }
        format!("{} {:016x}", self.keys.len(), digest.finish())
    }
}

pub fn memfd(content: &[u8]) -> OwnedFd {
    let file = File::from(frames::create("keeper test", content.len() as u64).unwrap());
    file.write_all_at(content, 0).unwrap();
    file.into()
}

fn content(fd: &OwnedFd) -> Vec<u8> {
    let file = File::from(fd.try_clone().unwrap());
    let mut content = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut content, 0).unwrap();
    content
}
