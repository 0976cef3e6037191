//! An open object: what can be done with it by offset.

use crate::controlled::no_descriptor_left;
use crate::link::{Answer, Call, Lease, Shared, lock, wrong_reply};
use crate::mapping::{self, Prepared};
use crate::movable::{Guard, Movable};
use crate::segments;
use crate::{
    Access, CreateOptions, EntryInfo, Error, ErrorKind, MapOptions, Mapping, Name, ObjectId, ObjectInfo,
    PAGE_SIZE_BYTES, PageState, PagerKind, Result, copying, direct, own,
};
use commonhold_object::tags::Types;
use commonhold_object::wire::{OpenReply, Reply, Request};
use commonhold_object::{PageRange, Place, Synced, Tagging, limits, pages_of};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// An open object. Clones share it; its mappings outlive it.
#[derive(Clone, Debug)]
pub struct Object {
    pub(crate) core: Arc<Core>,
}

/// What clones and mappings share.
#[derive(Debug)]
pub(crate) struct Core {
    lease: Lease,
    id: ObjectId,
    uuid: u128,
    access: Access,
    controlled: bool,
    options: CreateOptions,
    /// As it was opened: by now the object may have another.
    name: Option<Name>,
    size_bytes: AtomicU64,
    /// Frames of a controlled object, file or memory of a direct one.
    fd: OwnedFd,
    /// What the host gave, where that is a segment whose memory `fd` is.
    segment: Option<OwnedFd>,
    /// Where in that the object lies, if it is wired, and is not all of it.
    place: Option<Place>,
    /// It was opened movable: it may lie elsewhere by now.
    movable: OnceLock<Arc<Movable>>,
    /// Connection on which the object is open.
    opened_at: AtomicU64,
    /// The loss generation that its user was told last.
    losses_seen: AtomicU64,
}

impl Core {
    pub(crate) fn new(
        lease: &Lease,
        reply: OpenReply,
        fd: Option<OwnedFd>,
        generation: u64,
    ) -> Result<Arc<Core>> {
        let info = reply.info;
        let Some(fd) = fd else {
            lease.shared().close(info.id, generation);
            return Err(no_descriptor_left("the memory of the object, which the host opened (or created),"));
        };
        let split =
            segments::memory_of(&info.options, fd).inspect_err(|_| lease.shared().close(info.id, generation));
        let (fd, segment) = split?;
        own::note(&fd);
        segment.iter().for_each(own::note);
        let core = Arc::new(Core {
            lease: lease.clone(),
            id: info.id,
            uuid: info.uuid,
            access: reply.access,
            controlled: info.controlled,
            size_bytes: AtomicU64::new(info.options.size_bytes),
            options: info.options,
            name: info.name,
            fd,
            segment,
            place: info.place,
            movable: OnceLock::new(),
            opened_at: AtomicU64::new(generation),
            losses_seen: AtomicU64::new(info.losses.generation),
        });
        let is_counted = core.options.ephemeral_ms.is_some();
        if core.controlled
            || core.options.pager == PagerKind::Anonymous
            || core.options.is_wired()
            || is_counted
        {
            lock(&lease.shared().opens).remember(&core);
        }
        Ok(core)
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    pub(crate) fn shared(&self) -> &'static Shared {
        self.lease.shared()
    }

    pub(crate) fn id(&self) -> ObjectId {
        self.id
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }

    pub(crate) fn is_controlled(&self) -> bool {
        self.controlled
    }

