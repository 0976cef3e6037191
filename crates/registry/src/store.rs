//! `meta.redb`: the tables, their version, and how records become bytes.
//!
//! redb rather than SQLite: the registry needs ordered keys and atomic transactions and no query language, and a
//! Rust library brings no C into the process that root runs.

use crate::open::{self, Contents};
use crate::record::ObjectRecord;
use commonhold_object::{Error, ErrorKind, Name, ObjectId, Ownership, Result};
use redb::{Database, TableDefinition, WriteTransaction};
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// Version of the tables and of the records in them.
pub const VERSION: u64 = 1;
pub const FORMAT: TableDefinition<'_, &str, u64> = TableDefinition::new("format");
pub const OBJECTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("objects");
pub const DIRECTORIES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("directories");

pub struct Store {
    /// `None` after it could not be opened again.
    database: Option<Database>,
    path: PathBuf,
    /// The number of the next object. Written with each object; a number that no stored object has may be given again.
    next_object: u64,
    /// From where on addresses are looked for, if any were given. Written with each object, too.
    next_fixed: Option<u64>,
    /// A write failed: redb does nothing more until it is opened again, and the file may hold what we called failed.
    broken: Cell<bool>,
}

/// One transaction: all of it, or nothing.
pub struct Change<'s> {
    transaction: WriteTransaction,
    store: &'s Store,
}

impl Store {
    pub fn open(path: &Path) -> Result<(Store, Contents)> {
        let (database, contents) = open::open(path)?;
        let Contents { next_object, next_fixed, .. } = contents;
        let (path, broken) = (path.to_owned(), Cell::new(false));
        let store = Store { database: Some(database), path, next_object, next_fixed, broken };
        Ok((store, contents))
    }

    pub fn is_broken(&self) -> bool {
        self.broken.get()
    }

    /// Opens the file again after a failure; gives what it holds.
    pub fn reopen(&mut self) -> Result<Contents> {
        self.database = None;
        let (database, contents) = open::open(&self.path)?;
        self.database = Some(database);
        self.broken.set(false);
        Ok(contents)
    }

    fn failed(&self, error: impl Into<redb::Error>) -> Error {
        self.broken.set(true);
        open::failed(&self.path, error)
    }

    pub fn next_object(&mut self) -> ObjectId {
        self.next_object += 1;
        ObjectId(self.next_object - 1)
    }

    /// From where on addresses are looked for.
    pub fn looks_from(&self) -> Option<u64> {
        self.next_fixed
    }

    /// The same from now on.
    pub fn look_from(&mut self, next: u64) {
        self.next_fixed = Some(next);
    }

    /// That number is an object's, which the file does not know.
    pub fn is_past(&mut self, id: ObjectId) {
        self.next_object = self.next_object.max(id.0.saturating_add(1));
    }

    pub fn change(&self) -> Result<Change<'_>> {
        let closed = || Error::new(ErrorKind::Io, format!("{} is not open: try again", self.path.display()));
        let database = self.database.as_ref().ok_or_else(closed)?;
        let transaction = database.begin_write().map_err(|e| self.failed(e))?;
        Ok(Change { transaction, store: self })
    }
}

impl Change<'_> {
    pub fn put_record(&mut self, record: &ObjectRecord) -> Result<()> {
        let bytes = postcard::to_stdvec(record)
            .map_err(|e| Error::invalid(format!("the record of an object: {e}")))?;
        let mut table = self.transaction.open_table(OBJECTS).map_err(|e| self.store.failed(e))?;
        table.insert(record.id.0, bytes.as_slice()).map_err(|e| self.store.failed(e))?;
        Ok(())
    }

    /// Notes which numbers objects were given.
    pub fn put_next_object(&mut self) -> Result<()> {
        let mut table = self.transaction.open_table(FORMAT).map_err(|e| self.store.failed(e))?;
        table.insert("next_object", self.store.next_object).map_err(|e| self.store.failed(e))?;
        if let Some(next) = self.store.next_fixed {
            table.insert("next_fixed", next).map_err(|e| self.store.failed(e))?;
        }
        Ok(())
    }

    pub fn remove_record(&mut self, id: ObjectId) -> Result<()> {
        let mut table = self.transaction.open_table(OBJECTS).map_err(|e| self.store.failed(e))?;
        table.remove(id.0).map_err(|e| self.store.failed(e))?;
        Ok(())
    }

    pub fn put_directory(&mut self, name: &Name, ownership: &Ownership) -> Result<()> {
        let bytes = postcard::to_stdvec(ownership)
            .map_err(|e| Error::invalid(format!("the owner of {name}: {e}")))?;
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
