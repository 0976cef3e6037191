//! What is kept with the keeper, and how the next host process makes a host of it again.

use super::object::Object;
use super::session::{SavedSession, Session};
use super::{Host, lock};
use crate::cache::book::Book;
use crate::cache::stored;
use crate::cache::view::Mapping;
use crate::cache::{Cache, Traits};
use crate::faults::space::Shown;
use crate::faults::stream::Stream;
use crate::live::Live;
use crate::pagers::{AnonymousPager, ExternalPager, FilePager, Pager};
use crate::spill::Spill;
use commonhold_keeper::{Kept, Key};
use commonhold_object::SyncMode;
use commonhold_object::error::Doing;
use commonhold_object::wire::{Event, MapRequest};
use commonhold_object::{
    AddressMap, Error, ErrorKind, MapFlags, MappingId, ObjectId, PAGE_SIZE_BYTES, PageRange, PagerKind,
    Protection, Region, Result, SessionId, Sharing, pages_of,
};
use commonhold_registry::ObjectRecord;
use commonhold_sys::claims::Claims;
use commonhold_sys::frames;
use commonhold_sys::pagemap::Pagemap;
use commonhold_sys::process::{self, Identity};
use commonhold_sys::userfaultfd::{Kind, Userfaultfd};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// One region of a client's address map.
#[derive(Clone, Serialize, Deserialize)]
struct SavedRegion {
    mapping: MappingId,
    object: ObjectId,
    address: u64,
    length: u64,
    offset: u64,
    protection: Protection,
    sharing: Sharing,
    flags: MapFlags,
    /// Under which address its claim words are kept: where the mapping began before parts of it went.
    claims_address: u64,
    /// The page of the first claim word, and how many there are.
    claims_first: u64,
    claims_pages: u64,
}

fn adopt_claims(kept: &Kept, region: &SavedRegion) -> Result<Claims> {
    let lost = || Error::new(ErrorKind::Lost, "its claim words were not kept");
    let fd = kept.fd.as_ref().ok_or_else(lost)?.try_clone().doing("taking claim words over")?;
    let claims = Claims::open(fd, region.claims_pages as usize).doing("taking claim words over")?;
    claims.take_over().doing("taking claim words over")?;
    Ok(claims)
}

fn session_key(id: SessionId, part: &str) -> Key {
    Key(format!("session/{}/{part}", id.0))
}

fn object_key(id: ObjectId, part: &str) -> Key {
    Key(format!("object/{}/{part}", id.0))
}

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).unwrap_or_default()
}

impl Host {
    pub(super) fn keep(&self, key: &Key, blob: &[u8], fd: Option<Arc<OwnedFd>>) {
        if let Err(error) = self.vault.put(key, blob, fd) {
            self.machine.log(format_args!("the keeper did not take {}: {error}", key.0));
        }
    }

    fn unkeep(&self, key: &Key) {
        self.vault.forget(key);
    }

    /// Keeps a session as it is now.
    pub(super) fn keep_session(&self, session: &Session) {
        // Held while the keeper is told: the last word must be the newest.
        let mut kept = lock(&session.kept);
        let saved = session.saved();
        self.keep(&session_key(session.id, "socket"), &encode(&saved), Some(session.socket.clone()));
        *kept = saved.opened.into_iter().collect();
        drop(kept);
    }

    /// Keeps a session that has opened this, unless the keeper knows that already.
    pub(super) fn keep_open(&self, session: &Session, object: ObjectId) {
        let now = lock(&session.opened).get(&object).copied();
        if lock(&session.kept).get(&object).copied() != now {
            self.keep_session(session);
        }
    }

    /// Keeps what tells that its process has ended.
    pub(super) fn keep_pidfd(&self, session: &Session) {
        if let Some(pidfd) = &session.pidfd {
            self.keep(&session_key(session.id, "pidfd"), &[], Some(pidfd.clone()));
        }
    }

