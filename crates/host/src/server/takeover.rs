//! How the next host process makes a host again of what the keeper held and the state directory holds.

use super::backing::read_mounts;
use super::kept::{SavedRegion, deadline_key, object_key, session_key};
use super::object::Object;
use super::session::{SavedSession, Session};
use super::{Host, lock};
use crate::again::and_again;
use crate::cache::view::Mapping;
use crate::faults::space::Shown;
use crate::faults::stream::Stream;
use crate::set_aside::{self, Done};
use commonhold_keeper::{Kept, deadline};
use commonhold_object::error::Doing;
use commonhold_object::wire::Event;
use commonhold_object::{Error, ErrorKind, ObjectId, PAGE_SIZE_BYTES, PageRange, Region, Result, SessionId};
use commonhold_registry::ObjectRecord;
use commonhold_sys::claims::Claims;
use commonhold_sys::mounts::Mounts;
use commonhold_sys::pagemap::Pagemap;
use commonhold_sys::process::{self, Identity};
use commonhold_sys::userfaultfd::{Kind, Userfaultfd};
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

fn adopt_claims(kept: &Kept, region: &SavedRegion) -> Result<Claims> {
    let lost = || Error::new(ErrorKind::Lost, "its claim words were not kept");
    let fd = kept.fd.as_ref().ok_or_else(lost)?.try_clone().doing("taking claim words over")?;
    let claims = Claims::open(fd, region.claims_pages as usize).doing("taking claim words over")?;
    claims.take_over().doing("taking claim words over")?;
    Ok(claims)
}

/// Those whose keys begin so. All are in the order of their keys: with a thousand clients not everybody looks through
/// everybody's.
fn kept_under<'k>(kept: &'k [Kept], prefix: &'k str) -> impl Iterator<Item = &'k Kept> {
    let first = kept.partition_point(|k| k.key.0.as_str() < prefix);
    kept[first..].iter().take_while(move |k| k.key.0.starts_with(prefix))
}

impl Host {
    /// Makes objects and sessions again from what the keeper held and the state directory holds.
    ///
    /// Where the host before died while it filled a new keeper, not all was kept (`complete`): some sessions would be
    /// there by half, and pages that they wrote be taken for clean. Then none is taken over. Their sockets close, and
    /// they come back with all they have, as after the death of host and keeper. So do those that cannot be taken over now,
    /// or have open what cannot.
    pub(super) fn take_over(self: &Arc<Self>, kept: &[Kept], complete: bool) -> Result<()> {
        let by_key: HashMap<&str, &Kept> = kept.iter().map(|k| (k.key.0.as_str(), k)).collect();
        let not_yet = self.adopt_objects(&by_key)?;
        let sessions = kept.iter().filter_map(|k| {
            let id = k.key.0.strip_prefix("session/")?.strip_suffix("/socket")?.parse().ok()?;
            Some((SessionId(id), k))
        });
        if complete {
            for (id, socket) in sessions {
                if let Err(error) = self.adopt_session(id, socket, &not_yet, kept, &by_key) {
                    self.repaired(format!("session {} cannot be taken over, and begins anew: {error}", id.0));
                    self.leave_sessions(kept, &session_key(id, "").0);
                }
            }
        } else {
            self.repaired(
                "the host before died while it filled a new keeper: clients bring everything again".into(),
            );
            self.leave_sessions(kept, "session/");
        }
        self.adopt_offers()?;
        self.forget_begun(kept.iter().map(|k| &k.key));
        self.expect_clients()?;
        self.take_part_again()?;
        // Only now that every view of every object is known: a fault may evict any page.
        for session in self.sessions() {
            if let Err(error) = self.start_serving(&session) {
                let pid = session.process.pid;
                self.repaired(format!(
                    "faults of process {pid} cannot be served: {error}; it begins a new session"
                ));
                session.hang_up();
            }
        }
        let ended = kept.iter().filter(|k| k.key.0.contains(deadline::ENDED_PART));
        self.heal_ended(ended.map(|k| (&k.key, &k.blob[..])));
        let objects = self.all_objects();
        for object in objects {
            self.settle_object(object.id);
        }
        self.go_on_with_whole();
        Ok(())
    }

    /// Nothing is known of sessions whose keys begin so: their clients bring everything again.
    fn leave_sessions(&self, kept: &[Kept], prefix: &str) {
        for entry in kept_under(kept, prefix) {
            if let Some(socket) = entry.fd.clone().filter(|_| entry.key.0.ends_with("/socket")) {
                self.end_connection(socket);
            }
            self.unkeep(&entry.key);
        }
    }

