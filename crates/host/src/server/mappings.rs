//! Requests about mappings and pages of controlled objects.

use super::object::Object;
use super::session::Session;
use super::{Host, lock};
use crate::cache::Cache;
use crate::cache::view::Mapping;
use crate::faults::space::Shown;
use crate::faults::stream::Stream;
use commonhold_object::error::Doing;
use commonhold_object::wire::{MapRequest, Reply};
use commonhold_object::{
    Access, AddressMap, Error, ErrorKind, MappingInfo, Name, ObjectId, PAGE_SIZE_BYTES, PageRange,
    Protection, Region, Result, Sharing, limits, page_aligned,
};
use commonhold_sys::claims::Claims;
use commonhold_sys::pagemap::Pagemap;
use commonhold_sys::userfaultfd::{Kind, Modes, Userfaultfd};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

impl Host {
    /// A controlled object that the session has open, with its cache.
    fn opened(&self, session: &Session, id: ObjectId) -> Result<(Arc<Object>, Arc<Cache>, Access)> {
        let access = session.access(id)?;
        let object = self.object(id)?;
        let cache = object.cache();
        if cache.is_none() {
            object.check_usable()?;
        }
        let cache = cache.ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                "the object is direct: the host is not asked about its pages; create it with sync = ordered or \
                 atomic, or controlled, for that",
            )
        })?;
        Ok((object, cache, access))
    }

    fn opened_range(
        &self,
        session: &Session,
        id: ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<(Arc<Cache>, PageRange, Access)> {
        let (_, cache, access) = self.opened(session, id)?;
        let range = PageRange::covering(offset, length, cache.size_bytes())?;
        Ok((cache, range, access))
    }

    /// Registers a range that the client has mapped, for fault service.
    pub(super) fn map(
        self: &Arc<Self>,
        session: &Arc<Session>,
        map: MapRequest,
        repeated: bool,
        fds: Vec<OwnedFd>,
        give: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Reply> {
        let (object, cache, access) = self.opened(session, map.object)?;
        let _held = object.hold()?;
        AddressMap::<()>::check_range(map.address, map.length)?;
        page_aligned("offset", map.offset)?;
        // What is mapped already stays mapped when the object becomes shorter, and shows what it has again when it grows.
        let size_bytes = if repeated { limits::OBJECT_BYTES } else { cache.size_bytes() };
        let pages = PageRange::covering(map.offset, map.length, size_bytes)?;
        if map.protection == Protection::ReadWrite && map.sharing == Sharing::Shared && !access.writes() {
            return Err(Error::new(
                ErrorKind::Permission,
                "the object was opened for reading alone: open it for writing, or map it privately",
            ));
        }
        let kind = kind_of(&object, &map);
        let mut fds = fds.into_iter();
        if map.with_descriptors {
            self.take_descriptors(session, kind, fds.next(), fds.next())?;
        }
        let claims = take_claims(session, kind, &map, pages, fds.next())?;
        self.take_out(session, map.address, map.length)?;
        self.check_room(session, claims.is_some())?;
        let mapping = self.new_mapping(session, &map, kind, claims)?;
        let modes = Modes { missing: true, minor: true, write_protect: mapping.writes_object() };
        mapping.uffd.register(map.address, map.length, modes).map_err(std::io::Error::from).doing(
            "registering the mapping for fault service (is it a mapping of this object's descriptor?)",
        )?;
        // Only a client that comes back after both died has used the mapping before: of a fork child's, or one whose
        // answer was lost, nothing is installed yet.
        if repeated && session.bringing.load(Ordering::Acquire) {
            cache.adopt_view(mapping.clone(), pages);
        } else {
            cache.add_view(mapping.clone(), pages);
        }
        let mapping_cache = cache.clone();
        let shown = Shown { cache, mapping: mapping.clone() };
        let region = Region { address: map.address, length: map.length, offset: map.offset, value: shown };
        let inserted = session.space.map.write().unwrap_or_else(PoisonError::into_inner).insert(region);
        if let Err(error) = inserted {
            mapping_cache.remove_pages(&mapping, pages); // another thread mapped the same addresses meanwhile
            return Err(error);
        }
        let claims = self.keep_mapping(session, &map, &mapping).inspect_err(|_| {
            // What the next host would not know of must not be written to.
            let mut regions = session.space.map.write().unwrap_or_else(PoisonError::into_inner);
            let _ = regions.remove(map.address, map.length);
            drop(regions);
            mapping_cache.remove_pages(&mapping, pages);
        })?;
        // Whoever touched it before it was known here tries again.
        let _ = mapping.uffd.wake(map.address, map.length);
        let Some(claims) = claims else { return Ok(Reply::Done) };
        give.push(claims);
        Ok(Reply::Claims)
    }

    /// Keeps a new mapping and its claim words, which it gives. An error (a limit) has kept nothing.
    fn keep_mapping(
        &self,
        session: &Session,
        map: &MapRequest,
        mapping: &Mapping,
    ) -> Result<Option<Arc<OwnedFd>>> {
        let Some(claims) = &mapping.claims else {
            return self.keep_region(session, map, mapping).map(|()| None);
        };
        let fd = Arc::new(claims.fd().try_clone().doing("giving claim words")?);
        self.keep_claims(session, map.address, fd.clone())?;
        let kept = self.keep_region(session, map, mapping);
        kept.map(|()| Some(fd)).inspect_err(|_| self.unkeep_claims(session, map.address))
    }

    /// Takes the client's userfaultfd and pagemap of a kind, which come with the first mapping of that kind.
    fn take_descriptors(
        &self,
        session: &Arc<Session>,
        kind: Kind,
        uffd: Option<OwnedFd>,
        pagemap: Option<OwnedFd>,
    ) -> Result<()> {
        let held = &session.space.descriptors;
        if held.faults[kind.index()].get().is_some() {
            return Ok(());
        }
        let (Some(uffd), Some(pagemap)) = (uffd, pagemap) else { return Err(no_descriptors()) };
        check_is_userfaultfd(&uffd, kind)?;
        let pagemap = Pagemap::from_fd(pagemap).doing("looking at the client's pagemap")?;
        let uffd = Arc::new(Userfaultfd::from_fd(uffd));
        // Two first mappings of a kind at once: one of them brings the descriptors.
        let mut tokens = lock(&session.tokens);
        if held.faults[kind.index()].get().is_some() {
            return Ok(());
        }
        // Served before it is used: a mapping whose faults nobody reads would stop its threads for ever.
        let token = self.faults.add(session.space.clone(), uffd.clone(), session.credentials.uid)?;
        let pagemap = held.pagemap.get_or_init(|| Arc::new(pagemap)).clone();
        if let Err(error) = self.keep_descriptors(session, kind, &uffd, &pagemap) {
            self.faults.remove(token);
            return Err(error);
        }
        tokens.push(token);
        held.faults[kind.index()].get_or_init(|| uffd.clone());
        Ok(())
    }

    fn new_mapping(
        &self,
        session: &Session,
        map: &MapRequest,
        kind: Kind,
        claims: Option<Claims>,
    ) -> Result<Arc<Mapping>> {
        let held = &session.space.descriptors;
        Ok(Arc::new(Mapping {
            id: map.mapping,
            session: session.id,
            pid: session.process.pid,
            uid: session.credentials.uid,
            asker: session.asker.clone(),
            base: map.address.wrapping_sub(map.offset),
            protection: map.protection,
            sharing: map.sharing,
            flags: map.flags,
            kind,
            uffd: held.faults[kind.index()].get().ok_or_else(no_descriptors)?.clone(),
            pagemap: held.pagemap.get().ok_or_else(no_descriptors)?.clone(),
            claims,
            claims_first: map.offset / PAGE_SIZE_BYTES,
            faults: AtomicU64::new(0),
            stream: Stream::default().into(),
            gate: Default::default(),
            foreign: Default::default(),
        }))
    }

    /// Takes addresses out of a session's map: dirty bits are collected first. Gives the caches concerned, with
    /// the pages that went.
    pub(super) fn take_out(
        &self,
        session: &Session,
        address: u64,
        length: u64,
    ) -> Result<Vec<(Arc<Cache>, PageRange)>> {
        let mut regions = session.space.map.write().unwrap_or_else(PoisonError::into_inner);
        let taken = regions.remove(address, length)?;
        let left: Vec<_> =
            regions.overlapping(address.saturating_sub(1), length.saturating_add(2)).cloned().collect();
        drop(regions);
        let mut gone = Vec::new();
        for region in &taken {
            let first = region.page_at(region.address);
            let pages = PageRange::new(first, region.length / commonhold_object::PAGE_SIZE_BYTES);
            region.value.cache.gather(&region.value.mapping, pages);
            region.value.cache.remove_pages(&region.value.mapping, pages);
            gone.push((region.value.cache.clone(), pages));
        }
        if !taken.is_empty() {
            self.keep_split(session, &taken, &left);
        }
        Ok(gone)
    }

    /// The client is about to unmap the range. Modified pages that nobody maps any more are stored (Shirriff,
    /// section 6, munmap): an orderly last unmap is a sync.
    pub(super) fn unmap(self: &Arc<Self>, session: &Arc<Session>, address: u64, length: u64) -> Result<()> {
        AddressMap::<()>::check_range(address, length)?;
        let gone = self.take_out(session, address, length)?;
        let mut result = Ok(());
        for (cache, pages) in gone {
            self.forget_client(session, cache.id);
            let may_write = session.access(cache.id).is_ok_and(|access| access.writes());
            if let Err(error) = cache.sync_unmapped(pages, may_write) {
                result = Err(Error::new(
                    error.kind,
                    format!("unmapped, but its last pages could not be stored and stay in memory: {error}"),
                ));
            }
            self.settle_object(cache.id);
        }
        result
    }

    pub(super) fn sync(
        self: &Arc<Self>,
        session: &Session,
        id: ObjectId,
        offset: u64,
        length: u64,
        freeze: bool,
    ) -> Result<Reply> {
        let opened = self.object(id)?;
        if opened.record().options.is_fetched() && !freeze {
            return self.sync_wired(session, &opened, offset, length);
        }
        let (cache, range, access) = self.opened_range(session, id, offset, length)?;
        if !access.writes() {
            return Err(Error::new(
                ErrorKind::Permission,
                "sync changes the stored object: open it for writing",
            ));
        }
        if freeze && !cache.traits.freezable {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "only an object created freezable can hold its writers: leave freeze out, or create it anew",
            ));
        }
        // Pages that another client wrote are not known before it is back.
        self.returning.wait_for(id)?;
        self.settle_returned();
        let record = self.object(id)?.record().clone();
        self.store(&cache, &record, range, freeze).map(Reply::Synced)
    }

    pub(super) fn hold(&self, session: &Session, id: ObjectId, offset: u64, length: u64) -> Result<Reply> {
        let (cache, range, access) = self.opened_range(session, id, offset, length)?;
        let record = self.object(id)?.record().clone();
        self.check_kept_of(session.credentials.uid)?;
        let hold = || cache.hold(session.id, session.credentials.uid, range, access.writes());
        let pinned = match self.cluster.get().filter(|_| record.options.is_shared()) {
            Some(cluster) => {
                let mut made = None;
                let asking = cache.asks_for(session.id, range);
                let result = cluster.lock_pages(record.uuid, session.id, range, || {
                    let held = hold()?;
                    made = Some(held);
                    Ok(held.pinned)
                });
                drop(asking);
                result.inspect_err(|_| {
                    if let Some(made) = made {
                        cache.drop_made(session.id, range, made);
                    }
                    // What the home let it have, or may have: it is not to be in the way of others.
                    cache.holds_not(session.id, range);
                })?
            }
            None => hold()?.pinned,
        };
        self.keep_holds(session, &cache);
        // It may have closed the object meanwhile, or ended, which lets holds go.
        if session.access(id).is_err() {
            cache.remove_holds(session.id);
            self.keep_holds(session, &cache);
        }
        Ok(Reply::Locked { pinned })
    }

    pub(super) fn let_go(&self, session: &Session, id: ObjectId, offset: u64, length: u64) -> Result<()> {
        let (cache, range, _) = self.opened_range(session, id, offset, length)?;
        let result = cache.let_go(session.id, range);
        self.keep_holds(session, &cache);
        result
    }

    pub(super) fn incore(&self, session: &Session, id: ObjectId, first: u64, pages: u64) -> Result<Reply> {
        let (object, cache, _) = self.opened(session, id)?;
        if pages == 0 || pages > limits::INCORE_PAGES || first.checked_add(pages).is_none() {
            return Err(Error::invalid(format!(
                "incore of {pages} pages from {first}: ask for 1 to {} at once",
                limits::INCORE_PAGES
            )));
        }
        let range = PageRange::new(first, pages);
        let mut states = cache.incore(range);
        self.note_lost(&object, range, &mut states);
        Ok(Reply::PageStates(states))
    }

    /// Brings pages in; the client does not wait for that, but it counts as a request of its until it is done.
    pub(super) fn prefetch(
        self: &Arc<Self>,
        session: &Arc<Session>,
        number: u64,
        id: ObjectId,
        offset: u64,
        length: u64,
    ) {
        let found = self.opened_range(session, id, offset, length);
        let reply = found.as_ref().map(|_| Reply::Done).map_err(Clone::clone);
        if number != 0 {
            session.reply_in_time(number, reply, &[]);
        }
        session.answered(number);
        if let Ok((cache, range, _)) = found {
            let most = PageRange::new(range.first, range.count.min(cache.traits.limit_pages / 2));
            if let Err(error) = cache.bring_all(most) {
                self.machine.log(format_args!("object {}: prefetch stopped: {error}", cache.id.0));
            }
        }
        session.end();
    }

    pub(super) fn map_info(&self, session: &Session, name: &Name) -> Result<Reply> {
        let object = self.lookup(session, name, Access::Read)?;
        let mut mappings: Vec<MappingInfo> = Vec::new();
        if let Some(cache) = object.cache() {
            mappings.extend(cache.views().into_iter().map(|(mapping, pages)| MappingInfo {
                mapping: mapping.id,
                pid: mapping.pid,
                uid: mapping.uid,
                address: mapping.address_of(pages.first),
                length_bytes: pages.length_bytes(),
                offset_bytes: pages.offset_bytes(),
                protection: mapping.protection,
                sharing: mapping.sharing,
                faults: mapping.faults.load(Ordering::Relaxed),
            }));
        }
        if !object.is_controlled() {
            mappings = self.direct_mappings(&object);
        }
        Ok(Reply::Mappings(mappings))
    }
}

