//! What is kept of an object.

use commonhold_object::{CreateOptions, Error, ErrorKind, Name, ObjectId, Ownership, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectRecord {
    /// Identity within this state directory.
    pub id: ObjectId,
    /// Identity anywhere (its journal carries it).
    pub uuid: u128,
    /// Name; `None` once it was removed while in use.
    pub name: Option<Name>,
    /// Name when it was created: what its external pager knows it by, whatever it is called now.
    pub first_name: Name,
    /// Owner, group, mode.
    pub ownership: Ownership,
    /// How it was created; the size is the size now.
    pub options: CreateOptions,
    /// Its backing file.
    pub file: Option<BackingFile>,
    /// The client's random number, by which a repeated creation finds its own object.
    pub nonce: u128,
    /// Bytes of memory or disk reserved for it.
    pub charged_bytes: u64,
    /// Whose quota they count against.
    pub charged_uid: u32,
    /// Boot in which it was created: anonymous objects do not outlive it.
    pub boot_id: String,
    /// Its home is another host: nothing of it is stored here.
    pub is_elsewhere: bool,
}

impl ObjectRecord {
    /// What people are told that it is: its name, or its number once that was removed.
    pub fn label(&self) -> String {
        self.name.as_ref().map_or_else(|| format!("object {}", self.id.0), Name::to_string)
    }

    /// Refuses if `of`, which was meant by that name, is another object.
    pub fn check_is(&self, name: &Name, of: Option<u128>) -> Result<()> {
        match of {
            Some(of) if of != self.uuid => {
                Err(Error::new(ErrorKind::NotFound, format!("{name} is another object by now")))
            }
            _ => Ok(()),
        }
    }
}

/// A backing file, as it was when it was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackingFile {
    /// Where it was.
    pub path: PathBuf,
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Owner.
    pub owner_uid: u32,
    /// It was given open for reading alone.
    pub read_only: bool,
}

/// An object or a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An object.
    Object(Box<ObjectRecord>),
    /// A directory.
    Directory {
        /// Its name.
        name: Name,
        /// Owner, group, mode.
        ownership: Ownership,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{VERSION, golden};

    #[test]
    fn records_are_those_of_their_version() {
        let name = |name: &str| Name::new(name).unwrap();
        let options =
            CreateOptions { size_bytes: 1 << 20, description: "<u4".into(), ..CreateOptions::default() };
        let record = ObjectRecord {
            id: ObjectId(7),
            uuid: 1 << 100,
            name: Some(name("/lab/weights")),
            first_name: name("/lab/first"),
            ownership: Ownership { uid: 1, gid: 2, mode: 0o640 },
            options,
            file: Some(BackingFile {
                path: "/data/weights".into(),
                device: 3,
                inode: 4,
                owner_uid: 5,
                read_only: true,
            }),
            nonce: 1 << 99,
            charged_bytes: 6,
            charged_uid: 8,
            boot_id: "boot".into(),
            is_elsewhere: true,
        };
        let plain =
            ObjectRecord { name: None, file: None, options: CreateOptions::default(), ..record.clone() };
        let all = golden::together(&[&record, &plain].map(|one| postcard::to_stdvec(one).unwrap()));
        let kept = golden::check(env!("CARGO_MANIFEST_DIR"), "records", VERSION, &all);
        let kept: Vec<ObjectRecord> =
            golden::apart(&kept).iter().map(|one| postcard::from_bytes(one).unwrap()).collect();
        assert_eq!(kept, [record.clone(), plain]);
        let bytes = postcard::to_stdvec(&record.ownership).unwrap();
        let kept = golden::check(env!("CARGO_MANIFEST_DIR"), "directory", VERSION, &bytes);
        assert_eq!(postcard::from_bytes::<Ownership>(&kept).unwrap(), record.ownership);
    }
}