    /// Gives those whose frames could not be taken over yet.
    fn adopt_objects(self: &Arc<Self>, by_key: &HashMap<&str, &Kept>) -> Result<HashSet<ObjectId>> {
        let mut not_yet = HashSet::new();
        self.adopt_nameless()?;
        let records = lock(&self.registry).records()?;
        let mounts = read_mounts()?;
        self.read_snapshots(&records);
        for record in records {
            let id = record.id;
            let kept = |part: &str| by_key.get(object_key(id, part).0.as_str()).and_then(|k| k.fd.clone());
            // The memory of a wired one is apart from its file.
            let is_fetched = record.options.is_fetched();
            let stored = kept(if is_fetched { "backing" } else { "descriptor" });
            let had_descriptor = stored.is_some();
            let (stored, unusable) = match stored {
                Some(fd) => self.adopt_descriptor(&record, fd, &mounts),
                None => self.reopen_descriptor(&record, &mounts),
            };
            let (descriptor, backing) =
                if is_fetched { (kept("descriptor"), stored) } else { (stored, None) };
            let object = Object::new(record.clone(), descriptor, unusable + &self.why_not_whole(id));
            object.set_backing(backing);
            self.hold_tables(&object);
            if !had_descriptor {
                self.keep_object(&object);
            }
            self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(id, object.clone());
            if kept("frames").is_none() {
                self.redo_journal(&object);
            }
            if let Some(memory) = kept("tokens") {
                self.adopt_words(id, memory);
            }
            if let Some(memory) = kept("handovers") {
                lock(&self.handovers).insert(id, memory);
            }
            if let Some(frames) = kept("frames")
                && let Err(error) = self.adopt_cache(&object, frames, true)
            {
                // This process says that it has nothing: no later one may say otherwise.
                lock(&self.handovers).remove(&id);
                self.unkeep(&object_key(id, "handovers"));
                self.repaired(format!("object {}: its frames could not be taken over: {error}", id.0));
                not_yet.extend(object.left_frames().map(|_| id));
            }
        }
        // Of a creation that was cut short before the object had its name.
        for key in by_key.values().map(|kept| &kept.key) {
            let id = key.0.strip_prefix("object/").and_then(|rest| rest.split('/').next()?.parse().ok());
            if id.is_some_and(|id| self.object(ObjectId(id)).is_err()) {
                self.unkeep(key);
            }
        }
        self.set_strays_aside()?;
        self.adopt_places();
        Ok(not_yet)
    }

