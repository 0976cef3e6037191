//! One more link for each major version, `names/words/1`: to the newest version of it that is not withdrawn. Programs
//! that include code before they have a C library find it by opening one path, without reading a directory.
//!
//! A link never leads to a version that is withdrawn or not there: it is switched before that version goes, and after a
//! version came. Who was killed in between left it behind by one step, which the next change mends first.

use super::Store;
use super::content::MAKING;
use super::names::Entry;
use crate::{Error, Result};
use commonhold_image::Version;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

impl Store {
    /// Where the newest version of a major version is to be found.
    pub fn newest_link(&self, name: &str, major: u32) -> PathBuf {
        self.directory_of(name).join(major.to_string())
    }

    /// Makes these links say what the versions say. Whoever reads one sees the former or the new.
    pub(super) fn point_to_newest(&self, name: &str) -> Result<()> {
        self.point_without(name, None)
    }

    /// As [`Store::point_to_newest`], as if one version, which is about to go, were gone.
    pub(super) fn point_without(&self, name: &str, going: Option<Version>) -> Result<()> {
        let directory = self.directory_of(name);
        let mut newest = BTreeMap::new();
        let stays = |entry: &Entry| !entry.withdrawn && Some(entry.version) != going;
        for entry in self.versions(name)?.into_iter().filter(stays) {
            newest.insert(entry.version.major, entry.id); // they come oldest first
        }
        for (major, id) in &newest {
            let (link, target) = (self.newest_link(name, *major), format!("../../content/{id}"));
            if fs::read_link(&link).is_ok_and(|there| there.as_os_str() == target.as_str()) {
                continue;
            }
            let beside = directory.join(format!("{MAKING}{major}"));
            let _ = fs::remove_file(&beside);
            std::os::unix::fs::symlink(&target, &beside)
                .and_then(|()| fs::rename(&beside, &link))
                .map_err(Error::file(&link))?;
        }
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let major = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            if major.is_some_and(|major| !newest.contains_key(&major)) {
                fs::remove_file(entry.path()).map_err(Error::file(&entry.path()))?;
            }
        }
        Ok(())
    }
}
