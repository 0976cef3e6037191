//! After host and keeper died at once: the clients that live on have everything, and come back with it.
//!
//! `live/clients` ([`clients`]) names the processes that had objects which only they could bring back. The next host
//! waits for those that still live ([`Returning`](super::expecting::Returning)) before anybody else may use their
//! objects: a second set of frames beside the first would be two truths. A process that lives but does not come
//! (stopped, say) keeps its objects busy, with an error that names it, for as long as it lives.

use super::clients;
use super::object::Object;
use super::session::Session;
use super::{Host, lock, tables};
use crate::shared::insist;
use commonhold_object::error::Doing;
use commonhold_object::{Access, Error, ErrorKind, ObjectId, PageRange, PagerKind, Result, SessionId};
use commonhold_sys::plain;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long the control thread may take until it notices that a connection is over.
const FAREWELL: Duration = Duration::from_secs(1);

/// How long a fault thread is at most at the faults that it took at once, by far.
const UNDER_WAY: Duration = Duration::from_millis(20);

impl Host {
    /// Reads `live/clients`: whoever of them lives, and was not taken over from the keeper, is expected.
    pub(super) fn expect_clients(self: &Arc<Self>) -> Result<()> {
        let path = self.machine.directory.join("live").join("clients");
        let clients = clients::read(&path)?;
        let here: HashSet<u64> = self.sessions().iter().map(|s| s.id.0).collect();
        let away = clients.into_iter().filter(|c| !here.contains(&c.session));
        let objects = self.returning.expect(away);
        let count = self.returning.count();
        if count > 0 {
            self.repaired(format!("host and keeper had died: {count} clients are expected back"));
            for cache in objects.iter().filter_map(|id| self.object(*id).ok()?.cache()) {
                cache.set_incomplete(true);
            }
            self.machine.arm();
        }
        // Only now: it is written anew from those that are here and those that are expected.
        self.note_clients();
        self.reap();
        self.drop_lost(&self.all_objects())
    }

    /// The session says for the second time that it comes back, or goes on to something else: all it has is here.
    pub(super) fn all_brought(self: &Arc<Self>, session: &Session) {
        if !session.bringing.load(Ordering::Acquire) {
            return;
        }
        // By a host that took over meanwhile it was not told which it was.
        let former = session.former.load(Ordering::Acquire);
        let former = self.is_back(session, (former != 0).then_some(former));
        // In this order: a host that takes over in between must not wait for a session that is here already, nor take
        // one for whole that is still on its way.
        self.unlist_former(&former);
        session.bringing.store(false, Ordering::Release);
        self.keep_session(session);
        self.settle_returned();
    }

    /// What a session was before need not be waited for. Gives what is over with it.
    fn is_back(&self, session: &Session, former: Option<u64>) -> Vec<u64> {
        let has = |id| lock(&session.opened).contains_key(&id);
        self.returning.finished(session.process.pid, former, has)
    }

    /// Looks for objects whose clients are all back by now, or dead: what was put off until then may happen, and what
    /// nobody brought is lost.
    pub(super) fn settle_returned(self: &Arc<Self>) {
        if !self.returning.is_under_way() {
            return;
        }
        let known =
            |now: &[ObjectId]| -> Vec<_> { now.iter().filter_map(|id| self.object(*id).ok()).collect() };
        let begin = |now: &[ObjectId]| {
            let mut objects = known(now);
            objects.sort_by_cached_key(|object| object.record().is_elsewhere); // homes first
            objects.iter().for_each(|object| self.has_all_clients(object));
        };
        let settled = self.returning.settle(begin, |now| {
            let objects = known(now);
            for object in &objects {
                let Some(cache) = object.cache() else { continue };
                // What writers are stopped for was noted before they wrote.
                if self.returning.was_unsure_of(object.id) && !object.record().options.stops_writers() {
                    // What cannot be noted would be taken for stored.
                    insist(&cache, || cache.all_may_be_newer());
                }
                cache.set_incomplete(false);
            }
            if let Err(error) = self.drop_lost(&objects) {
                self.machine.log(format_args!("objects that nobody brought back: {error}"));
            }
        });
        for id in settled {
            if let Ok(object) = self.object(id) {
                self.free_locks(&object, None);
            }
            self.settle_object(id);
        }
    }

    /// All clients that had the object are back, with their mappings, or dead. Only now it takes part among hosts: that may
    /// change page tables, and page tables that the host does not know of would be left as they are.
    pub(super) fn has_all_clients(&self, object: &Object) {
        if object.record().options.is_wired() {
            return; // whoever waits for them may have its lock, and it has no cache
        }
        let _one_at_a_time = lock(&object.making);
        let Some(cache) = object.cache() else { return };
        if object.record().options.is_shared()
            && cache.role().is_none()
            && let Err(error) = self.take_part_anew(object, &cache)
        {
            cache.report(&error);
            cache.cannot_be_had(PageRange::new(0, u64::from(u32::MAX)), &error);
        }
    }