    pub(crate) fn options(&self) -> &CreateOptions {
        &self.options
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Where in its arena a wired object lies.
    pub(crate) fn place(&self) -> Option<Place> {
        match self.movable() {
            Some(movable) => movable.lies().map(|lies| lies.place),
            None => self.place,
        }
    }

    /// What it is, if it was opened movable.
    pub(crate) fn movable(&self) -> Option<&Arc<Movable>> {
        self.movable.get()
    }

    /// It was opened movable. Of a process that has it open otherwise it stays where it is.
    pub(crate) fn becomes_movable(&self) -> Result<()> {
        let refused =
            |kind: ErrorKind, what: &str| Err(Error::new(kind, format!("object {} {what}", self.label())));
        if !self.options.is_wired() {
            return refused(ErrorKind::Unsupported, "is not wired, and does not move: leave movable out");
        }
        if self.place.is_none() {
            return refused(
                ErrorKind::Unsupported,
                "is of ordinary pages, and does not move: leave movable out, or give the machine huge pages before it is created \
                 (sysctl vm.nr_hugepages)",
            );
        }
        if self.shared().pinned_handles(self.id) > 1 {
            return refused(ErrorKind::Busy, "is open in this process, and not movable: close it first");
        }
        let movable = Movable::of(self.shared(), self.id, self.access)?;
        let is_used = movable.lies().is_some();
        let _ = self.movable.set(movable.clone()); // set already: a clone asked first, and it is the same
        self.shared().is_movable(self.id);
        // To the host this open keeps it where it is, as all do.
        if is_used {
            return movable.tell_again();
        }
        self.shared().note(&Request::Released { object: self.id, given: 0 }, self.opened_at());
        Ok(())
    }

    /// What this process has it open movable by, if it has.
    pub(crate) fn is_open_movable(&self) -> Option<Arc<Movable>> {
        if self.place.is_some() { Movable::is_known(self.shared(), self.id) } else { None }
    }

    /// Refuses what would keep it where it is.
    pub(crate) fn refuse_movable(&self) -> Result<()> {
        match self.movable() {
            Some(_) => Err(Error::invalid(format!(
                "object {} was opened movable: take a guard to use it, or open it again without that to map it",
                self.label()
            ))),
            None => Ok(()),
        }
    }

    /// Another size was told.
    pub(crate) fn is_of_size(&self, size_bytes: u64) {
        self.size_bytes.store(size_bytes, Ordering::Relaxed);
    }

    /// What the host gave for it.
    pub(crate) fn given(&self) -> &OwnedFd {
        self.segment.as_ref().unwrap_or(&self.fd)
    }

    /// Connection on which it was opened.
    pub(crate) fn opened_at(&self) -> u64 {
        self.opened_at.load(Ordering::Relaxed)
    }

    /// Another host has it open, on the connection of that generation.
    pub(crate) fn is_open_at(&self, generation: u64) {
        self.opened_at.store(generation, Ordering::Relaxed);
    }

    /// Its name for people.
    pub(crate) fn label(&self) -> String {
        self.name.as_ref().map_or_else(|| format!("number {}", self.id.0), Name::to_string)
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// Asks the host; remembers the size.
    pub(crate) fn info(&self) -> Result<ObjectInfo> {
        self.open_again_if_needed()?;
        match self.ask(&Request::StatObject { object: self.id })? {
            Reply::Entry(entry) => match *entry {
                EntryInfo::Object(info) => {
                    self.size_bytes.store(info.options.size_bytes, Ordering::Relaxed);
                    Ok(*info)
                }
                EntryInfo::Directory { .. } => Err(wrong_reply()),
            },
            _ => Err(wrong_reply()),
        }
    }

    /// A direct object is not brought along to another host (its mappings need none): it is opened again, by
    /// name, when the host is asked of it for the first time.
    pub(crate) fn open_again_if_needed(&self) -> Result<()> {
        let shared = self.shared();
        // First: a reconnection within may bring the object, by its number, which is as good as a name that it has no more.
        let now = shared.connected_generation()?;
        if self.opened_at() == now {
            return Ok(());
        }
        let gone =
            || Error::new(ErrorKind::NotFound, format!("object {} has no name any more", self.label()));
        let request = Request::Open { name: self.name.clone().ok_or_else(gone)?, access: self.access };
        let (reply, _, generation) = shared.open(&request, &[])?;
        if reply.info.id != self.id {
            shared.close(reply.info.id, generation);
            let what = format!("object {} was replaced by another of that name: open it anew", self.label());
            return Err(Error::new(ErrorKind::Lost, what));
        }
        if self.movable().is_none() && reply.info.place != self.place {
            shared.close(reply.info.id, generation);
            let what = format!(
                "wired object {} was moved while no host knew of this process: open it anew",
                self.label()
            );
            return Err(Error::new(ErrorKind::Lost, what));
        }
        // One handle, counted twice now.
        self.is_open_at(generation);
        shared.close(self.id, generation);
        Ok(())
    }

    /// A request whose answer carries no descriptor.
    pub(crate) fn ask(&self, request: &Request) -> Result<Reply> {
        match self.shared().call(Call::new(request))? {
            Answer::Reply(reply, _, _) => Ok(reply),
            Answer::AskAnew => Err(wrong_reply()),
        }
    }

    /// The memory in which the host's processes lock mutexes that hosts share.
    pub(crate) fn ask_for_words(&self) -> Result<OwnedFd> {
        let request = Request::Words { object: self.id };
        let Answer::Reply(Reply::Done, mut fds, _) = self.shared().call(Call::new(&request))? else {
            return Err(wrong_reply());
        };
        let words =
            fds.pop().ok_or_else(|| no_descriptor_left("the memory of the locks, which the host gave,"))?;
        own::note(&words);
        Ok(words)
    }

    /// Learns how many pages the object has now: another process may have changed that.
    pub(crate) fn look_at_size(&self) -> Result<()> {
        // A host that resizes an object gives its file that length, and frames as many whole pages: if the length is
        // the one that goes with the size as known, nobody has to be asked.
        if self.is_as_large_as_known() {
            return Ok(());
        }
        match self.info() {
            // A direct object that no host knows any more keeps the size it had: only a host changes it.
            Err(error) if !self.controlled && matches!(error.kind, ErrorKind::NotFound | ErrorKind::Lost) => {
                Ok(())
            }
            other => other.map(drop),
        }
    }

    fn is_as_large_as_known(&self) -> bool {
        let known = self.size_bytes();
        let expected = if self.controlled { pages_of(known) * PAGE_SIZE_BYTES } else { known };
        rustix::fs::fstat(&self.fd).is_ok_and(|stat| stat.st_size as u64 == expected)
    }

    /// Whether the file or memory of a direct object ends before that page. No host sees such a mapping, and would
    /// refuse it.
    pub(crate) fn may_have_shrunk_below(&self, end: u64) -> bool {
        let shorter = |stat: rustix::fs::Stat| pages_of(stat.st_size as u64) < end;
        !self.controlled && rustix::fs::fstat(&self.fd).is_ok_and(shorter)
    }

    /// Runs `check` with the size as known, and again with the size as it is if that was refused.
    pub(crate) fn with_size<T>(&self, check: impl Fn(u64) -> Result<T>) -> Result<T> {
        check(self.size_bytes()).or_else(|error| {
            // What the largest object would not allow needs no question to the host.
            check(limits::OBJECT_BYTES)?;
            let known = self.size_bytes();
            self.info()?;
            if self.size_bytes() == known { Err(error) } else { check(self.size_bytes()) }
        })
    }

    fn check_range(&self, offset: u64, length: u64) -> Result<()> {
        self.with_size(|size| PageRange::covering(offset, length, size)).map(drop)
    }

    pub(crate) fn sync(&self, offset: u64, length: u64, freeze: bool) -> Result<u64> {
        if freeze && !self.options.freezable {
            let what = format!("object {} was not created freezable: sync without freeze", self.label());
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        self.check_range(offset, length)?;
        if !self.controlled {
            return direct::sync(self, offset, length);
        }
        let seen = self.losses_seen.load(Ordering::Acquire);
        match self.ask(&Request::Sync { object: self.id, offset, length, freeze })? {
            Reply::Synced(synced) => self.stored(seen, synced),
            _ => Err(wrong_reply()),
        }
    }

    /// What is there is stored. Whether all that was written before is in it is said once for each loss, as the kernel
    /// says of a failed write-back.
    fn stored(&self, seen: u64, synced: Synced) -> Result<u64> {
        let Synced { pages, loss_generation } = synced;
        if seen != loss_generation {
            let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
            // It fails where another thread was told meanwhile, maybe of a later loss: then that stays.
            let _ = self.losses_seen.compare_exchange(seen, loss_generation, set, fetch);
        }
        if seen == loss_generation || seen == 0 {
            return Ok(pages);
        }
        let what = format!(
            "what is there of object {} is stored, but newest versions of pages were lost with a host since it was opened, or \
             since the sync before: read again what was written, and sync again",
            self.label()
        );
        Err(Error::new(ErrorKind::Lost, what))
    }

    pub(crate) fn lock(&self, offset: u64, length: u64) -> Result<bool> {
        self.refuse_lock_if_direct()?;
        self.check_range(offset, length)?;
        match self.ask(&Request::Lock { object: self.id, offset, length })? {
            Reply::Locked { pinned } => Ok(pinned),
            _ => Err(wrong_reply()),
        }
    }

    pub(crate) fn refuse_lock_if_direct(&self) -> Result<()> {
        if self.controlled {
            return Ok(());
        }
        let what = format!(
            "pages of object {} cannot be held: the kernel writes back a direct object whenever it likes (mlock \
             never held back write-back); create it with sync ordered or atomic, or controlled",
            self.label()
        );
        Err(Error::new(ErrorKind::Unsupported, what))
    }

    pub(crate) fn unlock(&self, offset: u64, length: u64) -> Result<()> {
        self.refuse_lock_if_direct()?;
        self.check_range(offset, length)?;
        self.ask(&Request::Unlock { object: self.id, offset, length }).map(drop)
    }

    pub(crate) fn prefetch(&self, offset: u64, length: u64) -> Result<()> {
        self.check_range(offset, length)?;
        if !self.controlled {
            return direct::prefetch(self, offset, length);
        }
        self.ask(&Request::Prefetch { object: self.id, offset, length }).map(drop)
    }

    /// Pages past the end are [`PageState::Invalid`], not an error.
    pub(crate) fn incore(&self, offset: u64, length: u64) -> Result<Vec<(PageState, bool)>> {
        let pages = PageRange::covering(offset, length, u64::MAX - PAGE_SIZE_BYTES)?;
        if pages.end() > limits::OBJECT_PAGES {
            let what = format!("pages up to {} are past the limit of {}", pages.end(), limits::OBJECT_PAGES);
            return Err(Error::invalid(what));
        }
        if !self.controlled {
            return direct::incore(self, pages);
        }
        let mut states = Vec::new();
        let mut first_page = pages.first;
        while first_page < pages.end() {
            let count = (pages.end() - first_page).min(limits::INCORE_PAGES);
            match self.ask(&Request::Incore { object: self.id, first_page, pages: count })? {
                Reply::PageStates(bytes) if bytes.len() as u64 == count => {
                    let decoded: Option<Vec<_>> = bytes.into_iter().map(PageState::decode).collect();
                    states.extend(decoded.ok_or_else(wrong_reply)?);
                }
                _ => return Err(wrong_reply()),
            }
            first_page += count;
        }
        Ok(states)
    }

    /// The range, cut at the end of the object: a mapping may reach past it after a resize.
    pub(crate) fn clip(&self, offset: u64, length: u64) -> Result<(u64, u64)> {
        let end = (offset + length).min(pages_of(self.size_bytes()) * PAGE_SIZE_BYTES);
        if end <= offset {
            let what =
                format!("object {} was resized: nothing is left of the range at {offset}", self.label());
            return Err(Error::invalid(what));
        }
        Ok((offset, end - offset))
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.shared().close_one(self.id, self.opened_at(), self.movable.get().is_some());
    }
}

impl Object {
    /// All there is to know of it now.
    pub fn info(&self) -> Result<ObjectInfo> {
        self.core.info()
    }

    /// Size as last known: since it was opened, resized through this object, or asked for by [`Object::info`].
    pub fn size_bytes(&self) -> u64 {
        self.core.size_bytes()
    }

    /// Size by now, to the page: the host is asked only if the length of the object's memory tells that another process
    /// changed the number of its pages (of a file: its bytes). [`Object::info`] asks always.
    pub fn size_by_now(&self) -> Result<u64> {
        self.core.look_at_size()?;
        Ok(self.size_bytes())
    }

    /// Whether it is mapped, unmapped and closed, and its size by now is known, without waiting for the host: it is direct, of page
    /// tables of this process's own, and as large as it was.
    #[doc(hidden)]
    pub fn waits_for_nobody(&self) -> bool {
        let options = self.options();
        let is_direct = !self.core.controlled && !options.is_wired() && !options.shares_tables();
        is_direct && options.fixed.is_none() && self.core.is_as_large_as_known()
    }

    /// How it was opened.
    pub fn access(&self) -> Access {
        self.core.access
    }

    /// Its identity.
    pub fn id(&self) -> ObjectId {
        self.core.id
    }

    /// Its identity among all hosts: for whoever opened it by a name, and wants to know whether it is what another has.
    pub fn uuid(&self) -> u128 {
        self.core.uuid
    }

    /// What it was created with; its size there is that at opening.
    pub fn options(&self) -> &CreateOptions {
        &self.core.options
    }

    /// Whether the host serves its faults.
    pub fn is_controlled(&self) -> bool {
        self.core.controlled
    }

    /// Maps part or all of it.
    ///
    /// Touching a page may fail with SIGBUS: when the object was shrunk below it, when its pager fails, or when
    /// its stored bytes are lost. A private writable mapping of a controlled object is not inherited over fork.
    pub fn map(&self, options: &MapOptions) -> Result<Mapping> {
        Prepared::new(self, options)?.make()
    }

    /// A guard of an object that was opened movable ([`Host::open_movable`](crate::Host::open_movable)): until it is dropped the
    /// object lies where the guard says. No call, unless it has moved.
    pub fn guard(&self) -> Result<Guard<'_>> {
        self.core.movable().ok_or_else(|| self.not_movable())?.guard(&self.core)
    }

    /// Ends a guard that was kept ([`Guard::keep`]).
    pub fn leave(&self) -> Result<()> {
        self.core.movable().ok_or_else(|| self.not_movable())?.leave_kept()
    }

    fn not_movable(&self) -> Error {
        Error::invalid(format!("object {} was not opened movable: map it", self.core.label()))
    }

    /// Maps several parts: all or none.
    pub fn map_many(&self, options: &[MapOptions]) -> Result<Vec<Mapping>> {
        mapping::make_all(options.iter().map(|one| (self, one)))
    }

    /// Makes the range what is stored, by the mode chosen at creation; gives the number of pages written, which
    /// is 0 of a direct object: the kernel writes its pages. Of an anonymous object it succeeds and promises
    /// nothing past the host.
    ///
    /// Fails once with [`ErrorKind::Lost`] if newest versions of pages were lost with a host since the object was opened
    /// (`docs/SYNC.md`, "When pages were lost"): what is there is stored, what was written before may be older.
    pub fn sync(&self, offset: u64, length: u64) -> Result<u64> {
        self.core.sync(offset, length, false)
    }

    /// As [`sync`](Self::sync), at a true instant: all writers are held (freezable objects).
    pub fn sync_frozen(&self, offset: u64, length: u64) -> Result<u64> {
        self.core.sync(offset, length, true)
    }

    /// Holds the pages in memory and away from the pager; gives whether they are pinned against swap too.
    /// Refused for direct objects, which the kernel writes back whenever it likes. It keeps nobody out:
    /// [`Mutex`](crate::Mutex) does.
    pub fn lock(&self, offset: u64, length: u64) -> Result<bool> {
        self.core.lock(offset, length)
    }

    /// Lets them go.
    pub fn unlock(&self, offset: u64, length: u64) -> Result<()> {
        self.core.unlock(offset, length)
    }

    /// Begins to bring the pages in, without waiting.
    pub fn prefetch(&self, offset: u64, length: u64) -> Result<()> {
        self.core.prefetch(offset, length)
    }

    /// Drops what was not synced, whoever wrote it; gives the number of pages dropped. Only who opened the object for writing
    /// may.
    pub fn revert(&self) -> Result<u64> {
        if !self.core.access.writes() {
            let what = format!("object {} is open for reading: open it for writing", self.core.label());
            return Err(Error::new(ErrorKind::Permission, what));
        }
        match self.core.ask(&Request::RevertOpened { object: self.core.id })? {
            Reply::Pages(pages) => Ok(pages),
            _ => Err(wrong_reply()),
        }
    }

    /// State of each page, and whether it is locked. Pages past the end are invalid.
    pub fn incore(&self, offset: u64, length: u64) -> Result<Vec<(PageState, bool)>> {
        self.core.incore(offset, length)
    }

    /// Copies bytes out. Where the host serves the kernel's accesses, a page that cannot be had is an error;
    /// with an unprivileged host it is SIGBUS, as for a touch.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        copying::read(self, buffer, offset)
    }

    /// Copies bytes in.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        copying::write(self, data, offset)
    }

    /// Says what is in its pages: bytes `offset` to `offset + length` (0: all from there on) have that tag from now on, and
    /// hosts of other machine types translate them (`docs/TYPES.md`). Refused while another host than its home uses it.
    pub fn tag(&self, offset: u64, length: u64, tag: &str) -> Result<()> {
        let tagging = Tagging { offset, length, tag: tag.to_owned() };
        self.core.ask(&Request::TagOpened { object: self.core.id, tagging }).map(drop)
    }

    /// The tags that its pages have now.
    pub fn tags(&self) -> Result<Types> {
        Ok(self.info()?.options.types)
    }

    /// Changes its size. Mappings past a smaller size stay, and touching them raises SIGBUS.
    pub fn resize(&self, size_bytes: u64) -> Result<()> {
        let removed = || Error::new(ErrorKind::NotFound, format!("object {} was removed", self.core.label()));
        // By the name it has now: another object may have the one it was opened by.
        let name = self.info()?.name.ok_or_else(removed)?;
        self.core.ask(&Request::Resize { name, size_bytes, of: None })?;
        self.core.size_bytes.store(size_bytes, Ordering::Relaxed);
        Ok(())
    }
}
