//! Wired objects on a file or of an external pager: all pages are fetched before anybody gets them, and `sync` stores what it is
//! asked to. What a place in memory has is noted only when all of it was fetched: whoever is killed before that has changed
//! nothing, and the next host fetches it again. `docs/REAL-MEMORY.md`, "From a file or a pager".

use super::backing::{bytes_in_memory, grow_file};
use super::object::Object;
use super::session::Session;
use super::wired::{Class, gone};
use super::{Host, lock};
use crate::asker;
use crate::pagers::Pager;
use crate::workers::ObjectThreads;
use commonhold_object::error::Doing;
use commonhold_object::wire::{Reply, Request};
use commonhold_object::{
    Access, CreateOptions, Error, ErrorKind, ObjectId, PAGE_SIZE_BYTES, PageRange, PagerKind, Result, Synced,
    pages_of,
};
use commonhold_registry::ObjectRecord;
use commonhold_sys::frames;
use commonhold_wired::{OWN_MEMORY, copy};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// So many bytes are fetched or stored at a time.
const CHUNK: u64 = 1 << 20;

/// Where a chunk begins, and its whole pages.
fn chunks(first: u64, end: u64) -> impl Iterator<Item = (u64, usize)> {
    (first..end).step_by(CHUNK as usize).map(move |at| (at, CHUNK.min(end - at) as usize))
}

/// Nobody waits for the rest of what a client asked for that has gone.
fn check_wanted() -> Result<()> {
    match asker::is_wanted() {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Disconnected, "whoever wanted the object has gone")),
    }
}

/// Fills memory that nobody has yet, of an arena from an offset on, with what the pager has.
fn fetch(pager: &dyn Pager, memory: &OwnedFd, in_arena: Option<u64>, bytes: u64) -> Result<()> {
    // Pages of an arena are written through a mapping, where a hole may end the process: the kernel copies to them.
    let between = frames::create("commonhold-fetched", CHUNK).map(File::from).doing("fetching an object")?;
    let own = File::from(memory.try_clone().doing("fetching an object")?);
    let mut buffer = vec![0; CHUNK as usize];
    for (at, length) in chunks(0, pages_of(bytes) * PAGE_SIZE_BYTES) {
        check_wanted()?;
        let part = &mut buffer[..length];
        pager.page_in(at, part)?;
        let within = (bytes - at).min(length as u64) as usize;
        part[within..].fill(0);
        let written = match in_arena {
            Some(offset) => between
                .write_all_at(part, 0)
                .and_then(|()| copy(&between, 0, memory, offset + at, length as u64)),
            None => own.write_all_at(&part[..within], at),
        };
        written.doing("filling the object's memory from its pager")?;
    }
    Ok(())
}

impl Host {
    fn pager_with(
        &self,
        record: &ObjectRecord,
        file: Option<&OwnedFd>,
        stored_bytes: u64,
    ) -> Result<Box<dyn Pager>> {
        let lacks = || Error::new(ErrorKind::Lost, "the object's backing file is not open: see `stat`");
        Ok(match &record.options.pager {
            PagerKind::External { pager } => Box::new(self.external_pager(record, pager)),
            _ => Box::new(self.file_pager(record, file.ok_or_else(lacks)?, stored_bytes)?),
        })
    }

    fn pager_of_wired(&self, object: &Object) -> Result<Box<dyn Pager>> {
        let record = object.record().clone();
        self.pager_with(&record, object.backing().as_deref(), record.options.size_bytes)
    }

    /// The threads that wait for an external pager where a request may have to.
    pub(super) fn threads_of_pager(
        &self,
        session: &Session,
        request: &Request,
    ) -> Option<Arc<ObjectThreads>> {
        let waits = |options: &CreateOptions| {
            options.is_fetched() && matches!(options.pager, PagerKind::External { .. })
        };
        let threads_of = |uid| Arc::new(ObjectThreads::new(self.machine.pager_threads(uid)));
        let object = match request {
            Request::Create { options, .. } => {
                return waits(options).then(|| threads_of(session.credentials.uid));
            }
            Request::Open { name, access } => self.lookup(session, name, *access).ok()?,
            Request::Resize { name, .. } => self.lookup(session, name, Access::ReadWrite).ok()?,
            Request::Sync { object, .. }
            | Request::ResizeOpened { object, .. }
            | Request::Place { object } => self.object(*object).ok()?,
            Request::TakeOffer { channel, token } => {
                let offered = lock(&self.offers).offered(*token, *channel).ok()?;
                self.object(offered.object).ok()?
            }
            _ => return None,
        };
        let (waits, uid) = {
            let record = object.record();
            (waits(&record.options), record.charged_uid)
        };
        waits.then(|| object.pager_threads.get_or_init(|| threads_of(uid)).clone())
    }