    /// Anonymous objects whose memory nobody can bring back are lost, all in one transaction: there may be thousands. Of
    /// others, only what was not stored.
    fn drop_lost(self: &Arc<Self>, objects: &[Arc<Object>]) -> Result<()> {
        let (objects, arenas) = (self.with_neighbours(objects), self.expected_arenas());
        let lost: Vec<ObjectId> = objects.iter().filter(|o| self.is_lost(o, &arenas)).map(|o| o.id).collect();
        if lost.is_empty() {
            return Ok(());
        }
        lock(&self.registry).forget_all(&lost)?;
        let mut known = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        lost.iter().for_each(|id| drop(known.remove(id)));
        drop(known);
        self.forget_places(&lost);
        for id in lost {
            let _ = self.cut_snapshot(id); // whose parent is settled with all others
            self.remove_files(id);
        }
        self.forget_offers_of_lost();
        Ok(())
    }

    /// `arenas`: those that are expected back.
    fn is_lost(&self, object: &Object, arenas: &HashSet<ObjectId>) -> bool {
        let record = object.record().clone();
        let present = object.descriptor().is_some() || object.cache().is_some();
        // Frames that could not be taken over this time are there still, with the keeper.
        let is_kept = object.left_frames().is_some() || !object.unusable().is_empty();
        if self.returning.expects(object.id) || is_kept || self.is_of_arena(object.id, arenas) {
            return false;
        }
        if record.options.pager != PagerKind::Anonymous {
            match record.options.is_wired() {
                true if !present => drop(self.is_in_no_arena(object.id)), // the arena goes as what is lost
                true => {}
                false => self.forget_frames(object),
            }
            return false;
        }
        // A controlled one that nobody ever used has no frames yet, and loses nothing. That it has no book does not say so:
        // somebody may have removed it.
        let has_book = self.machine.path("live", object.id).exists();
        let never_used = record.is_elsewhere || self.unused_path(object.id).exists();
        let unused = record.options.is_controlled() && !has_book && never_used;
        if present || (unused && record.boot_id == self.machine.boot_id) {
            return false;
        }
        self.repaired(format!(
            "{} was anonymous, and its memory is gone: host and keeper died, or the host while it made or removed it",
            record.label()
        ));
        true
    }

    /// A client of the host before comes back on a new connection: said before it brings what it has, and after. The
    /// number of the request tells the second time from the first that is repeated, to a host that took over before the
    /// answer.
    pub(super) fn returned(
        self: &Arc<Self>,
        session: &Session,
        former: SessionId,
        number: u64,
    ) -> Result<()> {
        let said = session.returned_by.load(Ordering::Acquire);
        if said != 0 && said != number {
            self.all_brought(session);
            // Of an attempt that was cut short it says so afterwards.
            self.unlist_former(&self.is_back(session, Some(former.0)));
            self.settle_returned();
            self.end_former(session, former);
            return Ok(());
        }
        session.returned_by.store(number, Ordering::Release);
        session.former.store(former.0, Ordering::Release);
        session.bringing.store(true, Ordering::Release);
        self.keep_session(session);
        match self.returning.arrived(former.0) {
            Some(client) if client.pid == session.process.pid => Ok(()),
            Some(client) => Err(Error::new(
                ErrorKind::Permission,
                format!("session {} belongs to process {}", former.0, client.pid),
            )),
            // It mapped nothing when the host died, or its objects are back already: nothing to wait for.
            None => Ok(()),
        }
    }

    /// Where only the connection broke, the session before is here still, with the same mappings: served twice, they would
    /// be two truths. All of it is in the new one now.
    fn end_former(self: &Arc<Self>, session: &Session, former: SessionId) {
        let former = self.sessions.read().unwrap_or_else(PoisonError::into_inner).get(&former).cloned();
        let same = |f: &Arc<Session>| {
            f.id != session.id && f.process == session.process && f.process.start_ticks != 0
        };
        let Some(former) = former.filter(same) else { return };
        // The control thread stops listening to it first.
        former.hang_up();
        let until = Instant::now() + FAREWELL;
        while !former.hung_up.load(Ordering::Acquire) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Nor do the fault threads. What they took for it before is asked for again, in the new session.
        lock(&former.tokens).drain(..).for_each(|token| self.faults.remove(token));
        std::thread::sleep(UNDER_WAY);
        self.end_session(&former);
        for _ in 0..2 {
            for region in session.space.map.read().unwrap_or_else(PoisonError::into_inner).iter() {
                let _ = region.value.mapping.uffd.wake(region.address, region.length);
            }
            std::thread::sleep(UNDER_WAY);
        }
    }

