//! Opening `meta.redb`: looked at in a copy first, so that a file of a newer version, or a damaged one, is refused
//! without a byte of it changed; and begun under another name, so that it is never half there.

use crate::file::Unlocked;
use crate::record::ObjectRecord;
use crate::store::{DIRECTORIES, FORMAT, OBJECTS, VERSION};
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Name, Ownership, Result, limits};
use commonhold_points as points;
use redb::backends::InMemoryBackend;
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, RepairSession, StorageBackend,
    TableDefinition,
};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind as IoKind, Read};
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Which program brought the tables to their version: for the message of an older one.
const WRITER: TableDefinition<'_, &str, &str> = TableDefinition::new("writer");

/// All that the file holds.
#[derive(Default)]
pub struct Contents {
    pub directories: Vec<(Name, Ownership)>,
    pub records: Vec<ObjectRecord>,
    /// The number of the next object.
    pub next_object: u64,
    /// From where on addresses are looked for; none were given: nowhere.
    pub next_fixed: Option<u64>,
}

/// Opens the file, or begins it. The caller keeps other hosts away: see [`Unlocked`].
pub fn open(path: &Path) -> Result<(Database, Contents)> {
    let looking = || format!("opening {}", path.display());
    match std::fs::metadata(path) {
        Ok(found) if found.len() > 0 => {}
        Err(error) if error.kind() != IoKind::NotFound => return Err(Error::io(looking(), &error)),
        _ => begin(path)?,
    }
    let file = OpenOptions::new().read(true).write(true).open(path).doing(looking())?;
    let contents = examine(path, &file)?;
    let database = Builder::new().create_with_backend(Unlocked(file)).map_err(|e| failed(path, e))?;
    Ok((database, contents))
}

/// Reads everything from a copy in memory. redb repairs what was not closed in order as soon as it opens, and trusts
/// a file that was: here it does the one to the copy, and is made to check the other.
fn examine(path: &Path, mut file: &File) -> Result<Contents> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).doing(format!("reading {}", path.display()))?;
    contents_of(path, bytes)
}

/// What these bytes of the file hold.
pub fn contents_of(path: &Path, bytes: Vec<u8>) -> Result<Contents> {
    // Structures that contradict each other can make redb panic.
    let read = catch_unwind(AssertUnwindSafe(|| {
        let bytes = was_closing(bytes);
        check_sums(path, &bytes)?;
        read(path, &bytes)
    }));
    read.unwrap_or_else(|_| Err(damaged(path, "its structures contradict each other")))
}

/// A copy in memory, repaired if that is needed. Whether it may go back to the state before the last commit.
fn open_copy(path: &Path, bytes: &[u8], may_go_back: bool) -> Result<Database> {
    let copy = InMemoryBackend::new();
    copy.set_len(bytes.len() as u64).and_then(|()| copy.write(0, bytes)).doing("copying the registry")?;
    // When a third is done the last commit is known not to be whole.
    let third = move |session: &mut RepairSession| {
        if !may_go_back && (0.1..0.5).contains(&session.progress()) {
            session.abort();
        }
    };
    match Builder::new().set_repair_callback(third).create_with_backend(copy) {
        Ok(database) => Ok(database),
        Err(DatabaseError::RepairAborted) => Err(damaged(path, "a checksum is wrong")),
        Err(error) => Err(failed(path, error)),
    }
}

/// Where redb has its flags, behind the magic number; and the one that says that the last commit
/// was in two phases, as that of a file which was closed in order is (its `docs/design.md`).
const FLAGS_AT: usize = 9;
const TWO_PHASES: u8 = 4;
/// And that which says that it was not closed.
const REPAIR: u8 = 2;

/// Says of a file whose host was killed while it closed it that its last commit was in one phase. That commit is redb's
/// own, of what it knows of free pages, which it then changes in place: its sums are wrong meanwhile. The commit before
/// has the same contents. (redb itself trusts a commit in two phases, and opens the file.)
fn was_closing(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(flags) = bytes.get_mut(FLAGS_AT).filter(|flags| **flags & REPAIR != 0) {
        *flags &= !TWO_PHASES;
    }
    bytes
}

