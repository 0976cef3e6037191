//! Whether what was made still holds, and what is not needed any more.

use crate::plan::state_of;
use crate::store::Store;
use crate::{Error, Result};
use commonhold_record::{File, IS_THE_COPY, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How a program that is set stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is started with copies of so many files.
    Current {
        /// How many.
        copies: usize,
    },
    /// A file is not what it was: it is started as if it were not set, until `update`.
    Stale {
        /// Which.
        file: PathBuf,
    },
    /// It has no record: it could not be set, and `update` says why.
    Unset,
}

fn path(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes.strip_suffix(b"\0").unwrap_or(bytes)).into()
}

fn holds(file: &File<'_>) -> bool {
    state_of(&path(file.path)).is_ok_and(|state| state == file.state)
}

/// How a program stands.
pub fn of(store: &Store, program: &Path) -> Result<State> {
    let at = store.record(program);
    let bytes = match std::fs::read(&at) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(State::Unset),
        Err(error) => return Err(Error::file(&at)(error)),
    };
    let Some(record) = Record::new(&bytes) else { return Ok(State::Unset) };
    let changed = record.files().find(|file| !holds(file)).map(|file| path(file.path));
    let gone = record
        .files()
        .map(|file| path(file.copy))
        .find(|copy| !copy.as_os_str().is_empty() && !copy.exists());
    match changed.or(gone) {
        Some(file) => Ok(State::Stale { file }),
        None => Ok(State::Current { copies: record.files().filter(|file| !file.copy.is_empty()).count() }),
    }
}

/// Removes copies that no record names and no process maps, and the addresses of libraries that have none any more. Gives
/// how many copies went.
pub fn clean(store: &Store) -> Result<usize> {
    store.remove_records_of_copies()?;
    let mut named = BTreeSet::new();
    for bytes in store.records()? {
        let record = Record::new(&bytes);
        let copies = record.iter().flat_map(Record::files).map(|file| path(file.copy));
        named.extend(
            copies.filter_map(|copy| Some(copy.parent()?.file_name()?.to_string_lossy().into_owned())),
        );
    }
    let mapped = store.mapped();
    let all: BTreeSet<String> = store.copies()?.into_iter().map(|(key, _)| key).collect();
    let unused: BTreeSet<String> =
        all.into_iter().filter(|key| !named.contains(key) && !mapped.contains(key)).collect();
    store.remove(&unused)?;
    Ok(unused.len())
}

/// Takes all addresses back, so that the next build draws new ones. Copies that are mapped stay while they are.
pub fn renew(store: &Store) -> Result<()> {
    let ranges = store.ranges()?;
    for range in ranges.list()? {
        if range.name.starts_with("rebase:") {
            ranges.release(&range.name)?;
        }
    }
    Ok(())
}

/// A file that a process or a core dump has mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Its first address.
    pub first: u64,
    /// The file.
    pub path: PathBuf,
    /// If it is a copy: of what, as far as a record still says.
    pub original: Option<PathBuf>,
    /// Whether the file is still there.
    pub exists: bool,
}

/// The files of a process or core dump, those that are copies with their originals.
pub fn originals(store: &Store, files: impl IntoIterator<Item = (u64, PathBuf)>) -> Result<Vec<Mapped>> {
    let mut by_copy = BTreeMap::new();
    for bytes in store.records()? {
        let record = Record::new(&bytes);
        // The record of a program's copy names the program there.
        let copies = record.iter().flat_map(Record::files).filter(|file| file.dynamic != IS_THE_COPY);
        by_copy.extend(copies.map(|file| (path(file.copy), path(file.path))));
    }
    let one = |(first, path): (u64, PathBuf)| {
        let original = by_copy.get(&path).filter(|_| !path.as_os_str().is_empty()).cloned();
        Mapped { first, exists: path.exists(), original, path }
    };
    Ok(files.into_iter().map(one).collect())
}