    /// It brings an object's frames (or a direct anonymous object's memory).
    pub(super) fn reattach(
        self: &Arc<Self>,
        session: &Session,
        id: ObjectId,
        access: Access,
        fds: Vec<OwnedFd>,
    ) -> Result<()> {
        let object = self.object(id)?;
        let wanted = commonhold_object::Ownership::wanted(access);
        if !object.record().ownership.allows(&session.credentials, wanted) {
            return Err(Error::new(ErrorKind::Permission, "the object's mode does not allow this any more"));
        }
        if access.writes() && object.record().options.read_only {
            return Err(Error::new(ErrorKind::Permission, "the object is a snapshot that nobody writes to"));
        }
        // Who writes was given a descriptor that writes. Who was sent the object to read was not, whatever its mode is.
        if access.writes() && fds.first().is_some_and(is_for_reading) {
            let what = "what came with the object is open for reading: it does not come back for writing";
            return Err(Error::new(ErrorKind::Permission, what));
        }
        // Several clients may bring the same object at once.
        let one_at_a_time = self.returning.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let mut frames = fds.into_iter().next();
        if object.is_controlled() {
            let frames = frames
                .take()
                .ok_or_else(|| Error::new(ErrorKind::Protocol, "no frames came with the object"))?;
            self.reattach_frames(session, &object, own_frames(frames)?)?;
        }
        let memory_missing = object.is_with_clients() && object.descriptor().is_none();
        self.check_may_bring(&object, memory_missing, frames.as_ref())?;
        if !object.is_controlled() && !memory_missing {
            self.check_had(session, &object, access, frames.as_ref())?;
        }
        if !object.is_controlled() && memory_missing {
            let memory =
                frames.ok_or_else(|| Error::new(ErrorKind::Protocol, "no memory came with the object"))?;
            let options = object.record().options.clone();
            match self.place_in_arena(id) {
                Some(place) => self.return_arena(place, memory)?,
                None => {
                    let memory = match options.shares_tables() {
                        true => tables::own_segment(&options, memory)?,
                        false => own_frames(memory)?,
                    };
                    object.set_descriptor(Arc::new(self.own_memory(id, memory)?));
                    self.hold_tables(&object);
                    self.keep_object(&object);
                    self.share_memory(&object)?; // it may be an arena
                }
            }
            self.repaired(format!("process {} brought object {} back", session.process.pid, id.0));
        }
        drop(one_at_a_time);
        // Who comes back hears next where a wired object lies, and relies on it: not while that moves. Who is expected back, and
        // may be waited for by who has the lock, does not wait; what such a client has does not move.
        let may_move = object.record().options.is_wired() && !session.bringing.load(Ordering::Acquire);
        let _lies_still = may_move.then(|| lock(&object.making));
        let before = lock(&session.opened).insert(id, access);
        if before.is_none() {
            object.opens.fetch_add(1, Ordering::AcqRel);
        }
        self.keep_session(session);
        self.note_client(session, id);
        if let Err(error) = self.begins_to_use(session, &object, access) {
            // It is back all the same: what it had mapped goes on.
            let (object, pid) = (id.0, session.process.pid);
            self.machine
                .log(format_args!("object {object}: its home was not told of process {pid}: {error}"));
        }
        Ok(())
    }
}