/// Of a file that was closed in order redb follows pages before it knows that they are what was
/// written, and takes as much memory as a damaged one says to have. A copy that does not say that
/// it was closed so is repaired, for which all sums are looked at first, from the roots on.
fn check_sums(path: &Path, bytes: &[u8]) -> Result<()> {
    let Some(flags) = bytes.get(FLAGS_AT).filter(|flags| *flags & TWO_PHASES != 0) else { return Ok(()) };
    let mut changed = bytes.to_vec();
    changed[FLAGS_AT] = flags & !TWO_PHASES;
    open_copy(path, &changed, false).map(drop)
}

/// Whether both states that a file has begin with pages that the file could hold: redb takes memory
/// for them before it knows.
fn roots_fit(bytes: &[u8]) -> bool {
    // Two slots of 128 bytes; in each where the roots of the two trees are, the size of the page in
    // the upper bits.
    const ROOTS: [usize; 4] = [64 + 8, 64 + 40, 192 + 8, 192 + 40];
    ROOTS.iter().all(|at| {
        let root =
            bytes.get(*at..).and_then(|rest| rest.first_chunk()).map_or(0, |root| u64::from_le_bytes(*root));
        (4096 << (root >> 59)) <= bytes.len() as u64
    })
}

fn read(path: &Path, bytes: &[u8]) -> Result<Contents> {
    let mut database = open_copy(path, bytes, roots_fit(bytes))?;
    // First: nothing else that is read is known to be what was written.
    if !database.check_integrity().map_err(|e| failed(path, e))? {
        return Err(damaged(path, "a checksum is wrong"));
    }
    check_version(path, &database)?;
    let transaction = database.begin_read().map_err(|e| failed(path, e))?;
    let mut contents = Contents::default();
    for row in transaction
        .open_table(DIRECTORIES)
        .map_err(|e| failed(path, e))?
        .iter()
        .map_err(|e| failed(path, e))?
    {
        let (name, bytes) = row.map_err(|e| failed(path, e))?;
        contents.add_directory(path, name.value(), bytes.value())?;
    }
    for row in
        transaction.open_table(OBJECTS).map_err(|e| failed(path, e))?.iter().map_err(|e| failed(path, e))?
    {
        let (id, bytes) = row.map_err(|e| failed(path, e))?;
        contents.add_object(path, id.value(), bytes.value())?;
    }
    let format = transaction.open_table(FORMAT).map_err(|e| failed(path, e))?;
    let stored = format.get("next_object").map_err(|e| failed(path, e))?.map_or(1, |next| next.value());
    contents.count_up(path, stored)?;
    contents.next_fixed = format.get("next_fixed").map_err(|e| failed(path, e))?.map(|next| next.value());
    Ok(contents)
}

impl Contents {
    pub fn add_directory(&mut self, path: &Path, name: &str, bytes: &[u8]) -> Result<()> {
        let ownership = postcard::from_bytes(bytes).map_err(|e| damaged(path, format!("{name}: {e}")))?;
        self.directories.push((Name::directory(name).map_err(|e| damaged(path, e))?, ownership));
        Ok(())
    }

    pub fn add_object(&mut self, path: &Path, id: u64, bytes: &[u8]) -> Result<()> {
        let record = postcard::from_bytes(bytes);
        let mut record: ObjectRecord = record.map_err(|e| damaged(path, format!("object {id}: {e}")))?;
        // Older versions granted any time.
        record.options.pager_deadline_ms =
            record.options.pager_deadline_ms.map(|ms| ms.min(limits::PAGER_DEADLINE_MS));
        if record.id.0 != id {
            return Err(damaged(path, format!("object {id} says that it is {}", record.id.0)));
        }
        if record.options.size_bytes > limits::OBJECT_BYTES {
            return Err(damaged(path, format!("no object has the size of object {id}")));
        }
        self.records.push(record);
        Ok(())
    }

    /// The next object has that number, or one behind all that there are.
    pub fn count_up(&mut self, path: &Path, stored: u64) -> Result<()> {
        let last = self.records.iter().map(|record| record.id.0).max();
        let next = last.map_or(Some(stored), |last| Some(last.checked_add(1)?.max(stored)));
        // So that numbers can be counted for ever.
        self.next_object = next
            .filter(|next| *next < 1 << 62)
            .ok_or_else(|| damaged(path, "its numbers of objects are at their end"))?;
        Ok(())
    }
}

