//! Which slots of a code image's major version have been given, and to what: `names/words/1.slots`, a line each, `SLOT
//! NAME`. Programs are linked to slots and stay linked when a version is removed: none is ever given to another function
//! while its major version has any version.

use super::content::{MAKING, Opened};
use super::names::Entry;
use super::{Export, Store};
use crate::{Error, Result};
use commonhold_image::{Kind, Version};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

impl Store {
    fn slots_file(&self, name: &str, major: u32) -> PathBuf {
        self.directory_of(name).join(format!("{major}.slots"))
    }

    /// The functions that have had a slot in any version of a major version, by slot, of versions that were removed too.
    pub fn slots_given(&self, name: &str, major: u32) -> Result<BTreeMap<u32, String>> {
        let path = self.slots_file(name, major);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
            outcome => outcome.map_err(Error::file(&path))?,
        };
        let one = |line: &str| {
            let (slot, name) = line.split_once(' ')?;
            Some((slot.parse().ok()?, name.to_owned()))
        };
        let all: Option<BTreeMap<u32, String>> = text.lines().map(one).collect();
        all.ok_or(Error::Damaged { path })
    }

    /// Of code: it is of the lineage of its major version's other versions, and no slot of it was another function's.
    pub(super) fn check_slots(&self, all: &[Entry], image: &mut Opened) -> Result<()> {
        let header = image.header();
        if header.kind() != Kind::Code {
            return Ok(());
        }
        let (name, version, lineage) = (header.name().to_owned(), header.version(), header.layout());
        let refused = |older: String, why: String| Error::Incompatible {
            newer: format!("{name}@{version}"),
            older,
            why,
            next: all.iter().map(|entry| entry.version.major).max().unwrap_or(0).saturating_add(1),
        };
        for other in all.iter().filter(|other| other.version.major == version.major) {
            // One that is damaged says nothing.
            let Ok(there) = self.open(other.id) else { continue };
            if there.header().layout() != lineage {
                let why = "it was made without knowledge of that one: its slots and what programs hand over to it are \
                           of another lineage";
                return Err(refused(format!("{name}@{}", other.version), why.into()));
            }
        }
        let given = self.slots_given(&name, version.major)?;
        for export in image.exports()? {
            if let Some(was) = given.get(&export.slot).filter(|was| **was != export.name) {
                let why = format!(
                    "slot {} of {:?} is that of {was:?} in a version that was there",
                    export.slot, export.name
                );
                return Err(refused(format!("{name}@{}", version.major), why));
            }
        }
        Ok(())
    }

    /// Notes the slots of a code image, before it gets its name.
    pub(super) fn keep_slots(&self, name: &str, version: Version, exports: &[Export]) -> Result<()> {
        let mut given = self.slots_given(name, version.major)?;
        let before = given.len();
        given.extend(exports.iter().map(|export| (export.slot, export.name.clone())));
        if given.len() == before {
            return Ok(());
        }
        let path = self.slots_file(name, version.major);
        let beside = self.directory_of(name).join(format!("{MAKING}{}.slots", version.major));
        let text: String = given.iter().map(|(slot, name)| format!("{slot} {name}\n")).collect();
        let write = || {
            let _ = fs::remove_file(&beside);
            let mut file = File::options().write(true).create_new(true).mode(0o644).open(&beside)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, &path)
        };
        write().map_err(Error::file(&path))
    }

    /// The major version has no version any more: the next is of another lineage.
    pub(super) fn forget_slots(&self, name: &str, major: u32) -> Result<()> {
        let path = self.slots_file(name, major);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::file(&path)(error)),
            _ => Ok(()),
        }
    }
}