fn kind_of(object: &Object, map: &MapRequest) -> Kind {
    if object.record().options.stops_writers() {
        Kind::Synchronous
    } else if map.flags.in_thread {
        Kind::InThread
    } else {
        Kind::Asynchronous
    }
}

fn no_descriptors() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "the first mapping of its kind must bring userfaultfd and pagemap descriptors",
    )
}

/// The claim words of a mapping with in-thread service: new ones, or those that a host made for a client which comes back
/// with them. A client makes none.
fn take_claims(
    session: &Session,
    kind: Kind,
    map: &MapRequest,
    pages: PageRange,
    fd: Option<OwnedFd>,
) -> Result<Option<Claims>> {
    if kind != Kind::InThread {
        return Ok(None);
    }
    if map.protection != Protection::ReadWrite || map.sharing != Sharing::Shared {
        return Err(Error::invalid(
            "in-thread service is for shared mappings that may write: map it otherwise without it",
        ));
    }
    let pages = usize::try_from(pages.count).map_err(|_| Error::invalid("the mapping is too large"))?;
    if !map.with_claims {
        return Claims::create(pages).map(Some).doing("making claim words");
    }
    if session.returned_by.load(Ordering::Acquire) == 0 {
        return Err(Error::new(
            ErrorKind::Protocol,
            "claim words are made by the host: only a client that comes back after its death brings those it has",
        ));
    }
    let no_words = || Error::new(ErrorKind::Protocol, "the claim words of the mapping did not come with it");
    let host = rustix::process::geteuid().as_raw();
    let claims = Claims::of_a_host(fd.ok_or_else(no_words)?, pages, host);
    let claims = claims.and_then(|claims| claims.take_over().map(|()| claims));
    claims.map(Some).map_err(|error| {
        let why = format!("the claim words are refused ({error}): map without any, and the host makes them");
        Error::new(ErrorKind::Permission, why)
    })
}

/// The requests made of this descriptor would mean other things to another kind of file.
fn check_is_userfaultfd(fd: &OwnedFd, kind: Kind) -> Result<()> {
    let link =
        std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).doing("looking at a descriptor")?;
    if link.to_str() != Some("anon_inode:[userfaultfd]") {
        return Err(Error::new(ErrorKind::Protocol, format!("{} is not a userfaultfd", link.display())));
    }
    let features = Userfaultfd::features_of(fd.as_fd()).doing("looking at a userfaultfd")?;
    if features != kind.features() {
        return Err(Error::new(
            ErrorKind::Protocol,
            format!(
                "the userfaultfd has features {features:#x}, and mappings of this kind need {:#x}, no more and no less",
                kind.features()
            ),
        ));
    }
    Ok(())
}
