//! An object as the host knows it: its record, its descriptors, and (controlled, in use) its cache.

use super::channels::Writers;
use crate::cache::Cache;
use crate::workers::ObjectThreads;
use commonhold_object::{Access, Error, ErrorKind, ObjectId, PagerKind, Result};
use commonhold_registry::ObjectRecord;
use commonhold_tables::Segment;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

#[derive(Default)]
struct Life {
    uses: u64,
    ended: bool,
}

/// While it lives, the object does not end: whoever makes a cache for it, or opens it, holds one.
pub struct Use<'o>(&'o Object);

impl Drop for Use<'_> {
    fn drop(&mut self) {
        self.0.life().uses -= 1;
    }
}

/// One object.
pub struct Object {
    /// Identity.
    pub id: ObjectId,
    /// What the registry says of it.
    pub record: Mutex<ObjectRecord>,
    /// The memory of a direct anonymous object, or the backing file.
    descriptor: Mutex<Option<Arc<OwnedFd>>>,
    /// The backing file of a wired one, whose memory is apart from it.
    backing: Mutex<Option<Arc<OwnedFd>>>,
    /// The threads that wait for the external pager of a wired one.
    pub pager_threads: OnceLock<Arc<ObjectThreads>>,
    /// Of one with shared page tables, those that stay.
    pub tables: Mutex<Option<Segment>>,
    /// The cache of a controlled one, from its first use on.
    pub cache: Mutex<Option<Arc<Cache>>>,
    /// Frames of the host before that could not be taken over yet.
    left: Mutex<Option<Arc<OwnedFd>>>,
    /// Held while the cache is made, which may take long; `cache` itself is never held for long.
    pub making: Mutex<()>,
    /// Its journal is to be redone.
    pub redoes: AtomicBool,
    /// One change of its size at a time.
    pub resizing: Mutex<()>,
    /// One snapshot of it at a time, from before its instant until it stands before those that are older.
    pub snapshotting: Mutex<()>,
    /// One look at once at what the ended had of it: what is freed may be taken by who comes back.
    pub freeing: Mutex<()>,
    /// Its memory is about to be cut off at its end.
    pub trimming: AtomicBool,
    /// Whether it ended, and how many requests keep it from ending meanwhile.
    life: Mutex<Life>,
    /// Sessions that have it open.
    pub opens: AtomicU64,
    /// Of a channel: who could write it so far.
    pub(super) writers: Mutex<Writers>,
    /// Of an object of another host: its loss generation, as it was told when a process here opened it last.
    pub losses_told: AtomicU64,
    /// Of an ephemeral one, how long nobody has used it.
    pub(super) lingering: super::ephemeral::Lingering,
    /// Why it cannot be used, after a reboot for example; empty if it can.
    unusable: Mutex<String>,
}

impl Object {
    /// An object from its record.
    pub fn new(record: ObjectRecord, descriptor: Option<Arc<OwnedFd>>, unusable: String) -> Arc<Object> {
        Arc::new(Object {
            id: record.id,
            record: Mutex::new(record),
            descriptor: Mutex::new(descriptor),
            backing: Mutex::default(),
            pager_threads: OnceLock::new(),
            tables: Mutex::default(),
            cache: Mutex::default(),
            left: Mutex::default(),
            making: Mutex::default(),
            redoes: AtomicBool::new(false),
            resizing: Mutex::default(),
            snapshotting: Mutex::default(),
            freeing: Mutex::default(),
            trimming: AtomicBool::new(false),
            life: Mutex::default(),
            opens: AtomicU64::new(0),
            writers: Mutex::default(),
            losses_told: AtomicU64::new(0),
            lingering: super::ephemeral::Lingering::default(),
            unusable: Mutex::new(unusable),
        })
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps it from ending; an error if it has ended. Whoever drops the last one asks whether it should end now.
    pub fn hold(&self) -> Result<Use<'_>> {
        let mut life = self.life();
        if life.ended {
            return Err(self.gone());
        }
        life.uses += 1;
        Ok(Use(self))
    }

    /// It has ended.
    pub fn gone(&self) -> Error {
        Error::new(ErrorKind::NotFound, format!("there is no object {} any more", self.id.0))
    }

    /// Ends it if it is of no use to anybody; whether it ended, which happens once.
    pub fn end_unless(&self, used: impl FnOnce() -> bool) -> bool {
        let mut life = self.life();
        if life.ended || life.uses > 0 || used() {
            return false;
        }
        life.ended = true;
        true
    }

    /// It has not ended, after all: nobody has seen that it had.
    pub fn goes_on(&self) {
        self.life().ended = false;
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.life().ended
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

    /// It has no memory for now.
    pub fn forget_descriptor(&self) {
        *self.descriptor.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The file under a wired object.
    pub fn backing(&self) -> Option<Arc<OwnedFd>> {
        self.backing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Before anybody finds it.
    pub fn set_backing(&self, file: Option<Arc<OwnedFd>>) {
        *self.backing.lock().unwrap_or_else(PoisonError::into_inner) = file;
    }

    /// Frames that are to be taken over before anything else is done with the object.
    pub fn left_frames(&self) -> Option<Arc<OwnedFd>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Those are there, or (none) they are taken over.
    pub fn leave_frames(&self, frames: Option<Arc<OwnedFd>>) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = frames;
    }

    /// Its cache, if it has one.
    pub fn cache(&self) -> Option<Arc<Cache>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It has a cache from now on.
    pub fn set_cache(&self, cache: Arc<Cache>) {
        *self.cache.lock().unwrap_or_else(PoisonError::into_inner) = Some(cache);
    }

    /// Whether its clients have what no file has.
    pub fn is_with_clients(&self) -> bool {
        let record = self.record();
        let options = &record.options;
        options.is_controlled() || options.is_wired() || options.pager == PagerKind::Anonymous
    }

    /// Whether the host serves its faults.
    pub fn is_controlled(&self) -> bool {
        self.record().options.is_controlled()
    }

    /// Why it cannot be used; empty if it can.
    pub fn unusable(&self) -> String {
        self.unusable.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It cannot be used until the host starts again.
    pub fn set_unusable(&self, why: String) {
        *self.unusable.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Refuses any use of what cannot be used.
    pub fn check_usable(&self) -> Result<()> {
        let why = self.unusable();
        if why.is_empty() { Ok(()) } else { Err(Error::new(ErrorKind::Lost, why)) }
    }

    /// Refuses what the object cannot give.
    pub fn check_access(&self, access: Access) -> Result<()> {
        self.check_usable()?;
        if access.writes() && self.record().options.read_only {
            return Err(Error::new(
                ErrorKind::Permission,
                "the object is a snapshot that nobody writes to: open it for reading, or take a writable snapshot of it",
            ));
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
