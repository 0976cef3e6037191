//! What the keeper holds of sessions and objects, so that the next host process can go on with them.

use super::object::Object;
use super::session::Session;
use super::{Host, lock};
use crate::cache::Cache;
use crate::cache::view::Mapping;
use crate::faults::space::Shown;
use crate::handovers;
use commonhold_keeper::{EndedFaults, FaultDeadline, Key, deadline};
use commonhold_object::error::Doing;
use commonhold_object::wire::{Event, MapRequest};
use commonhold_object::{
    AddressMap, MapFlags, MappingId, ObjectId, Protection, Region, Result, SessionId, Sharing,
};
use commonhold_sys::pagemap::Pagemap;
use commonhold_sys::userfaultfd::{Kind, Userfaultfd};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, PoisonError};

/// One region of a client's address map.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct SavedRegion {
    pub(super) mapping: MappingId,
    pub(super) object: ObjectId,
    pub(super) address: u64,
    pub(super) length: u64,
    pub(super) offset: u64,
    pub(super) protection: Protection,
    pub(super) sharing: Sharing,
    pub(super) flags: MapFlags,
    /// Under which address its claim words are kept: where the mapping began before parts of it went.
    pub(super) claims_address: u64,
    /// The page of the first claim word, and how many there are.
    pub(super) claims_first: u64,
    pub(super) claims_pages: u64,
}

pub(super) fn session_key(id: SessionId, part: &str) -> Key {
    Key(format!("session/{}/{part}", id.0))
}

/// See [`deadline::DEADLINE_PART`].
pub(super) fn deadline_key(id: SessionId, address: u64) -> Key {
    Key(format!("session/{}{}{address:x}", id.0, deadline::DEADLINE_PART))
}