    fn adopt_session(
        self: &Arc<Self>,
        id: SessionId,
        socket: &Kept,
        not_yet: &HashSet<ObjectId>,
        kept: &[Kept],
        by_key: &HashMap<&str, &Kept>,
    ) -> Result<()> {
        let bad = || Error::new(ErrorKind::Corrupt, "what the keeper held of it cannot be read");
        let saved: SavedSession = postcard::from_bytes(&socket.blob).map_err(|_| bad())?;
        if let Some((id, _)) = saved.opened.iter().find(|(id, _)| not_yet.contains(id)) {
            let text = format!("object {}, which it has open, is not taken over", id.0);
            return Err(Error::new(ErrorKind::Busy, text));
        }
        let fd = |part: &str| by_key.get(session_key(id, part).0.as_str()).and_then(|k| k.fd.clone());
        let process = Identity { pid: saved.pid, start_ticks: saved.start_ticks };
        let share = self.share_of(saved.credentials.uid);
        let mut session =
            Session::new(id, saved.credentials, process, socket.fd.clone().ok_or_else(bad)?, fd("pidfd"));
        session.share = share;
        session.taken_over_by = self.vault.generation();
        *lock(&session.program) = saved.program;
        // The host before may have written it down.
        session.listed.store(true, Ordering::Release);
        session.bringing.store(saved.bringing, Ordering::Release);
        session.returned_by.store(saved.returned_by, Ordering::Release);
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
            let add = || self.faults.add(session.space.clone(), uffd.clone(), session.credentials.uid);
            lock(&session.tokens).push(and_again(|_| (), add)?);
            // Also where nothing is known to be mapped: the host before may have read of a fault there.
            let _ = uffd.wake_all();
        }
        Ok(())
    }

    /// Whoever waits for a page asks again: the keeper may have read of it, and is gone.
    pub(super) fn wake_everybody(&self) {
        for session in self.sessions() {
            for uffd in session.space.descriptors.faults.iter().filter_map(|f| f.get()) {
                let _ = uffd.wake_all();
            }
        }
    }

    fn adopt_regions(self: &Arc<Self>, session: &Arc<Session>, kept: &[Kept], by_key: &HashMap<&str, &Kept>) {
        let prefix = session_key(session.id, "").0;
        for entry in kept_under(kept, &prefix) {
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
                    let uid = session.credentials.uid;
                    holds.into_iter().for_each(|pages| cache.hold_again(session.id, uid, pages));
                }
            } else if part == "pager" {
                let name = String::from_utf8_lossy(&entry.blob).into_owned();
                let socket = session.socket.clone();
                let served = self.pagers.connect(&name, session.id.0, session.credentials.uid, socket);
                session.begins_to_serve.store(served.is_ok(), Ordering::Relaxed);
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
        let kind = if object.record().options.stops_writers() {
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
            asker: session.asker.clone(),
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
            foreign: Default::default(),
        });
        let pages = PageRange::new(region.offset / PAGE_SIZE_BYTES, region.length / PAGE_SIZE_BYTES);
        cache.adopt_view(mapping.clone(), pages);
        lock(&session.noted).insert(region.object);
        if !by_key.contains_key(deadline_key(session.id, region.address).0.as_str()) {
            // Made by a host that kept no deadlines.
            self.keep_deadline(session, &mapping, region.object, region.address, region.length)?;
        }
        let value = Shown { cache, mapping };
        let region = Region { address: region.address, length: region.length, offset: region.offset, value };
        session.space.map.write().unwrap_or_else(PoisonError::into_inner).insert(region)
    }

    /// What the host before had. One of an older version took files that are none.
    fn adopt_descriptor(
        &self,
        record: &ObjectRecord,
        fd: Arc<OwnedFd>,
        mounts: &Mounts,
    ) -> (Option<Arc<OwnedFd>>, String) {
        match record.file.as_ref().map_or(Ok(()), |_| self.check_kept_backing(&fd, mounts)) {
            Ok(()) => (Some(fd), String::new()),
            Err(error) => {
                self.repaired(format!("object {}: {error}", record.id.0));
                (None, error.message)
            }
        }
    }

    /// After a reboot, or when host and keeper both died: the memory of anonymous objects is gone unless a client
    /// brings it back; a file is opened again if it is the same.
    fn reopen_descriptor(&self, record: &ObjectRecord, mounts: &Mounts) -> (Option<Arc<OwnedFd>>, String) {
        let Some(file) = &record.file else { return (None, String::new()) };
        match self.reopen_backing(record, file, mounts) {
            Ok(fd) => (Some(Arc::new(fd)), String::new()),
            Err(error) => {
                self.repaired(format!("{}: {error}", record.label()));
                (None, error.message)
            }
        }
    }

    /// Files of objects that the registry does not know: of a creation or a removal that was cut short, or of a registry
    /// that somebody put in the place of this one. They are set aside; one that cannot be stays where it is.
    fn set_strays_aside(&self) -> Result<()> {
        for folder in ["journal", "spill", "live"] {
            self.set_aside_of(folder, |path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let number = name.split('.').next().and_then(|n| n.parse().ok());
                // Notes of offers are looked at when their takers are known.
                let number = number.filter(|_| super::offers::number_of(path).is_none());
                number.is_some_and(|n| self.object(ObjectId(n)).is_err())
            })?;
        }
        // The same of objects that replicas keep: the file of a home belongs to no object under its number.
        let objects = self.all_objects();
        self.set_aside_of("replicas", |path| {
            let is_its = |object: &Arc<Object>| {
                let record = object.record();
                record
                    .file
                    .as_ref()
                    .is_some_and(|file| path == file.path || path.with_extension("") == file.path)
            };
            let is_own = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"own-"));
            is_own && !objects.iter().any(is_its)
        })
    }

    fn set_aside_of(&self, folder: &str, is_stray: impl Fn(&Path) -> bool) -> Result<()> {
        let directory = &self.machine.directory;
        let path = directory.join(folder);
        for entry in std::fs::read_dir(&path).doing(format!("reading {}", path.display()))?.flatten() {
            if !is_stray(&entry.path()) {
                continue;
            }
            let name = entry.file_name();
            let stray = format!("{folder}/{}, which belongs to no object", name.to_string_lossy());
            self.repaired(match set_aside::set_aside(directory, folder, &name) {
                Ok(Done::Removed) => format!("removed {stray} and holds nothing"),
                Ok(Done::Moved(to)) => format!("set aside {stray}: it is {}/{to} now", set_aside::SET_ASIDE),
                Err(error) => format!("{stray}, stays where it is: {error}"),
            });
        }
        Ok(())
    }

    /// Clients of the host before repeat what it did not answer.
    pub(super) fn tell_clients(&self) {
        let generation = self.vault.generation();
        for session in self.sessions() {
            session.tell(Event::HostReplaced { generation });
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