    /// What such an object counts besides its memory: its file's space, or its file in memory.
    pub(super) fn counted_for_file(&self, object: &Object) -> u64 {
        let (options, uid) = {
            let record = object.record();
            (record.options.clone(), record.charged_uid)
        };
        self.counted_for_file_of(object, &options, uid)
    }

    fn counted_for_file_of(&self, object: &Object, options: &CreateOptions, uid: u32) -> u64 {
        if !options.is_fetched() {
            return 0;
        }
        // A file that cannot be asked takes no memory.
        let in_memory = object.backing().and_then(|file| bytes_in_memory(&*file, options.size_bytes).ok());
        self.limits.counted(uid, options, in_memory.unwrap_or(0))
    }

    /// What it counts in all when it has another size.
    pub(super) fn counted_of_size(&self, object: &Object, options: &CreateOptions) -> u64 {
        let uid = object.record().charged_uid;
        let own = object.descriptor().is_some() && self.place_in_arena(object.id).is_none();
        let own_bytes = if own && self.machine.is_ordinary(uid) { options.size_bytes } else { 0 };
        self.counted_for_file_of(object, options, uid) + own_bytes
    }

    /// Makes the memory of a new object, fetches all of it, and only then makes its file as long as it is.
    pub(super) fn make_fetched(
        self: &Arc<Self>,
        record: &ObjectRecord,
        file: Option<&Arc<OwnedFd>>,
        in_arena: bool,
    ) -> Result<Arc<OwnedFd>> {
        let bytes = record.options.size_bytes;
        let stored = file.map(|file| rustix::fs::fstat(&**file)).transpose().map_err(std::io::Error::from);
        let stored = stored.doing("looking at the backing file")?.map_or(bytes, |stat| stat.st_size as u64);
        let pager = self.pager_with(record, file.map(|file| &**file), stored.min(bytes))?;
        let memory = match in_arena {
            true => self.place_new(record, |memory, at| fetch(&*pager, memory, Some(at), bytes))?,
            false => self.make_own_memory(record, &*pager)?,
        };
        if let Some(file) = file {
            grow_file(file, &record.options, self.machine.is_ordinary(record.charged_uid))?;
        }
        Ok(memory)
    }

    /// Memory of ordinary pages, fetched.
    fn make_own_memory(&self, record: &ObjectRecord, pager: &dyn Pager) -> Result<Arc<OwnedFd>> {
        let bytes = record.options.size_bytes;
        super::status::check_memory_for(bytes)?;
        let memory = frames::create(OWN_MEMORY, bytes).doing("making memory for the object")?;
        frames::allocate(&memory, 0, bytes).doing("reserving memory for the object")?;
        fetch(pager, &memory, None, bytes)?;
        self.note_memory(record.id, &memory)?;
        Ok(Arc::new(memory))
    }

    /// Whether what its pager has is all there is of it, and nobody can bring more.
    pub(super) fn is_with_pager_alone(&self, object: &Object) -> bool {
        object.record().options.is_fetched()
            && object.descriptor().is_none()
            && self.place_in_arena(object.id).is_none()
            && !lock(&self.wired).is_on_disk(object.id)
            && !self.returning.expects(object.id)
    }

    /// The arena of such an object died with host and keeper. What is noted of its place stays: of that arena nobody knows.
    /// Gives that arena.
    pub(super) fn is_in_no_arena(&self, id: ObjectId) -> Option<ObjectId> {
        let place = self.place_in_arena(id)?;
        if self.memory_at(place).is_ok() {
            return None;
        }
        let mut wired = lock(&self.wired);
        // By now it may have been fetched to another.
        if wired.place_of(id) == Some(place) { wired.free(id) } else { None }
    }

