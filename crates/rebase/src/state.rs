//! Whether what was made still holds, and what is not needed any more.

use crate::elf::Elf;
use crate::guard::is_our_file;
use crate::origin::{Origin, build_id};
use crate::plan::state_of;
use crate::store::Store;
use crate::{Error, Result};
use commonhold_images::ranges::Range;
use commonhold_record::{File, MAGIC, Record};
use std::collections::BTreeSet;
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
    /// A file or a copy is not what it was: it is started as if it were not set, until `update`.
    Stale {
        /// Which.
        file: PathBuf,
    },
    /// It has no record: it could not be set, and `update` says why.
    Unset,
    /// Its record is of another version: it is started as if it were not set, until `update`.
    OtherVersion,
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
    if is_other(&bytes) {
        return Ok(State::OtherVersion);
    }
    let Some(record) = Record::new(&bytes) else { return Ok(State::Unset) };
    // As a start finds it: what others could have written is none.
    let foreign = (!is_our_file(&at)).then_some(at);
    let changed = record.files().find(|file| !holds(file)).map(|file| path(file.path));
    let is_off =
        |file: &File<'_>| !file.copy.is_empty() && state_of(&path(file.copy)).ok() != Some(file.copy_state);
    let off = record.files().find(is_off).map(|file| path(file.copy));
    match foreign.or(changed).or(off) {
        Some(file) => Ok(State::Stale { file }),
        None => Ok(State::Current { copies: record.files().filter(|file| !file.copy.is_empty()).count() }),
    }
}

/// Whether it is a record that another version of Commonhold made.
fn is_other(bytes: &[u8]) -> bool {
    commonhold_record::version(bytes).is_some_and(|version| version != MAGIC[7])
}

/// Keys of copies that a record names or a process maps.
fn used(store: &Store) -> Result<BTreeSet<String>> {
    store.remove_records_of_copies()?;
    let mut used = store.mapped();
    for bytes in store.records()? {
        if is_other(&bytes) {
            let why = "a program's record is of another version of Commonhold, and what it needs is not known: nothing \
                       was removed; run `commonhold rebase update` with the version that is to be used";
            return Err(Error::store(store.root(), why));
        }
        let record = Record::new(&bytes);
        let copies = record.iter().flat_map(Record::files).map(|file| path(file.copy));
        used.extend(
            copies.filter_map(|copy| Some(copy.parent()?.file_name()?.to_string_lossy().into_owned())),
        );
    }
    Ok(used)
}

/// Removes copies that no record names and no process maps, and takes the addresses back of libraries that have none any
/// more. Gives how many copies went.
pub fn clean(store: &Store) -> Result<usize> {
    let used = used(store)?;
    let unused: BTreeSet<String> = store.keys()?.difference(&used).cloned().collect();
    store.remove(&unused)?;
    release_but_of(store, &used)?;
    Ok(unused.len())
}

/// Takes the addresses back of libraries of which no copy is named by a record or mapped by a process.
pub fn release(store: &Store) -> Result<()> {
    release_but_of(store, &used(store)?)
}

fn release_but_of(store: &Store, keys: &BTreeSet<String>) -> Result<()> {
    let origin_of = store.origin_of_keys();
    let bases: BTreeSet<u64> = keys.iter().filter_map(origin_of).map(|origin| origin.base).collect();
    let ranges = store.ranges()?;
    for range in ranges.list()?.iter().filter(|range| is_of_a_library(range)) {
        if !bases.contains(&range.first) {
            ranges.release_this(range)?;
        }
    }
    Ok(())
}

fn is_of_a_library(range: &Range) -> bool {
    range.name.starts_with("rebase:")
}

/// Takes all addresses back, so that the next build draws new ones. Copies that are mapped stay while they are.
pub fn renew(store: &Store) -> Result<()> {
    let ranges = store.ranges()?;
    for range in ranges.list()? {
        if is_of_a_library(&range) {
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
    /// If it is a copy, or was one: of what.
    pub origin: Option<Origin>,
    /// Whether the original is another file now, or gone: known by the build ID, if it has one.
    pub is_another: bool,
    /// Whether the file is still there.
    pub exists: bool,
}

/// Whether the file at the path of an original has not its build ID.
fn is_another(origin: &Origin) -> bool {
    let now = || build_id(&Elf::open(&origin.path).ok()?);
    origin.build_id.is_some() && now() != origin.build_id
}

/// The files of a process or core dump, those that are copies with their originals.
pub fn originals(store: &Store, files: impl IntoIterator<Item = (u64, PathBuf)>) -> Result<Vec<Mapped>> {
    let origin_of = store.origins()?;
    let one = |(first, path): (u64, PathBuf)| {
        let origin = origin_of(&path);
        let is_another = origin.as_ref().is_some_and(is_another);
        Mapped { first, exists: path.exists(), origin, is_another, path }
    };
    Ok(files.into_iter().map(one).collect())
}