pub(super) fn object_key(id: ObjectId, part: &str) -> Key {
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

    pub(super) fn unkeep(&self, key: &Key) {
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

    /// Keeps a session that is new. An error (a limit) has kept nothing.
    pub(super) fn keep_new_session(&self, session: &Session) -> Result<()> {
        let (socket, pidfd) = (session_key(session.id, "socket"), session_key(session.id, "pidfd"));
        self.vault.put(&socket, &encode(&session.saved()), Some(session.socket.clone()))?;
        let Some(fd) = &session.pidfd else { return Ok(()) };
        self.vault.put(&pidfd, &[], Some(fd.clone())).inspect_err(|_| self.unkeep(&socket))
    }

    /// Keeps a session that has opened this, unless the keeper knows that already.
    pub(super) fn keep_open(&self, session: &Session, object: ObjectId) {
        let now = lock(&session.opened).get(&object).copied();
        if lock(&session.kept).get(&object).copied() != now {
            self.keep_session(session);
        }
    }

    /// Keeps the descriptors through which a client's faults are served. That of its page tables first: who has a
    /// userfaultfd of a kind is brought neither again.
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
        let uffd_key = session_key(session.id, &format!("uffd/{}", kind.index()));
        self.vault.put(&session_key(session.id, "pagemap"), &[], Some(again(pagemap.as_fd())?))?;
        self.vault.put(&uffd_key, &[], Some(again(uffd.as_fd())?))
    }

    /// Keeps one region. An error (a limit) has kept nothing.
    pub(super) fn keep_region(&self, session: &Session, map: &MapRequest, mapping: &Mapping) -> Result<()> {
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
        self.keep_deadline(session, mapping, map.object, map.address, map.length)?;
        let kept = self.vault.put(
            &session_key(session.id, &format!("map/{:x}", map.address)),
            &encode(&saved),
            None,
        );
        kept.inspect_err(|_| self.unkeep(&deadline_key(session.id, map.address)))?;
        self.note_client(session, map.object);
        Ok(())
    }

    /// Keeps what the keeper has to know of a region whose faults must not wait for ever: while no host serves, nobody
    /// else could end them. With in-thread service there is nothing to end: what waits is a read through another mapping.
    pub(super) fn keep_deadline(
        &self,
        session: &Session,
        mapping: &Mapping,
        object: ObjectId,
        address: u64,
        length: u64,
    ) -> Result<()> {
        let options = self.object(object).map(|o| o.record().options.fault_deadline());
        let Ok(Some(deadline_ms)) = options else { return Ok(()) };
        if mapping.kind == Kind::InThread {
            return Ok(());
        }
        let promise = FaultDeadline {
            address,
            length,
            deadline_ms,
            userfaultfd: session_key(session.id, &format!("uffd/{}", mapping.kind.index())).0,
            synchronous: mapping.kind == Kind::Synchronous,
            whose: format!("object {} in process {}", object.0, session.process.pid),
        };
        self.vault.put(&deadline_key(session.id, address), &promise.to_blob(), None)
    }

    /// Pages that the keeper gave SIGBUS while no host served: the clients drop them, so that the next touch asks anew.
    pub(super) fn heal_ended<'k>(&self, ended: impl IntoIterator<Item = (&'k Key, &'k [u8])>) {
        let mut by_session: BTreeMap<u64, EndedFaults> = BTreeMap::new();
        let mut keys = Vec::new();
        for (key, blob) in ended {
            let words = key.0.strip_prefix("session/").and_then(|rest| rest.split_once(deadline::ENDED_PART));
            let Some(id) = words.and_then(|(id, _)| id.parse().ok()) else { continue };
            keys.push(key);
            if let Some(found) = EndedFaults::from_blob(blob) {
                // Not more ranges than the client's socket takes at once.
                by_session.entry(id).or_default().add_all(&found);
            }
        }
        for (id, found) in by_session {
            let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
            let session = sessions.get(&SessionId(id)).cloned();
            drop(sessions);
            let Some(session) = session else { continue };
            for (address, length) in found.ranges {
                session.tell(Event::Heal { address, length });
            }
        }
        keys.into_iter().for_each(|key| self.unkeep(key));
    }

    /// Keeps the claim words of a mapping.
    pub(super) fn keep_claims(&self, session: &Session, address: u64, fd: Arc<OwnedFd>) -> Result<()> {
        self.vault.put(&session_key(session.id, &format!("claims/{address:x}")), &[], Some(fd))
    }

    /// A mapping came to nothing.
    pub(super) fn unkeep_claims(&self, session: &Session, address: u64) {
        self.unkeep(&session_key(session.id, &format!("claims/{address:x}")));
    }

    /// Regions went, or were cut down to others.
    pub(super) fn keep_split(&self, session: &Session, gone: &[Region<Shown>], left: &[Region<Shown>]) {
        // What is left first: a death in between must not lose it. What went with it is touched by nobody.
        for region in left {
            let kept = self.keep_region(session, &request_of(region), &region.value.mapping);
            if let Err(error) = kept {
                self.machine.log(format_args!("a part of a mapping is not kept: {error}"));
            }
        }
        for region in gone.iter().filter(|g| !left.iter().any(|l| l.address == g.address)) {
            self.unkeep(&session_key(session.id, &format!("map/{:x}", region.address)));
            self.unkeep(&deadline_key(session.id, region.address));
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
            self.unkeep(&deadline_key(session.id, region.address));
            self.unkeep(&session_key(
                session.id,
                &format!("claims/{:x}", region.value.mapping.first_address()),
            ));
        }
        for id in objects {
            self.unkeep(&session_key(session.id, &format!("holds/{}", id.0)));
        }
        self.unlist_client(session);
    }

    /// Keeps the memory or backing file of an object that is about to be made.
    pub(super) fn keep_new_object(&self, id: ObjectId, descriptor: Option<&Arc<OwnedFd>>) -> Result<()> {
        descriptor.map_or(Ok(()), |fd| self.vault.put(&object_key(id, "descriptor"), &[], Some(fd.clone())))
    }

    /// The same of the file under a wired object.
    pub(super) fn keep_backing(&self, id: ObjectId, file: Option<&Arc<OwnedFd>>) -> Result<()> {
        file.map_or(Ok(()), |fd| self.vault.put(&object_key(id, "backing"), &[], Some(fd.clone())))
    }

    /// It was not made.
    pub(super) fn unkeep_object(&self, id: ObjectId) {
        self.unkeep(&object_key(id, "descriptor"));
        self.unkeep(&object_key(id, "backing"));
    }

    /// Keeps an object's memory or backing file.
    pub(super) fn keep_object(&self, object: &Object) {
        if let Some(fd) = object.descriptor() {
            self.keep(&object_key(object.id, "descriptor"), &[], Some(fd));
        }
        if let Some(file) = object.backing() {
            self.keep(&object_key(object.id, "backing"), &[], Some(file));
        }
    }

    /// Of an object of another host that is scheduled by forwarding: what the process before this one left, or new memory.
    pub fn handovers_of(&self, id: ObjectId) -> Result<Arc<OwnedFd>> {
        let left = lock(&self.handovers).remove(&id);
        let memory = left.map_or_else(|| handovers::new_memory().map(Arc::new), Ok)?;
        // What the next host would not have must not be handed over.
        self.vault.put(&object_key(id, "handovers"), &[], Some(memory.clone()))?;
        Ok(memory)
    }

    /// Of one whose home this host becomes: what it was to know as another's sharer the next process finds until the home begins.
    pub fn leave_handovers(&self, id: ObjectId, memory: &Arc<OwnedFd>) {
        lock(&self.handovers).insert(id, memory.clone());
    }

    /// What is left of such a one.
    pub fn left_handovers(&self, id: ObjectId) -> Option<Arc<OwnedFd>> {
        lock(&self.handovers).get(&id).cloned()
    }

    /// It is of no use any more.
    pub fn drop_handovers(&self, id: ObjectId) {
        if lock(&self.handovers).remove(&id).is_some() {
            self.unkeep(&object_key(id, "handovers"));
        }
    }

    /// The same of one that is used again.
    pub fn keep_handovers(&self, id: ObjectId, memory: &Arc<OwnedFd>) {
        self.keep(&object_key(id, "handovers"), &[], Some(memory.clone()));
    }

    pub(super) fn forget_object(&self, object: &Object) {
        self.unkeep_object(object.id);
        self.unkeep_frames(object.id);
        self.unkeep(&object_key(object.id, "handovers"));
        self.leave_tokens(object);
        self.unkeep(&object_key(object.id, "tokens"));
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