impl Host {
    /// Who comes back with a direct object has its memory, or could open it by its name. Its number alone anybody can guess.
    fn check_had(
        &self,
        session: &Session,
        object: &Object,
        access: Access,
        brought: Option<&OwnedFd>,
    ) -> Result<()> {
        let me = rustix::process::geteuid().as_raw();
        // Another file may not answer when it is asked.
        let is_ours = |fd: &&OwnedFd| {
            [plain::is_made_by(fd, me, "commonhold-"), plain::is_huge_made_by(fd, me, "commonhold-")]
                .iter()
                .any(|made| matches!(made, Ok(true)))
        };
        let file = |fd: &OwnedFd| rustix::fs::fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino));
        let is_memory = {
            let record = object.record();
            record.options.pager == PagerKind::Anonymous || record.options.is_fetched()
        };
        let memory = object.descriptor().filter(|_| is_memory);
        let is_it =
            |brought| memory.is_some_and(|memory| file(&memory).is_some_and(|it| Some(it) == brought));
        if brought.filter(is_ours).is_some_and(|brought| is_it(file(brought))) {
            return Ok(());
        }
        let record = object.record().clone();
        match record.name {
            _ if record.ownership.uid == session.credentials.uid => Ok(()),
            Some(name) => lock(&self.registry).lookup(&name, &session.credentials, access).map(drop),
            None => Err(Error::new(ErrorKind::Permission, "this is not the memory that the object has")),
        }
    }

    /// Frames come back, or are the ones that another client brought before.
    fn reattach_frames(&self, session: &Session, object: &Arc<Object>, frames: OwnedFd) -> Result<()> {
        let making = lock(&object.making);
        let cache = object.cache();
        let known = cache.as_ref().map(|cache| cache.frames.clone()).or_else(|| object.left_frames());
        let inode =
            |fd: &OwnedFd| rustix::fs::fstat(fd).map_err(std::io::Error::from).doing("looking at frames");
        if let Some(known) = &known
            && inode(known)?.st_ino != inode(&frames)?.st_ino
        {
            let what = "the object has other frames by now: what this process had mapped is lost";
            return Err(Error::new(ErrorKind::Lost, what));
        }
        if cache.is_some() {
            return Ok(());
        }
        // Of frames that this host's keeper has it also has what an eviction was about to take.
        let takes_over = known.is_some();
        self.adopt_cache(object, known.unwrap_or_else(|| Arc::new(frames)), takes_over)?;
        drop(making);
        if !self.returning.expects(object.id) {
            self.has_all_clients(object);
        }
        self.repaired(format!("process {} brought object {} back", session.process.pid, object.id.0));
        Ok(())
    }
}

/// Whether an anonymous controlled object was ever used: until it is, `live/<id>.unused` says so.
impl Host {
    fn unused_path(&self, id: ObjectId) -> std::path::PathBuf {
        self.machine.path("live", id).with_extension("unused")
    }

    /// Said before the object has a name.
    pub(super) fn note_unused(&self, id: ObjectId) -> Result<()> {
        std::fs::write(self.unused_path(id), []).doing("noting that the object was never used")
    }

    /// Said when the object's book is there, and its frames are kept; also of objects that are no such ones.
    pub(super) fn note_used(&self, id: ObjectId) {
        match std::fs::remove_file(self.unused_path(id)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                self.machine.log(format_args!("object {}: noting that it is used: {error}", id.0));
            }
            _ => {}
        }
    }
}

/// Which memory was a direct anonymous object's, for `live/<id>.direct`: boot and inode.
#[derive(Serialize, Deserialize)]
pub(super) struct Memory {
    pub(super) boot_id: String,
    pub(super) inode: u64,
}

impl Host {
    fn memory_path(&self, id: ObjectId) -> std::path::PathBuf {
        self.machine.directory.join("live").join(format!("{}.direct", id.0))
    }

    /// Writes down which memory is the direct object's.
    pub(super) fn note_memory(&self, id: ObjectId, fd: &OwnedFd) -> Result<()> {
        let inode = rustix::fs::fstat(fd).map_err(std::io::Error::from).doing("looking at memory")?.st_ino;
        let bytes = postcard::to_stdvec(&Memory { boot_id: self.machine.boot_id.clone(), inode });
        std::fs::write(self.memory_path(id), bytes.unwrap_or_default()).doing("noting the object's memory")
    }

    /// Memory that came back is the object's own, not another's that its bringer may write to.
    pub(super) fn own_memory(&self, id: ObjectId, fd: OwnedFd) -> Result<OwnedFd> {
        let bytes = std::fs::read(self.memory_path(id)).unwrap_or_default();
        let noted = postcard::from_bytes::<Memory>(&bytes).ok().filter(|m| m.boot_id == self.machine.boot_id);
        let inode = rustix::fs::fstat(&fd).map_err(std::io::Error::from).doing("looking at memory")?.st_ino;
        if noted.is_some_and(|memory| memory.inode == inode) {
            return Ok(fd);
        }
        Err(Error::new(ErrorKind::Permission, "this is not the memory that the object had"))
    }
}

/// Frames must be a memfd that a host of this user made: nobody else's memory becomes an object. A reader's
/// descriptor is opened again for writing, which the maker may.
fn own_frames(fd: OwnedFd) -> Result<OwnedFd> {
    let me = rustix::process::geteuid().as_raw();
    // An error: it is not even memory.
    if !plain::is_made_by(&fd, me, "commonhold-").unwrap_or(false) {
        return Err(Error::new(ErrorKind::Permission, "these are not frames that this host made"));
    }
    open_for_writing(fd)
}

/// Whether nobody writes by that descriptor. Its kernel object is not asked.
fn is_for_reading(fd: &OwnedFd) -> bool {
    use rustix::fs::OFlags;
    rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDONLY)
}

/// A reader's descriptor, for its maker.
pub(super) fn open_for_writing(fd: OwnedFd) -> Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::open(path.as_str(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(std::io::Error::from)
        .doing("opening frames for writing")
}
