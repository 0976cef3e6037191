//! `meta.redb`: the tables, their version, and how records become bytes.
//!
//! redb rather than SQLite: the registry needs ordered keys and atomic transactions and no query language, and a
//! Rust library brings no C into the process that root runs.

use crate::record::ObjectRecord;
use commonhold_object::{Error, ErrorKind, Name, ObjectId, Ownership, Result};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use std::path::{Path, PathBuf};

/// Version of the tables and of the records in them.
const VERSION: u64 = 1;
const FORMAT: TableDefinition<'_, &str, u64> = TableDefinition::new("format");
const OBJECTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("objects");
const DIRECTORIES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("directories");

pub struct Store {
    database: Database,
    path: PathBuf,
}

/// One transaction: all of it, or nothing.
pub struct Change<'s> {
    transaction: WriteTransaction,
    store: &'s Store,
}

impl Store {
    pub fn open(path: &Path) -> Result<Store> {
        let database = Database::create(path).map_err(|e| match e {
            redb::DatabaseError::DatabaseAlreadyOpen => Error::new(
                ErrorKind::Busy,
                format!("{} is in use by another host: stop that one first", path.display()),
            ),
            redb::DatabaseError::UpgradeRequired(version) => Error::new(
                ErrorKind::Version,
                format!(
                    "{} has file format {version}, which this version does not read: install a newer one",
                    path.display()
                ),
            ),
            other => damaged(path, &other),
        })?;
        let store = Store { database, path: path.to_owned() };
        match store.version()? {
            Some(VERSION) => {}
            None => store.begin()?,
            Some(found) => {
                return Err(Error::new(
                    ErrorKind::Version,
                    format!(
                        "{} was written by a newer Commonhold (version {found} of the state, this program knows \
                         {VERSION}): upgrade this program; nothing was changed",
                        path.display()
                    ),
                ));
            }
        }
        Ok(store)
    }

    fn failed(&self, error: impl std::fmt::Display) -> Error {
        damaged(&self.path, error)
    }

    fn version(&self) -> Result<Option<u64>> {
        let transaction = self.database.begin_read().map_err(|e| self.failed(e))?;
        match transaction.open_table(FORMAT) {
            Ok(table) => Ok(table.get("version").map_err(|e| self.failed(e))?.map(|v| v.value())),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
            Err(e) => Err(self.failed(e)),
        }
    }

    /// An empty state: a root directory that everybody may use, as /tmp.
    fn begin(&self) -> Result<()> {
        let owner = std::fs::metadata(&self.path).map_err(|e| Error::io("looking at the state", &e))?;
        let (uid, gid) =
            (std::os::unix::fs::MetadataExt::uid(&owner), std::os::unix::fs::MetadataExt::gid(&owner));
        let mut change = self.change()?;
        change.put_directory(&Name::directory("/")?, &Ownership { uid, gid, mode: 0o777 })?;
        {
            let mut table = change.transaction.open_table(FORMAT).map_err(|e| self.failed(e))?;
            table.insert("version", VERSION).map_err(|e| self.failed(e))?;
            table.insert("next_object", 1).map_err(|e| self.failed(e))?;
            change.transaction.open_table(OBJECTS).map_err(|e| self.failed(e))?;
        }
        change.commit()
    }

    pub fn records(&self) -> Result<Vec<ObjectRecord>> {
        let transaction = self.database.begin_read().map_err(|e| self.failed(e))?;
        let table = transaction.open_table(OBJECTS).map_err(|e| self.failed(e))?;
        let mut records = Vec::new();
        for row in table.iter().map_err(|e| self.failed(e))? {
            let (id, bytes) = row.map_err(|e| self.failed(e))?;
            let record = postcard::from_bytes(bytes.value());
            records.push(record.map_err(|e| self.failed(format!("object {}: {e}", id.value())))?);
        }
        Ok(records)
    }

    pub fn directories(&self) -> Result<Vec<(Name, Ownership)>> {
        let transaction = self.database.begin_read().map_err(|e| self.failed(e))?;
        let table = transaction.open_table(DIRECTORIES).map_err(|e| self.failed(e))?;
        let mut found = Vec::new();
        for row in table.iter().map_err(|e| self.failed(e))? {
            let (name, bytes) = row.map_err(|e| self.failed(e))?;
            let ownership = postcard::from_bytes(bytes.value()).map_err(|e| self.failed(e))?;
            found.push((Name::directory(name.value())?, ownership));
        }
        Ok(found)
    }

    pub fn next_object(&self) -> Result<ObjectId> {
        let change = self.change()?;
        let id = {
            let mut table = change.transaction.open_table(FORMAT).map_err(|e| self.failed(e))?;
            let id = table.get("next_object").map_err(|e| self.failed(e))?.map_or(1, |v| v.value());
            table.insert("next_object", id + 1).map_err(|e| self.failed(e))?;
            id
        };
        // Not durable by itself: it becomes so with the commit of the object that uses the number, and a number
        // that no durable object has may be given again.
        let mut transaction = change.transaction;
        transaction.set_durability(redb::Durability::None).map_err(|e| self.failed(e))?;
        transaction.commit().map_err(|e| self.failed(e))?;
        Ok(ObjectId(id))
    }

    pub fn change(&self) -> Result<Change<'_>> {
        let transaction = self.database.begin_write().map_err(|e| self.failed(e))?;
        Ok(Change { transaction, store: self })
    }
}

impl Change<'_> {
    pub fn put_record(&mut self, record: &ObjectRecord) -> Result<()> {
        let bytes = postcard::to_stdvec(record).map_err(|e| self.store.failed(e))?;
        let mut table = self.transaction.open_table(OBJECTS).map_err(|e| self.store.failed(e))?;
        table.insert(record.id.0, bytes.as_slice()).map_err(|e| self.store.failed(e))?;
        Ok(())
    }

    pub fn remove_record(&mut self, id: ObjectId) -> Result<()> {
        let mut table = self.transaction.open_table(OBJECTS).map_err(|e| self.store.failed(e))?;
        table.remove(id.0).map_err(|e| self.store.failed(e))?;
        Ok(())
    }

    pub fn put_directory(&mut self, name: &Name, ownership: &Ownership) -> Result<()> {
        let bytes = postcard::to_stdvec(ownership).map_err(|e| self.store.failed(e))?;
        let mut table = self.transaction.open_table(DIRECTORIES).map_err(|e| self.store.failed(e))?;
        table.insert(name.as_str(), bytes.as_slice()).map_err(|e| self.store.failed(e))?;
        Ok(())
    }

    pub fn remove_directory(&mut self, name: &Name) -> Result<()> {
        let mut table = self.transaction.open_table(DIRECTORIES).map_err(|e| self.store.failed(e))?;
        table.remove(name.as_str()).map_err(|e| self.store.failed(e))?;
        Ok(())
    }

    /// Durable when this returns; after an error, nothing of it has happened.
    pub fn commit(self) -> Result<()> {
        self.transaction.commit().map_err(|e| self.store.failed(e))
    }
}

fn damaged(path: &Path, error: impl std::fmt::Display) -> Error {
    let text = error.to_string();
    let kind = if text.contains("No space left") { ErrorKind::NoSpace } else { ErrorKind::Corrupt };
    let advice = match kind {
        ErrorKind::NoSpace => "free disk space, then try again",
        _ => {
            "put a copy of it aside; without it the files of objects are untouched, but their names are gone"
        }
    };
    Error::new(kind, format!("{}: {text}; {advice}", path.display()))
}
