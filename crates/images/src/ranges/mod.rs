//! The registry of address ranges: who has which, for good.
//!
//! DASH (Govindan, sections 4.2 and 6.6) divides the addresses of shared segments into two. In the **homogeneous** region no
//! two images overlap: any process may include any of them. In the **heterogeneous** region they may, if they are
//! declared never to be in one process.

#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod region;
mod table;

pub use region::{Arch, Owner, Region};
pub use table::{Range, Wanted};

use crate::{Error, Result};
use commonhold_object::format::other_version;
use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use std::fs::{File, Permissions, TryLockError};
use std::io::{Read, Seek};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use table::Table;

const RANGES: TableDefinition<&str, &[u8]> = TableDefinition::new("ranges");
const FORMAT: TableDefinition<&str, u64> = TableDefinition::new("format");
/// Of tables and ranges. A file that says none is of the first.
const VERSION: u64 = 1;
/// Another process works with the registry for moments.
const PATIENCE: Duration = Duration::from_secs(20);

/// The registry of one owner: the machine's, or a user's.
pub struct Ranges {
    database: Database,
    path: PathBuf,
    owner: Owner,
}

/// The file, made if there is none; not through a link. Its owner alone may open it: whoever can open a file can hold its
/// lock for ever.
fn file(path: &Path) -> Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(path);
    let file = file.map_err(Error::file(path))?;
    let found = file.metadata().map_err(Error::file(path))?;
    let user = rustix::process::geteuid().as_raw();
    if !found.is_file() || found.uid() != 0 && found.uid() != user {
        let why = format!(
            "it belongs to user {}, or is no ordinary file: only what is root's or your own is used",
            found.uid()
        );
        return Err(Error::untrusted(path, why));
    }
    if found.permissions().mode() & 0o777 != 0o600 {
        file.set_permissions(Permissions::from_mode(0o600)).map_err(Error::file(path))?;
    }
    Ok(file)
}

/// Looks at a copy in memory, before the file itself is opened: redb trusts its bytes, changes what
/// it repairs, and panics where structures contradict each other. An error says what is wrong.
fn examine(mut file: &File) -> std::result::Result<(), String> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).and_then(|_| file.rewind()).map_err(|error| error.to_string())?;
    if bytes.is_empty() {
        return Ok(()); // it is made now
    }
    let check = || {
        let copy = redb::backends::InMemoryBackend::new();
        copy.set_len(bytes.len() as u64)?;
        copy.write(0, &bytes)?;
        let mut database = redb::Builder::new().create_with_backend(copy)?;
        Ok::<_, redb::Error>(if database.check_integrity()? { Some(version(&database)?) } else { None })
    };
    match catch_unwind(AssertUnwindSafe(check)) {
        Ok(Ok(Some(VERSION))) => Ok(()),
        Ok(Ok(Some(found))) => {
            let at = "the addresses of images and copies";
            Err(other_version(at, found, VERSION, "use the version that wrote it").message)
        }
        Ok(Ok(None)) => Err("it is damaged: a sum is wrong".into()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it is damaged: its structures contradict each other".into()),
    }
}

fn version(database: &Database) -> std::result::Result<u64, redb::Error> {
    match database.begin_read()?.open_table(FORMAT) {
        Ok(table) => Ok(table.get("version")?.map_or(1, |version| version.value())),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(1),
        Err(error) => Err(error.into()),
    }
}

impl Ranges {
    /// The registry in a file, made if there is none. Waits while another process uses it, at most 20 s.
    pub fn open(path: &Path, owner: Owner) -> Result<Ranges> {
        let deadline = Instant::now() + PATIENCE;
        let wrong = |why: String| Error::Registry { path: path.to_owned(), why };
        let file = file(path)?;
        // The lock that the database takes, too: nobody writes while it is looked at.
        while let Err(error) = file.try_lock() {
            match error {
                TryLockError::WouldBlock if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                TryLockError::WouldBlock => return Err(wrong("another process has it".into())),
                TryLockError::Error(error) => return Err(Error::file(path)(error)),
            }
        }
        examine(&file).map_err(wrong)?;
        let database = redb::Builder::new().create_file(file).map_err(|error| wrong(error.to_string()))?;
        Ok(Ranges { database, path: path.to_owned(), owner })
    }

    /// Whose registry it is.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// The range of an image: the one it has, if it is large enough, else a new one.
    pub fn assign(&self, wanted: &Wanted) -> Result<Range> {
        wanted.check()?;
        self.change(|table| table.assign(wanted, self.owner))
    }

    /// The ranges of several images, all or none.
    pub fn assign_all(&self, wanted: &[Wanted]) -> Result<Vec<Range>> {
        wanted.iter().try_for_each(Wanted::check)?;
        self.change(|table| wanted.iter().map(|one| table.assign(one, self.owner)).collect())
    }

    /// Gives an image the range that it asks for by address, without room to grow, or says who has it.
    pub fn claim(&self, wanted: &Wanted, first: u64) -> Result<Range> {
        wanted.check()?;
        self.change(|table| table.claim(wanted, first, self.owner))
    }

