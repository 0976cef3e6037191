//! An object as the host knows it: its record, its descriptors, and (controlled, in use) its cache.

use crate::cache::Cache;
use commonhold_object::{Access, Error, ErrorKind, ObjectId, Result};
use commonhold_registry::ObjectRecord;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One object.
pub struct Object {
    /// Identity.
    pub id: ObjectId,
    /// What the registry says of it.
    pub record: Mutex<ObjectRecord>,
    /// The memory of a direct anonymous object, or the backing file.
    descriptor: Mutex<Option<Arc<OwnedFd>>>,
    /// The cache of a controlled one, from its first use on.
    pub cache: Mutex<Option<Arc<Cache>>>,
    /// Sessions that have it open.
    pub opens: AtomicU64,
    /// Mappings of a direct one, by its clients' count.
    pub direct_mappings: AtomicI64,
    /// Why it cannot be used, after a reboot for example; empty if it can.
    pub unusable: String,
}

impl Object {
    /// An object from its record.
    pub fn new(record: ObjectRecord, descriptor: Option<Arc<OwnedFd>>, unusable: String) -> Arc<Object> {
        Arc::new(Object {
            id: record.id,
            record: Mutex::new(record),
            descriptor: Mutex::new(descriptor),
            cache: Mutex::default(),
            opens: AtomicU64::new(0),
            direct_mappings: AtomicI64::new(0),
            unusable,
        })
    }

    /// The record, for a look or a change.
    pub fn record(&self) -> MutexGuard<'_, ObjectRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its memory or backing file, if it is there.
    pub fn descriptor(&self) -> Option<Arc<OwnedFd>> {
        self.descriptor.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its memory came back.
    pub fn set_descriptor(&self, fd: Arc<OwnedFd>) {
        *self.descriptor.lock().unwrap_or_else(PoisonError::into_inner) = Some(fd);
    }

    /// Its cache, if it has one.
    pub fn cache(&self) -> Option<Arc<Cache>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the host serves its faults.
    pub fn is_controlled(&self) -> bool {
        self.record().options.is_controlled()
    }

    /// Refuses what the object cannot give.
    pub fn check_access(&self, access: Access) -> Result<()> {
        if !self.unusable.is_empty() {
            return Err(Error::new(ErrorKind::Lost, self.unusable.clone()));
        }
        let read_only = self.record().file.as_ref().is_some_and(|f| f.read_only);
        if read_only && access.writes() {
            return Err(Error::new(
                ErrorKind::Permission,
                "the backing file was given to Commonhold read-only: open the object for reading, or create it again \
                 from a file opened for reading and writing",
            ));
        }
        Ok(())
    }
}