    /// Fetches an object that has no memory: since a reboot, or since host and keeper died when nobody had it. The caller
    /// holds `making`: whoever opens it meanwhile waits.
    pub(super) fn fetch_if_missing(self: &Arc<Self>, object: &Object) -> Result<()> {
        if !object.record().options.is_fetched() || object.descriptor().is_some() {
            return Ok(());
        }
        // Who has its memory, or a neighbour's, brings it.
        if let Some(place) = self.place_in_arena(object.id) {
            self.wait_for_arena(place)?;
        }
        self.returning.wait_for(object.id)?;
        // Who was about to bring it, and died, has done so by now; from now on nobody does (`check_may_bring`).
        drop(lock(&self.returning.one_at_a_time));
        self.settle_returned();
        if let Some(arena) = self.is_in_no_arena(object.id) {
            self.settle_arena(arena); // who settles what was lost may not have seen that it was in that
        }
        match self.is_with_pager_alone(object) {
            true => self.fetch_anew(object),
            false => Ok(()),
        }
    }

    fn fetch_anew(self: &Arc<Self>, object: &Object) -> Result<()> {
        let record = object.record().clone();
        let (bytes, class) = (record.options.size_bytes, Class::of(&record).ok_or_else(gone)?);
        let pager = self.pager_of_wired(object)?;
        pager.check(bytes)?;
        let whole = pages_of(bytes) * PAGE_SIZE_BYTES;
        let placed =
            self.place_anew(object, whole, &class, whole, |to, at| fetch(&*pager, to, Some(at), bytes));
        match placed {
            Err(error) if self.takes_ordinary_pages(&record.label(), &error) => {
                self.charge(object, bytes)?;
                let made = self.make_own_memory(&record, &*pager).and_then(|memory| {
                    let _ = std::fs::remove_file(self.place_path(object.id)); // of an arena that is lost; or none
                    self.keep_new_object(object.id, Some(&memory)).map(|()| object.set_descriptor(memory))
                });
                made.inspect_err(|_| self.is_in_memory(object))
            }
            // What it had on disk before a reboot says nothing any more.
            placed => placed.map(|()| self.is_in_memory(object)),
        }
    }