    /// The image has no range any more. Whether it had one.
    pub fn release(&self, name: &str) -> Result<bool> {
        self.change(|table| Ok(table.remove(name)))
    }

    /// Nobody has this range any more, if it is still as it was given. Whether it was.
    pub fn release_this(&self, range: &Range) -> Result<bool> {
        self.change(|table| Ok(table.has(range) && table.remove(&range.name)))
    }

    /// The image needs no more than these bytes of its range: the rest is for others.
    pub fn trim(&self, name: &str, bytes: u64) -> Result<()> {
        self.change(|table| {
            table.trim(name, bytes);
            Ok(())
        })
    }

    /// All ranges, by address.
    pub fn list(&self) -> Result<Vec<Range>> {
        let wrong = |error: redb::Error| self.wrong(error);
        let reading = self.database.begin_read().map_err(|error| wrong(error.into()))?;
        match reading.open_table(RANGES) {
            Ok(table) => Ok(self.read(&table)?.by_address()),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(Vec::new()),
            Err(error) => Err(wrong(error.into())),
        }
    }

    fn wrong(&self, error: redb::Error) -> Error {
        Error::Registry { path: self.path.clone(), why: error.to_string() }
    }

    fn read(&self, stored: &impl ReadableTable<&'static str, &'static [u8]>) -> Result<Table> {
        let damaged = |why: String| Error::Registry { path: self.path.clone(), why };
        let mut table = Table::default();
        for entry in stored.iter().map_err(|error| self.wrong(error.into()))? {
            let (_, value) = entry.map_err(|error| self.wrong(error.into()))?;
            let range: Range =
                postcard::from_bytes(value.value()).map_err(|error| damaged(error.to_string()))?;
            let name = range.name.clone();
            if !table.insert_stored(range) {
                return Err(damaged(format!("the addresses of {name} are none of this registry's")));
            }
        }
        Ok(table)
    }

    /// One change, whole or not at all. Where nothing changes nothing is written, and no disk is waited for.
    fn change<T>(&self, change: impl FnOnce(&mut Table) -> Result<T>) -> Result<T> {
        let wrong = |error: redb::Error| self.wrong(error);
        let writing = self.database.begin_write().map_err(|error| wrong(error.into()))?;
        let result = {
            let mut stored = writing.open_table(RANGES).map_err(|error| wrong(error.into()))?;
            let mut table = self.read(&stored)?;
            let result = change(&mut table)?;
            if table.changes().next().is_none() {
                return Ok(result);
            }
            for (name, range) in table.changes() {
                let outcome = match range {
                    Some(range) => {
                        let bytes = postcard::to_stdvec(&range).expect("a range can be encoded");
                        stored.insert(name.as_str(), &bytes[..]).map(drop)
                    }
                    None => stored.remove(name.as_str()).map(drop),
                };
                outcome.map_err(|error| wrong(error.into()))?;
            }
            let mut format = writing.open_table(FORMAT).map_err(|error| wrong(error.into()))?;
            format.insert("version", VERSION).map_err(|error| wrong(error.into()))?;
            result
        };
        writing.commit().map_err(|error| wrong(error.into()))?;
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden;

    #[test]
    fn ranges_are_those_of_their_version_and_another_is_refused() {
        let range = Range {
            name: "words@1".into(),
            arch: Arch::X86_64,
            region: Region::Homogeneous,
            first: Region::Homogeneous.addresses(Owner::Machine).start,
            bytes: 1 << 20,
            group: Some("group".into()),
        };
        let written = postcard::to_stdvec(&range).unwrap();
        let kept = golden::check(env!("CARGO_MANIFEST_DIR"), "range", VERSION, &written);
        assert_eq!(postcard::from_bytes::<Range>(&kept).unwrap(), range);

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ranges");
        let ranges = Ranges::open(&path, Owner::Machine).unwrap();
        let wanted = Wanted {
            name: "words@1".into(),
            arch: Arch::X86_64,
            region: Region::Homogeneous,
            bytes: 4096,
            alignment: 4096,
            group: None,
            slide: 0,
        };
        let given = ranges.assign(&wanted).unwrap();
        drop(ranges);
        let put = |version: Option<u64>| {
            let database = Database::open(&path).unwrap();
            let change = database.begin_write().unwrap();
            match version {
                Some(version) => {
                    let mut format = change.open_table(FORMAT).unwrap();
                    assert_eq!(format.insert("version", version).unwrap().unwrap().value(), VERSION);
                }
                None => assert!(change.delete_table(FORMAT).unwrap()),
            }
            change.commit().unwrap();
        };
        put(Some(VERSION + 1));
        let before = std::fs::read(&path).unwrap();
        let why = Ranges::open(&path, Owner::Machine).err().unwrap().to_string();
        assert!(why.contains("a later version") && why.contains("nothing was changed"), "{why}");
        assert!(std::fs::read(&path).unwrap() == before);
        // As it was before it said of which version it is.
        put(None);
        assert_eq!(Ranges::open(&path, Owner::Machine).unwrap().list().unwrap(), [given]);
    }
}