fn check_version(path: &Path, database: &Database) -> Result<()> {
    let transaction = database.begin_read().map_err(|e| failed(path, e))?;
    let format = match transaction.open_table(FORMAT) {
        Ok(table) => table.get("version").map_err(|e| failed(path, e))?.map(|version| version.value()),
        Err(redb::TableError::TableDoesNotExist(_)) => None,
        Err(error) => return Err(failed(path, error)),
    };
    let Some(found) = format else {
        return Err(damaged(path, "it is a database, but not one of Commonhold"));
    };
    if found == VERSION {
        return Ok(());
    }
    let writer = transaction.open_table(WRITER).ok().and_then(|table| table.get("program").ok().flatten());
    let writer = writer.map_or_else(|| "another version".to_owned(), |program| program.value().to_owned());
    let way_out = if found > VERSION { "upgrade this program" } else { "use the program that wrote it" };
    Err(Error::new(
        ErrorKind::Version,
        format!(
            "{} was written by Commonhold {writer} (version {found} of the state; this is {}, which knows {VERSION}): \
             {way_out}; nothing was changed",
            path.display(),
            env!("CARGO_PKG_VERSION")
        ),
    ))
}

/// An empty state: a root directory that everybody may use, as /tmp. It gets its name when it is whole and on disk.
fn begin(path: &Path) -> Result<()> {
    let new = path.with_extension("redb.new");
    let beginning = || format!("beginning {}", path.display());
    if let Err(error) =
        std::fs::remove_file(&new).or_else(|e| if e.kind() == IoKind::NotFound { Ok(()) } else { Err(e) })
    {
        return Err(Error::io(beginning(), &error));
    }
    let database = Database::create(&new).map_err(|e| failed(path, e))?;
    let owner = std::fs::metadata(&new).doing(beginning())?;
    let root = Ownership { uid: owner.uid(), gid: owner.gid(), mode: 0o777 };
    let root = postcard::to_stdvec(&root).map_err(|e| damaged(path, e))?;
    let transaction = database.begin_write().map_err(|e| failed(path, e))?;
    {
        let mut directories = transaction.open_table(DIRECTORIES).map_err(|e| failed(path, e))?;
        directories.insert("/", root.as_slice()).map_err(|e| failed(path, e))?;
        let mut format = transaction.open_table(FORMAT).map_err(|e| failed(path, e))?;
        format.insert("version", VERSION).map_err(|e| failed(path, e))?;
        format.insert("next_object", 1).map_err(|e| failed(path, e))?;
        let mut writer = transaction.open_table(WRITER).map_err(|e| failed(path, e))?;
        writer.insert("program", env!("CARGO_PKG_VERSION")).map_err(|e| failed(path, e))?;
        transaction.open_table(OBJECTS).map_err(|e| failed(path, e))?;
    }
    transaction.commit().map_err(|e| failed(path, e))?;
    drop(database);
    let directory = path.parent().unwrap_or(Path::new("/"));
    std::fs::rename(&new, path)
        .and_then(|()| points::fsync(|| File::open(directory)?.sync_all()))
        .doing(beginning())
}

fn busy(path: &Path) -> Error {
    Error::new(ErrorKind::Busy, format!("{} is in use by another host: stop that one first", path.display()))
}

/// What an error of redb means to us.
pub fn failed(path: &Path, error: impl Into<redb::Error>) -> Error {
    let at = path.display();
    match error.into() {
        redb::Error::DatabaseAlreadyOpen => busy(path),
        redb::Error::UpgradeRequired(format) => Error::new(
            ErrorKind::Version,
            format!(
                "{at} has file format {format}, which this program does not read: use the one that wrote it"
            ),
        ),
        redb::Error::Io(error)
            if matches!(error.kind(), IoKind::InvalidData | IoKind::InvalidInput | IoKind::UnexpectedEof) =>
        {
            damaged(path, error)
        }
        redb::Error::Io(error) => {
            let mut failure = Error::io(at, &error);
            if failure.kind == ErrorKind::NoSpace {
                failure.message += "; nothing was changed: free disk space, then try again";
            }
            failure
        }
        redb::Error::PreviousIo => Error::new(
            ErrorKind::Io,
            format!("{at}: an earlier write failed; nothing was changed: try again"),
        ),
        other => damaged(path, other),
    }
}

pub fn damaged(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "{} is damaged ({what}): restore it from a copy. To begin anew, move it elsewhere, and with it the folders \
             journal, spill, live and replicas: files of users are untouched, but their objects' names are gone",
            path.display()
        ),
    )
}
