//! What the keeper holds of sessions and objects, so that the next host process can go on with them.

use super::object::Object;
use super::session::Session;
use super::{Host, lock};
use crate::cache::Cache;
use crate::cache::view::Mapping;
use crate::faults::space::Shown;
use commonhold_keeper::Key;
use commonhold_object::error::Doing;
use commonhold_object::wire::MapRequest;
use commonhold_object::{
    AddressMap, MapFlags, MappingId, ObjectId, Protection, Region, Result, SessionId, Sharing,
};
use commonhold_sys::pagemap::Pagemap;
use commonhold_sys::userfaultfd::{Kind, Userfaultfd};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
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
        lock(&session.noted).clear();
        // A process that lives on without a connection has nothing to bring: nobody must wait for it.
        if session.listed.swap(false, Ordering::AcqRel) {
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