    /// Keeps the descriptors through which a client's faults are served.
    pub(super) fn keep_descriptors(
        &self,
        session: &Session,
        kind: Kind,
        uffd: &Userfaultfd,
        pagemap: &Pagemap,
    ) -> Result<()> {
        let again = |fd: std::os::fd::BorrowedFd<'_>| {
            fd.try_clone_to_owned().map(Arc::new).doing("keeping a descriptor")
        };
        self.keep(
            &session_key(session.id, &format!("uffd/{}", kind.index())),
            &[],
            Some(again(uffd.as_fd())?),
        );
        self.keep(&session_key(session.id, "pagemap"), &[], Some(again(pagemap.as_fd())?));
        Ok(())
    }

    /// Keeps one region.
    pub(super) fn keep_region(&self, session: &Session, map: &MapRequest, mapping: &Mapping) {
        let saved = SavedRegion {
            mapping: map.mapping,
            object: map.object,
            address: map.address,
            length: map.length,
            offset: map.offset,
            protection: map.protection,
            sharing: map.sharing,
            flags: map.flags,
            claims_address: mapping.first_address(),
            claims_first: mapping.claims_first,
            claims_pages: mapping.claims.as_ref().map_or(0, |c| c.pages() as u64),
        };
        self.keep(&session_key(session.id, &format!("map/{:x}", map.address)), &encode(&saved), None);
        self.note_client(session, map.object);
    }

    /// Keeps the claim words of a mapping.
    pub(super) fn keep_claims(&self, session: &Session, address: u64, fd: Arc<OwnedFd>) {
        self.keep(&session_key(session.id, &format!("claims/{address:x}")), &[], Some(fd));
    }

    /// Regions went, or were cut down to others.
    pub(super) fn keep_split(&self, session: &Session, gone: &[Region<Shown>], left: &[Region<Shown>]) {
        // What is left first: a death in between must not lose it. What went with it is touched by nobody.
        for region in left {
            self.keep_region(session, &request_of(region), &region.value.mapping);
        }
        for region in gone.iter().filter(|g| !left.iter().any(|l| l.address == g.address)) {
            self.unkeep(&session_key(session.id, &format!("map/{:x}", region.address)));
        }
        let map = session.space.map.read().unwrap_or_else(PoisonError::into_inner);
        for mapping in gone.iter().map(|g| &g.value.mapping).filter(|m| m.claims.is_some()) {
            if !map.iter().any(|r| Arc::ptr_eq(&r.value.mapping, mapping)) {
                self.unkeep(&session_key(session.id, &format!("claims/{:x}", mapping.first_address())));
            }
        }
    }

    /// Keeps which pages a session holds.
    pub(super) fn keep_holds(&self, session: &Session, cache: &Cache) {
        let holds = cache.holds_of(session.id);
        let key = session_key(session.id, &format!("holds/{}", cache.id.0));
        // A blob has a limit; holds past it are not known to the next host, which then lets those pages go.
        let kept = &holds[..holds.len().min(3000)];
        if kept.is_empty() { self.unkeep(&key) } else { self.keep(&key, &encode(&kept), None) }
    }

    /// Keeps that a session serves a pager.
    pub(super) fn keep_pager(&self, session: &Session, pager: &str) {
        self.keep(&session_key(session.id, "pager"), pager.as_bytes(), None);
    }

    /// A session is over. `regions` and `objects` are those that it had.
    pub(super) fn forget_session(
        &self,
        session: &Session,
        regions: &AddressMap<Shown>,
        objects: &[ObjectId],
    ) {
        for part in ["socket", "pidfd", "pagemap", "pager", "uffd/0", "uffd/1", "uffd/2"] {
            self.unkeep(&session_key(session.id, part));
        }
        for region in regions.iter() {
            self.unkeep(&session_key(session.id, &format!("map/{:x}", region.address)));
            self.unkeep(&session_key(
                session.id,
                &format!("claims/{:x}", region.value.mapping.first_address()),
            ));
        }
        for id in objects {
            self.unkeep(&session_key(session.id, &format!("holds/{}", id.0)));
        }
        if !std::mem::take(&mut *lock(&session.noted)).is_empty() {
            self.note_clients();
        }
    }

    /// Keeps an object's memory or backing file.
    pub(super) fn keep_object(&self, object: &Object) {
        if let Some(fd) = object.descriptor() {
            self.keep(&object_key(object.id, "descriptor"), &[], Some(fd));
        }
    }

    pub(super) fn forget_object(&self, object: &Object) {
        self.unkeep(&object_key(object.id, "descriptor"));
        self.unkeep(&object_key(object.id, "frames"));
    }

    /// The cache of a controlled object, made at its first use.
    pub(super) fn cache_of(self: &Arc<Self>, object: &Arc<Object>) -> Result<Arc<Cache>> {
        self.returning.wait_for(object.id)?;
        self.settle_returned();
        self.object(object.id)?;
        object.check_usable()?;
        if let Some(cache) = object.cache() {
            return Ok(cache);
        }
        let _held = object.hold()?;
        let _one_at_a_time = lock(&object.making);
        if let Some(cache) = object.cache() {
            return Ok(cache);
        }
        if object.record().options.pager == PagerKind::Anonymous {
            let _ = std::fs::remove_file(self.machine.path("live", object.id));
        }
        let record = object.record().clone();
        let frames_bytes = pages_of(record.options.size_bytes) * PAGE_SIZE_BYTES;
        let label = format!("commonhold-frames-{}", object.id.0);
        let frames = Arc::new(frames::create(&label, frames_bytes).doing("making the object's frames")?);
        let inode =
            rustix::fs::fstat(&*frames).map_err(std::io::Error::from).doing("looking at the frames")?.st_ino;
        let path = self.machine.path("live", object.id);
        let live = Live::create(&path, &self.machine.boot_id, inode, record.options.size_bytes)?;
        let cache = self.new_cache(object, &record, frames.clone(), Book::new(live))?;
        self.keep(&object_key(object.id, "frames"), &[], Some(frames));
        object.set_cache(cache.clone());
        Ok(cache)
    }

    fn new_cache(
        &self,
        object: &Object,
        record: &ObjectRecord,
        frames: Arc<OwnedFd>,
        book: Book,
    ) -> Result<Arc<Cache>> {
        let options = &record.options;
        let limit_pages = options
            .budget_bytes
            .map_or(u64::MAX, |b| b / PAGE_SIZE_BYTES)
            .min(self.machine.budget.limit_pages());
        let traits = Traits {
            sync: options.sync,
            freezable: options.freezable,
            space_reserved: options.reserves(),
            fault_deadline_ms: options.fault_deadline_ms,
            limit_pages,
        };
        let mut spill = Spill::new(&self.machine.path("spill", object.id));
        if options.reserves() && options.pager == PagerKind::Anonymous {
            spill.reserve(pages_of(options.size_bytes) * PAGE_SIZE_BYTES)?;
        }
        let cache = Cache::new(
            self.machine.clone(),
            object.id,
            record.uuid,
            traits,
            options.size_bytes,
            frames,
            self.pager_of(object, record)?,
            book,
            spill,
        );
        self.machine.add(&cache);
        cache.recover_at_start()?;
        Ok(cache)
    }

    fn pager_of(&self, object: &Object, record: &ObjectRecord) -> Result<Box<dyn Pager>> {
        Ok(match &record.options.pager {
            PagerKind::Anonymous => Box::new(AnonymousPager),
            PagerKind::File => {
                let gone = || Error::new(ErrorKind::Lost, object.unusable());
                let fd = object.descriptor().ok_or_else(gone)?.try_clone().doing("using the backing file")?;
                Box::new(FilePager::new(fd.into(), record.options.size_bytes))
            }
            PagerKind::External { pager } => {
                let deadline =
                    Duration::from_millis(record.options.pager_deadline_ms.unwrap_or(30_000).into());
                Box::new(ExternalPager::new(
                    self.pagers.clone(),
                    pager.clone(),
                    record.ownership.uid,
                    record.first_name.to_string(),
                    deadline,
                ))
            }
        })
    }

    /// Makes objects and sessions again from what the keeper held and the state directory holds.
    ///
    /// Where the host before died while it filled a new keeper, not all was kept (`complete`): some sessions would be
    /// there by half, and pages that they wrote be taken for clean. Then none is taken over. Their sockets close, and
    /// they come back with all they have, as after the death of host and keeper.
    pub(super) fn take_over(self: &Arc<Self>, kept: &[Kept], complete: bool, pipe: &OwnedFd) -> Result<()> {
        let by_key: HashMap<&str, &Kept> = kept.iter().map(|k| (k.key.0.as_str(), k)).collect();
        self.adopt_objects(&by_key, pipe)?;
        let sessions = kept.iter().filter_map(|k| {
            let id = k.key.0.strip_prefix("session/")?.strip_suffix("/socket")?.parse().ok()?;
            Some((SessionId(id), k))
        });
        if complete {
            for (id, socket) in sessions {
                if let Err(error) = self.adopt_session(id, socket, kept, &by_key) {
                    self.repaired(format!("session {} could not be taken over: {error}", id.0));
                }
            }
        } else {
            self.repaired(
                "the host before died while it filled a new keeper: clients bring everything again".into(),
            );
            for entry in kept.iter().filter(|k| k.key.0.starts_with("session/")) {
                self.unkeep(&entry.key);
            }
        }
        self.expect_clients()?;
        // Only now that every view of every object is known: a fault may evict any page.
        for session in self.sessions() {
            if let Err(error) = self.start_serving(&session) {
                self.repaired(format!("faults of process {} are not served: {error}", session.process.pid));
            }
        }
        let objects = self.all_objects();
        for object in objects {
            self.settle_object(object.id);
        }
        Ok(())
    }

    fn adopt_objects(self: &Arc<Self>, by_key: &HashMap<&str, &Kept>, pipe: &OwnedFd) -> Result<()> {
        let records = lock(&self.registry).records()?;
        for record in records {
            let id = record.id;
            let kept = |part: &str| by_key.get(object_key(id, part).0.as_str()).and_then(|k| k.fd.clone());
            let (descriptor, unusable) = match kept("descriptor") {
                Some(fd) => (Some(fd), String::new()),
                None => self.reopen_descriptor(&record),
            };
            let had_descriptor = kept("descriptor").is_some();
            let object = Object::new(record.clone(), descriptor, unusable);
            if !had_descriptor {
                self.keep_object(&object);
            }
            self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(id, object.clone());
            if kept("frames").is_none() {
                self.redo_journal(&object);
            }
            if let Some(frames) = kept("frames")
                && let Err(error) = self.adopt_cache(&object, frames, Some(pipe))
            {
                self.repaired(format!("object {}: its frames could not be taken over: {error}", id.0));
            }
        }
        self.remove_strays()
    }

    /// Makes a stored object whole before anybody reads its file. Frames are not touched: those that clients bring back
    /// later are newer, or the same.
    pub(super) fn redo_journal(&self, object: &Object) {
        let record = object.record().clone();
        if record.options.sync != SyncMode::Atomic
            // Its pager is a process that is not connected yet: done before the first page is read.
            || matches!(record.options.pager, PagerKind::External { .. })
            || !self.machine.journal_paths(object.id).iter().any(|p| p.exists())
        {
            return;
        }
        let redone = self.pager_of(object, &record).and_then(|pager| {
            let size = record.options.size_bytes;
            stored::open_journal(&self.machine, object.id, record.uuid, size, &*pager)
        });
        if let Err(error) = redone {
            self.repaired(format!("object {}: {error}", object.id.0));
        }
    }

    /// What was known of frames that are gone is of no use any more.
    pub(super) fn forget_frames(&self, object: &Object) {
        if object.cache().is_none() {
            let _ = std::fs::remove_file(self.machine.path("live", object.id));
            let _ = std::fs::remove_file(self.machine.path("spill", object.id));
        }
    }

    /// Takes frames over whose book is in `live/<id>`. Where that fails for a reason that may pass (no memory, no
    /// descriptors), they stay with the keeper and the object cannot be used until the next host has tried: other
    /// frames in their place would lose what is in them.
    pub(super) fn adopt_cache(
        &self,
        object: &Object,
        frames: Arc<OwnedFd>,
        pipe: Option<&OwnedFd>,
    ) -> Result<Arc<Cache>> {
        let result = self.adopt_cache_now(object, frames.clone(), pipe);
        if let Err(error) = &result
            && error.kind != ErrorKind::Lost
        {
            self.keep(&object_key(object.id, "frames"), &[], Some(frames));
            object.set_unusable(format!(
                    "its pages could not be taken over from the host before, and are kept: {error}; restart the host to \
                     try again"
                ));
        }
        result
    }

    fn adopt_cache_now(
        &self,
        object: &Object,
        frames: Arc<OwnedFd>,
        pipe: Option<&OwnedFd>,
    ) -> Result<Arc<Cache>> {
        let record = object.record().clone();
        let path = self.machine.path("live", object.id);
        let found = Live::reopen(&path, &self.machine.boot_id)?;
        let inode =
            rustix::fs::fstat(&*frames).map_err(std::io::Error::from).doing("looking at frames")?.st_ino;
        let Some((live, header)) = found.filter(|(_, h)| h.frames_inode == inode) else {
            return Err(Error::new(ErrorKind::Lost, "the book of these frames is gone, or of other frames"));
        };
        if header.size_bytes != record.options.size_bytes {
            self.repaired(format!("object {}: a change of its size was cut short", object.id.0));
        }
        let unfinished = live.intent()?;
        let cache = self.new_cache(object, &record, frames.clone(), Book::recover(live)?)?;
        cache.adopt_frames()?;
        if !unfinished.is_empty() {
            cache.finish_eviction(pipe)?;
            self.machine.log(format_args!(
                "object {}: finished an eviction of {} pages",
                object.id.0,
                unfinished.len()
            ));
        }
        self.keep(&object_key(object.id, "frames"), &[], Some(frames));
        self.returning.publish(object.id, |incomplete| {
            cache.set_incomplete(incomplete);
            object.set_cache(cache.clone());
        });
        Ok(cache)
    }

    fn adopt_session(
        self: &Arc<Self>,
        id: SessionId,
        socket: &Kept,
        kept: &[Kept],
        by_key: &HashMap<&str, &Kept>,
    ) -> Result<()> {
        let bad = || Error::new(ErrorKind::Corrupt, "what the keeper held of it cannot be read");
        let saved: SavedSession = postcard::from_bytes(&socket.blob).map_err(|_| bad())?;
        let fd = |part: &str| by_key.get(session_key(id, part).0.as_str()).and_then(|k| k.fd.clone());
        let process = Identity { pid: saved.pid, start_ticks: saved.start_ticks };
        let session =
            Session::new(id, saved.credentials, process, socket.fd.clone().ok_or_else(bad)?, fd("pidfd"));
        *lock(&session.program) = saved.program;
        session.bringing.store(saved.bringing, Ordering::Release);
        let session = Arc::new(session);
        self.next_session.fetch_max(id.0 + 1, Ordering::Relaxed);
        self.sessions.write().unwrap_or_else(PoisonError::into_inner).insert(id, session.clone());
        for (object, access) in saved.opened {
            if let Ok(object) = self.object(object) {
                object.opens.fetch_add(1, Ordering::Relaxed);
                lock(&session.opened).insert(object.id, access);
                if object.is_with_clients() {
                    lock(&session.noted).insert(object.id);
                }
            }
        }
        if let Some(pagemap) = fd("pagemap") {
            let again = pagemap.try_clone().and_then(Pagemap::from_fd).doing("taking a pagemap over")?;
            session.space.descriptors.pagemap.get_or_init(|| Arc::new(again));
        }
        for kind in Kind::ALL {
            if let Some(uffd) = fd(&format!("uffd/{}", kind.index())) {
                let again =
                    Arc::new(Userfaultfd::from_fd(uffd.try_clone().doing("taking a userfaultfd over")?));
                session.space.descriptors.faults[kind.index()].get_or_init(|| again.clone());
            }
        }
        self.adopt_regions(&session, kept, by_key);
        Ok(())
    }

    /// Faults of a taken-over session are served from now on: every mapping of it is known again.
    fn start_serving(&self, session: &Arc<Session>) -> Result<()> {
        for uffd in session.space.descriptors.faults.iter().filter_map(|f| f.get()) {
            let token = self.faults.add(session.space.clone(), uffd.clone())?;
            lock(&session.tokens).push(token);
        }
        Ok(())
    }

    fn adopt_regions(self: &Arc<Self>, session: &Arc<Session>, kept: &[Kept], by_key: &HashMap<&str, &Kept>) {
        let prefix = session_key(session.id, "").0;
        for entry in kept.iter().filter(|k| k.key.0.starts_with(&prefix)) {
            let part = &entry.key.0[prefix.len()..];
            if part.starts_with("map/") {
                let region = postcard::from_bytes::<SavedRegion>(&entry.blob).ok();
                let adopted = region.as_ref().map(|r| self.adopt_region(session, r, by_key));
                if let (Some(Err(error)), Some(region)) = (adopted, &region) {
                    self.repaired(format!("a mapping of process {} was lost: {error}", session.process.pid));
                    // Whoever waits there asks again, and is told.
                    for uffd in session.space.descriptors.faults.iter().filter_map(|f| f.get()) {
                        let _ = uffd.wake(region.address, region.length);
                    }
                }
            } else if let Some(object) = part.strip_prefix("holds/") {
                let cache =
                    object.parse().ok().and_then(|id| self.object(ObjectId(id)).ok()).and_then(|o| o.cache());
                let holds: Vec<PageRange> = postcard::from_bytes(&entry.blob).unwrap_or_default();
                if let Some(cache) = cache {
                    holds.into_iter().for_each(|pages| cache.hold_again(session.id, pages));
                }
            } else if part == "pager" {
                let name = String::from_utf8_lossy(&entry.blob).into_owned();
                let socket = session.socket.clone();
                let _ = self.pagers.connect(&name, session.id.0, session.credentials.uid, socket);
            }
        }
    }

    fn adopt_region(
        &self,
        session: &Arc<Session>,
        region: &SavedRegion,
        by_key: &HashMap<&str, &Kept>,
    ) -> Result<()> {
        let object = self.object(region.object)?;
        let cache =
            object.cache().ok_or_else(|| Error::new(ErrorKind::Lost, "its object has no frames any more"))?;
        let kind = if object.record().options.freezable {
            Kind::Synchronous
        } else if region.flags.in_thread {
            Kind::InThread
        } else {
            Kind::Asynchronous
        };
        let lost = || Error::new(ErrorKind::Lost, "its descriptors were not kept");
        let held = &session.space.descriptors;
        let claims = match by_key
            .get(session_key(session.id, &format!("claims/{:x}", region.claims_address)).0.as_str())
        {
            Some(kept) if kind == Kind::InThread => Some(adopt_claims(kept, region)?),
            _ => None,
        };
        let mapping = Arc::new(Mapping {
            id: region.mapping,
            session: session.id,
            pid: session.process.pid,
            uid: session.credentials.uid,
            base: region.address.wrapping_sub(region.offset),
            protection: region.protection,
            sharing: region.sharing,
            flags: region.flags,
            kind,
            uffd: held.faults[kind.index()].get().ok_or_else(lost)?.clone(),
            pagemap: held.pagemap.get().ok_or_else(lost)?.clone(),
            claims,
            claims_first: region.claims_first,
            faults: AtomicU64::new(0),
            stream: Stream::default().into(),
            gate: Default::default(),
        });
        let pages = PageRange::new(region.offset / PAGE_SIZE_BYTES, region.length / PAGE_SIZE_BYTES);
        cache.adopt_view(mapping.clone(), pages);
        lock(&session.noted).insert(region.object);
        let value = Shown { cache, mapping };
        let region = Region { address: region.address, length: region.length, offset: region.offset, value };
        session.space.map.write().unwrap_or_else(PoisonError::into_inner).insert(region)
    }

    /// After a reboot, or when host and keeper both died: the memory of anonymous objects is gone unless a client
    /// brings it back; a file is opened again if it is the same.
    fn reopen_descriptor(&self, record: &ObjectRecord) -> (Option<Arc<OwnedFd>>, String) {
        let Some(file) = &record.file else { return (None, String::new()) };
        match super::names::reopen_backing(file) {
            Ok(fd) => (Some(Arc::new(fd)), String::new()),
            Err(error) => {
                let name = record.name.as_ref().map_or_else(String::new, |n| n.to_string());
                self.repaired(format!("{name}: {error}"));
                (None, error.message)
            }
        }
    }

    /// Files of objects that the registry does not know: left by a creation or a removal that was cut short.
    fn remove_strays(&self) -> Result<()> {
        for folder in ["journal", "spill", "live"] {
            let path = self.machine.directory.join(folder);
            for entry in std::fs::read_dir(&path).doing(format!("reading {}", path.display()))?.flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let number = name.split('.').next().and_then(|n| n.parse().ok());
                let known = number.is_none_or(|n| self.object(ObjectId(n)).is_ok());
                if !known && std::fs::remove_file(entry.path()).is_ok() {
                    self.repaired(format!("removed {folder}/{name}, which belongs to no object"));
                }
            }
        }
        Ok(())
    }

    /// Clients of the host before repeat what it did not answer.
    pub(super) fn tell_clients(&self) {
        for session in self.sessions() {
            session.tell(Event::HostReplaced);
        }
    }

    /// Deaths that happened while no host lived.
    pub fn reap(self: &Arc<Self>) {
        for session in self.sessions() {
            if session.pidfd.as_ref().is_some_and(|fd| process::has_ended(&**fd)) {
                self.end_session(&session);
            }
        }
    }
}

fn request_of(region: &Region<Shown>) -> MapRequest {
    let mapping = &region.value.mapping;
    MapRequest {
        mapping: mapping.id,
        object: region.value.cache.id,
        address: region.address,
        length: region.length,
        offset: region.offset,
        protection: mapping.protection,
        sharing: mapping.sharing,
        flags: mapping.flags,
        with_descriptors: false,
        with_claims: false,
    }
}