    /// Who comes back brings the memory that the object has, or that it had when host and keeper died: since it was fetched
    /// anew, what anybody else has is another's.
    pub(super) fn check_may_bring(
        &self,
        object: &Object,
        is_missing: bool,
        brought: Option<&OwnedFd>,
    ) -> Result<()> {
        if !object.record().options.is_fetched() {
            return Ok(());
        }
        let file = |fd: &OwnedFd| rustix::fs::fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino));
        let has = object.descriptor().and_then(|memory| file(&memory));
        let is_it = brought.is_some_and(|brought| has.is_some() && file(brought) == has);
        if is_it || is_missing && self.returning.expects(object.id) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Lost, "the object was fetched from its pager since: open it anew"))
    }

    /// Copies bytes of an object out, wherever it is. The caller holds `making`.
    fn read_memory(&self, object: &Object, at: u64, buffer: &mut [u8]) -> Result<()> {
        let on_disk = lock(&self.wired).is_on_disk(object.id);
        let (from, offset) = match self.place_in_arena(object.id) {
            _ if on_disk => {
                let file = File::open(self.machine.path("spill", object.id));
                (Arc::new(OwnedFd::from(file.doing("reading what is on disk of the object")?)), 0)
            }
            Some(place) => (self.memory_at(place)?, place.offset_bytes),
            None => (object.descriptor().ok_or_else(gone)?, 0),
        };
        let mut done = 0;
        while done < buffer.len() {
            match rustix::io::pread(&*from, &mut buffer[done..], offset + at + done as u64) {
                Ok(0) => break, // its last page is not all its own
                Ok(count) => done += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno).doing("reading the object's memory"),
            }
        }
        buffer[done..].fill(0);
        Ok(())
    }

    /// Stores a range as it is, page after page: what ends it leaves some of them stored.
    pub(super) fn sync_wired(
        self: &Arc<Self>,
        session: &Session,
        object: &Arc<Object>,
        offset: u64,
        length: u64,
    ) -> Result<Reply> {
        if !session.access(object.id)?.writes() {
            let what = "sync changes the stored object: open it for writing";
            return Err(Error::new(ErrorKind::Permission, what));
        }
        // Where its memory is there, who else had it has the same, and is not waited for.
        if object.descriptor().is_none() {
            self.returning.wait_for(object.id)?;
        }
        let stored = object.hold().and_then(|_held| self.store_range(object, offset, length));
        self.settle_object(object.id); // its name and its last user may have gone meanwhile
        stored.map(|pages| Reply::Synced(Synced { pages, loss_generation: 0 }))
    }

    /// One at a time: what an earlier one read must not be stored over what a later one did.
    fn store_range(&self, object: &Object, offset: u64, length: u64) -> Result<u64> {
        let _one_at_a_time = lock(&object.resizing);
        let size_bytes = object.record().options.size_bytes;
        let range = PageRange::covering(offset, length, size_bytes)?;
        let pager = self.pager_of_wired(object)?;
        pager.check(size_bytes)?;
        let mut buffer = vec![0; CHUNK as usize];
        for (at, length) in chunks(range.offset_bytes(), range.end() * PAGE_SIZE_BYTES) {
            check_wanted()?;
            let part = &mut buffer[..length];
            {
                // Whoever opens it waits for the copy, and not for the pager.
                let _stays = lock(&object.making);
                self.read_memory(object, at, part)?;
            }
            pager.page_out(at, part)?;
        }
        pager.flush()?;
        Ok(range.count)
    }

    /// Refuses to let the memory of an object go that differs from what is stored.
    pub(super) fn check_stored(&self, object: &Object) -> Result<()> {
        let record = object.record().clone();
        let has_memory = object.descriptor().is_some() || lock(&self.wired).is_on_disk(object.id);
        if !record.options.is_fetched() || !has_memory || record.file.is_some_and(|file| file.read_only) {
            return Ok(());
        }
        let name = record.name.map_or_else(|| record.first_name.to_string(), |name| name.to_string());
        let refused = |what: String| {
            Error::new(ErrorKind::Busy, format!("{name} {what}: sync it, or stop with --force"))
        };
        let _one_at_a_time = lock(&object.resizing);
        let bytes = object.record().options.size_bytes;
        let cannot = |error: Error| refused(format!("cannot be compared with what is stored ({error})"));
        let pager = self.pager_of_wired(object).map_err(cannot)?;
        let [mut now, mut stored] = [0, 1].map(|_| vec![0; CHUNK as usize]);
        for (at, length) in chunks(0, pages_of(bytes) * PAGE_SIZE_BYTES) {
            let (now, stored) = (&mut now[..length], &mut stored[..length]);
            let read = {
                let _stays = lock(&object.making);
                self.read_memory(object, at, now)
            };
            read.and_then(|()| pager.page_in(at, stored)).map_err(cannot)?;
            let within = (bytes - at).min(length as u64) as usize;
            if now[..within] != stored[..within] {
                return Err(refused("has bytes that were never synced".into()));
            }
        }
        Ok(())
    }

    /// Gives an object another size, and its file. The caller holds `making`.
    pub(super) fn resize_fetched(
        self: &Arc<Self>,
        object: &Object,
        old_bytes: u64,
        options: &CreateOptions,
    ) -> Result<()> {
        let bytes = options.size_bytes;
        if bytes < old_bytes {
            self.resize_stored(object, old_bytes, options)?;
            return self.resize_in_memory(object, old_bytes, bytes);
        }
        self.resize_in_memory(object, old_bytes, bytes)?;
        self.resize_stored(object, old_bytes, options).inspect_err(|_| {
            let _ = self.resize_in_memory(object, bytes, old_bytes); // it only gets shorter
        })
    }

    fn resize_in_memory(self: &Arc<Self>, object: &Object, old_bytes: u64, bytes: u64) -> Result<()> {
        if self.place_in_arena(object.id).is_some() {
            return self.resize_wired(object, old_bytes, bytes);
        }
        let Some(memory) = object.descriptor() else { return Ok(()) }; // its pager alone has it
        let cut = |length| {
            rustix::fs::ftruncate(&*memory, length).map_err(std::io::Error::from).doing("resizing the object")
        };
        // What is new is zero: also where a mapping, or a longer memory, has more.
        cut(old_bytes.min(bytes))?;
        if bytes <= old_bytes {
            return Ok(());
        }
        super::status::check_memory_for(bytes - old_bytes)?;
        let reserved = frames::allocate(&*memory, old_bytes, bytes - old_bytes).doing("reserving memory");
        reserved.and_then(|()| cut(bytes)).inspect_err(|_| {
            let _ = cut(old_bytes); // it is longer than the object at worst
        })
    }

    fn resize_stored(&self, object: &Object, old_bytes: u64, options: &CreateOptions) -> Result<()> {
        let pager = self.pager_of_wired(object)?;
        let Some(file) = object.backing() else { return Ok(()) }; // an external pager is not told
        if options.size_bytes < old_bytes {
            return pager.resize(options.size_bytes);
        }
        pager.check(old_bytes)?;
        pager.resize(old_bytes)?; // what others wrote behind it would not be zero
        grow_file(&file, options, self.machine.is_ordinary(object.record().charged_uid))
    }
}
