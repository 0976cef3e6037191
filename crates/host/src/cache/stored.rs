//! The stored object of an atomic one, and the journal that makes it whole after a crash.

use super::Cache;
use crate::machine::Machine;
use crate::pagers::Pager;
use crate::spill::check_room;
use commonhold_journal::{FileStorage, Journal, Options, Storage, Uuid};
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, ObjectId, PAGE_SIZE_BYTES, Result, pages_of};
use commonhold_points as points;
use roaring::RoaringBitmap;
use std::fs::File;
use std::path::PathBuf;

/// Where the bytes of a journal file are: in the state directory, or on a simulated disk.
pub type JournalStorage = Box<dyn Storage + Send>;

impl Cache {
    /// Refuses a sync whose journal record would take what others need of the disk. Nothing is lost: the pages stay.
    pub(super) fn check_journal_room(&self, pages: &RoaringBitmap) -> Result<()> {
        if pages.is_empty() || !self.machine.is_ordinary(self.traits.uid) {
            return Ok(());
        }
        check_room(&self.machine.directory, pages.len() * PAGE_SIZE_BYTES)
    }
}

/// Opens (or begins) the journal of an object in the state directory, and redoes what it holds.
pub fn open_journal(
    machine: &Machine,
    id: ObjectId,
    uuid: u128,
    size_bytes: u64,
    pager: &dyn Pager,
) -> Result<Journal<JournalStorage>> {
    let folder = machine.directory.join("journal");
    let paths = machine.journal_paths(id);
    let storages = [open(&paths[0])?, open(&paths[1])?];
    // The names must be as durable as what will be written under them.
    File::open(&folder)
        .and_then(|f| points::fsync(|| f.sync_all()))
        .doing("flushing the journal's folder")?;
    recover(machine, id, uuid, size_bytes, pager, storages, options(size_bytes))
}

/// Opens (or begins) the journal in `storages`, and redoes what it holds into the stored object: when this returns the
/// stored object is what the last sync made it.
pub fn recover(
    machine: &Machine,
    id: ObjectId,
    uuid: u128,
    size_bytes: u64,
    pager: &dyn Pager,
    storages: [JournalStorage; 2],
    options: Options,
) -> Result<Journal<JournalStorage>> {
    let (mut journal, found) = Journal::open(Uuid(uuid.to_be_bytes()), storages, options).map_err(|e| {
        let kind = match &e {
            full if full.is_no_space() => ErrorKind::NoSpace,
            commonhold_journal::Error::Io { .. } => ErrorKind::Io, // of what is in it that says nothing
            _ => ErrorKind::Corrupt,
        };
        let folder = machine.directory.join("journal");
        Error::new(kind, format!("journal of object {} in {}: {e}", id.0, folder.display()))
    })?;
    if let Some(torn) = found.torn {
        machine.log(format_args!("object {}: dropped a sync that was never acknowledged ({torn:?})", id.0));
    }
    if found.records > 0 {
        journal
            .replay_runs(|page, bytes| redo(pager, page, bytes, size_bytes))
            .map_err(|e| Error::new(ErrorKind::Io, format!("redoing the journal: {e}")))?;
        pager.flush()?;
        machine.log(format_args!(
            "object {}: redid {} syncs ({} pages) from the journal",
            id.0, found.records, found.pages
        ));
    }
    journal.finish_recovery().map_err(|e| of_journal(&e))?;
    Ok(journal)
}

/// Writes one run of a record into the stored object, as far as the object (which may have shrunk since) reaches.
pub fn redo(pager: &dyn Pager, first: u32, bytes: &[u8], size_bytes: u64) -> Result<()> {
    let offset = u64::from(first) * PAGE_SIZE_BYTES;
    let end = pages_of(size_bytes) * PAGE_SIZE_BYTES;
    let length = end.saturating_sub(offset).min(bytes.len() as u64) as usize;
    if length == 0 { Ok(()) } else { pager.page_out_stored(offset, &bytes[..length]) }
}

/// Says of a journal's failure what it means for the sync.
pub fn of_journal(error: &commonhold_journal::Error) -> Error {
    let kind = if error.is_no_space() { ErrorKind::NoSpace } else { ErrorKind::Io };
    Error::new(kind, format!("journal: {error}; nothing was stored, everything is kept in memory: try again"))
}

fn open(path: &PathBuf) -> Result<JournalStorage> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
    file.map(|file| Box::new(FileStorage::new(file)) as JournalStorage)
        .doing(format!("opening the journal {}", path.display()))
}

/// Space for several syncs of the whole object, or a few of a large one; overwriting space that is there already makes
/// a flush cheaper than growing.
fn options(size_bytes: u64) -> Options {
    let reserve_bytes = (size_bytes * 2).clamp(1 << 20, 32 << 20);
    Options { reserve_bytes, grow_bytes: 8 << 20, checkpoint_bytes: reserve_bytes / 8 * 7, salt: None }
}
