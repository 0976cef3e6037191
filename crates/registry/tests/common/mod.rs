//! What the tests of the registry share: users, names, and short ways to ask.
#![allow(dead_code, reason = "each test program uses its own part")]

#[path = "../../../../tests/limit.rs"]
mod limit;

use commonhold_object::{CreateOptions, Credentials, Name, ObjectId, Result};
use commonhold_registry::{Entry, ObjectRecord, Prepared, Quotas, Registry};
use std::path::Path;

/// A user whose primary group has his number; user 0 is root.
pub fn user(uid: u32) -> Credentials {
    Credentials { uid, gid: uid, groups: Vec::new() }
}

pub fn member(uid: u32, group: u32) -> Credentials {
    Credentials { groups: vec![group], ..user(uid) }
}

pub fn name(text: &str) -> Name {
    Name::directory(text).unwrap()
}

pub fn options(mode: u32) -> CreateOptions {
    CreateOptions { size_bytes: 4096, mode, ..Default::default() }
}

pub fn open(directory: &Path) -> Registry {
    limit::begin();
    Registry::open(directory, Quotas::same(u64::MAX, 1 << 20)).unwrap()
}

/// Both steps of a creation.
pub fn create(
    registry: &mut Registry,
    text: &str,
    who: &Credentials,
    mode: u32,
    nonce: u128,
    charged_bytes: u64,
) -> Result<ObjectRecord> {
    match registry.prepare_create(&name(text), who, options(mode), None, nonce, charged_bytes)? {
        Prepared::New(object) => registry.commit_create(object),
        Prepared::Exists(record) => Ok(*record),
    }
}

pub fn names(entries: &[Entry]) -> Vec<String> {
    let text = |entry: &Entry| match entry {
        Entry::Object(record) => record.name.as_ref().unwrap().to_string(),
        Entry::Directory { name, .. } => format!("{name}/"),
    };
    entries.iter().map(text).collect()
}

/// All there is: what root sees, directory by directory, and the records.
pub fn everything(registry: &Registry) -> (Vec<Entry>, Vec<ObjectRecord>) {
    let mut found = vec![registry.stat(&name("/"), &user(0)).unwrap()];
    let mut at = 0;
    while at < found.len() {
        if let Entry::Directory { name, .. } = found[at].clone() {
            let (below, more) = registry.list(&name, &user(0), None, usize::MAX).unwrap();
            assert!(!more);
            found.extend(below);
        }
        at += 1;
    }
    let mut records = registry.records().unwrap();
    records.sort_by_key(|record| record.id.0);
    (found, records)
}

pub fn ids(registry: &Registry) -> Vec<ObjectId> {
    everything(registry).1.iter().map(|record| record.id).collect()
}
