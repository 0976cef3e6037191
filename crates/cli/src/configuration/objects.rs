//! Objects that are to be there when a host has started: made where they are not, and otherwise left as they are.

use crate::arguments::objects::Create;
use crate::commands::{make_object, object_options};
use commonhold::{EntryInfo, Error, ErrorKind, Host, ObjectInfo, PagerKind, Result};
use std::path::PathBuf;

/// An object that is to be there.
#[derive(Debug)]
pub struct Wanted {
    /// The file that says so, and in which line.
    pub path: PathBuf,
    /// The line.
    pub line: usize,
    /// As `create` would have it.
    pub create: Create,
    /// The keys that were given: what was left out may be anything.
    pub given: Vec<String>,
}

impl Wanted {
    /// With the place in the file in front.
    pub fn said(&self, why: &Error) -> Error {
        let (path, line) = (self.path.display(), self.line);
        Error::new(why.kind, format!("{path}:{line}: {}: {}", self.create.name, why.message))
    }

    /// Makes it, unless it is there.
    fn make(&self, host: &Host) -> Result<()> {
        match host.stat(&self.create.name) {
            Ok(entry) => return self.check(&entry),
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        match make_object(host, &self.create) {
            // Somebody was faster.
            Err(error) if error.kind == ErrorKind::Exists => self.check(&host.stat(&self.create.name)?),
            made => made.map(drop),
        }
    }

    /// Whether what is there is what is wanted. It stays as it is in any case: it may be in use, and have data.
    fn check(&self, entry: &EntryInfo) -> Result<()> {
        let EntryInfo::Object(info) = entry else {
            return Err(Error::new(ErrorKind::Exists, "a directory has this name"));
        };
        let different = self.differences(info)?;
        if different.is_empty() {
            return Ok(());
        }
        let why = format!("it is there, and stays as it is, with other options: {}", different.join(", "));
        Err(Error::new(ErrorKind::Mismatch, why))
    }

    fn differences(&self, info: &ObjectInfo) -> Result<Vec<String>> {
        let (wanted, has) = (object_options(&self.create)?, &info.options);
        let file = self.create.file.as_ref().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
        let is_file = file.is_none_or(|path| path.as_os_str() == info.file_path.as_str());
        let pager = match (&self.create.file, &wanted.pager) {
            (None, PagerKind::Anonymous) => has.pager == PagerKind::Anonymous,
            (_, wanted) => *wanted == has.pager && is_file,
        };
        let mode = wanted.mode == info.ownership.mode;
        let same = [
            ("size", wanted.size_bytes == has.size_bytes),
            ("sync", wanted.sync == has.sync),
            ("controlled", wanted.controlled == has.controlled),
            ("freezable", wanted.freezable == has.freezable),
            ("reserve", wanted.reserves() == has.reserves()),
            ("on-last-death", wanted.on_last_death == has.on_last_death),
            ("budget", wanted.budget_bytes == has.budget_bytes),
            ("fault-deadline", wanted.fault_deadline_ms == has.fault_deadline_ms),
            ("pager-deadline", wanted.pager_deadline_ms == has.pager_deadline_ms),
            ("mode", mode),
            ("description", wanted.description == has.description),
            ("replicas", wanted.replicas == has.replicas),
            ("home-moves", wanted.home_moves == has.home_moves),
            ("translation", wanted.translation == has.translation),
            ("page-size", wanted.page_size == has.page_size),
            ("coherence", wanted.coherence.word() == has.coherence.word()),
            ("fixed", wanted.fixed.is_some() == has.fixed.is_some()),
            ("ephemeral", wanted.ephemeral_ms == has.ephemeral_ms),
        ];
        let is_given = |key: &str| self.given.iter().any(|given| given == key);
        let mut different: Vec<String> = same
            .into_iter()
            .filter(|(key, same)| !same && is_given(key))
            .map(|(key, _)| match key {
                "size" => format!("size is {} bytes and not {}", has.size_bytes, wanted.size_bytes),
                "mode" => format!("mode is {:04o} and not {:04o}", info.ownership.mode, wanted.mode),
                key => format!("{key} is another"),
            })
            .collect();
        if !pager {
            different.push("its bytes are elsewhere (file or pager)".to_owned());
        }
        Ok(different)
    }
}

/// Makes what is not there. Gives what is still to be made, each with why; what is there with other options is told once.
pub fn make(host: &Host, wanted: Vec<Wanted>) -> Vec<(Wanted, Error)> {
    let mut left = Vec::new();
    for object in wanted {
        if let Err(why) = object.make(host) {
            let why = object.said(&why);
            left.push((object, why));
        }
    }
    left
}
