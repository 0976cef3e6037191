//! The caches of controlled objects: made at the first use, or adopted with the frames of the host before.

use super::object::Object;
use super::{Host, lock};
use crate::again::and_again;
use crate::cache::book::Book;
use crate::cache::kept::Lent;
use crate::cache::stored;
use crate::cache::{Cache, Traits};
use crate::live::Live;
use crate::pagers::{
    AnonymousPager, ElsewherePager, ExternalPager, FilePager, MovingPager, Pager, SnapshotPager, TypedPager,
};
use crate::spill::Spill;
use commonhold_object::error::Doing;
use commonhold_object::{Coherence, SyncMode};
use commonhold_object::{Error, ErrorKind, PAGE_SIZE_BYTES, PagerKind, Result, limits, pages_of};
use commonhold_registry::ObjectRecord;
use commonhold_sys::frames;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long an external pager may take, unless its object was created with another deadline.
const PAGER_DEADLINE_MS: u32 = 30_000;

impl Host {
    /// The cache of a controlled object, made at its first use.
    pub fn cache_of(self: &Arc<Self>, object: &Arc<Object>) -> Result<Arc<Cache>> {
        self.returning.wait_for(object.id)?;
        self.settle_returned();
        self.object(object.id)?;
        object.check_usable()?;
        if let Some(cache) = object.cache() {
            return Ok(cache);
        }
        let options = object.record().options.clone();
        self.check_page_size(&options)?;
        let made = object.hold().and_then(|_held| match self.take_over_late(object)? {
            Some(cache) => Ok(cache),
            None => self.make_cache(object),
        });
        // Who wanted it may have gone meanwhile, and be the last.
        self.settle_object(object.id);
        made
    }

    /// Frames of the host before, which could not be taken over at first.
    fn take_over_late(self: &Arc<Self>, object: &Arc<Object>) -> Result<Option<Arc<Cache>>> {
        let making = lock(&object.making);
        let Some(frames) = object.left_frames() else { return Ok(None) };
        let cache = self.adopt_cache(object, frames, true)?;
        drop(making);
        if !self.returning.expects(object.id) {
            self.has_all_clients(object);
        }
        self.repaired(format!("object {}: its frames are taken over now", object.id.0));
        Ok(Some(cache))
    }

    pub(super) fn make_cache(self: &Arc<Self>, object: &Arc<Object>) -> Result<Arc<Cache>> {
        let _one_at_a_time = lock(&object.making);
        if let Some(cache) = object.cache() {
            return Ok(cache);
        }
        if object.record().options.pager == PagerKind::Anonymous {
            let _ = std::fs::remove_file(self.machine.path("live", object.id));
        }
        let record = object.record().clone();
        // Now, when it can be refused: no eviction shall fail for lack of a descriptor.
        self.machine.pipe_of(record.charged_uid)?;
        let frames_bytes = pages_of(record.options.size_bytes) * PAGE_SIZE_BYTES;
        let label = format!("commonhold-frames-{}", object.id.0);
        let frames = Arc::new(frames::create(&label, frames_bytes).doing("making the object's frames")?);
        let inode =
            rustix::fs::fstat(&*frames).map_err(std::io::Error::from).doing("looking at the frames")?.st_ino;
        let path = self.machine.path("live", object.id);
        let live = Live::create(&path, &self.machine.boot_id, inode, record.options.size_bytes)?;
        let cache = self.new_cache(object, &record, frames.clone(), Book::new(live))?;
        self.break_snapshots_of(object.id);
        // Frames that the next host would not have must not be written to.
        self.keep_new_frames(&record, &frames).inspect_err(|_| drop(std::fs::remove_file(&path)))?;
        self.note_used(object.id);
        // First: whoever finds the cache may rely on its being scheduled.
        self.take_part(&record, &cache, Lent::default());
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
            uid: record.charged_uid,
            sync: options.sync,
            freezable: options.freezable,
            space_reserved: options.reserves(),
            fault_deadline_ms: options.fault_deadline(),
            limit_pages,
            home_moves: options.home_moves,
        };
        let mut spill = Spill::new(&self.machine.path("spill", object.id));
        if self.machine.is_ordinary(record.charged_uid) {
            spill.leave_room();
        }
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
        // Under explicit coherence the home's saved copies are apart from what its processes map.
        if options.is_shared() && (record.is_elsewhere || options.coherence != Coherence::Explicit) {
            cache.belongs_to_all();
        }
        self.machine.add(&cache);
        cache.recover_at_start()?;
        Ok(cache)
    }

    fn pager_of(&self, object: &Object, record: &ObjectRecord) -> Result<Box<dyn Pager>> {
        let pager = self.pager_as_stored(object, record)?;
        let seen = || self.machine.seen_of(record.uuid);
        Ok(TypedPager::before(pager, &record.options.types, &self.machine.types, seen))
    }

    fn pager_as_stored(&self, object: &Object, record: &ObjectRecord) -> Result<Box<dyn Pager>> {
        if record.options.home_moves {
            return Ok(Box::new(MovingPager::default()));
        }
        if record.is_elsewhere {
            return Ok(Box::new(ElsewherePager));
        }
        Ok(match &record.options.pager {
            PagerKind::Anonymous => match self.parent_blocks(object.id) {
                Some(may_block) => {
                    let size_bytes = record.options.size_bytes;
                    Box::new(SnapshotPager::new(object.id, size_bytes, &self.machine, may_block))
                }
                None => Box::new(AnonymousPager),
            },
            PagerKind::File => {
                let gone = || Error::new(ErrorKind::Lost, object.unusable());
                let file = object.descriptor().ok_or_else(gone)?;
                Box::new(self.file_pager(record, &file, record.options.size_bytes)?)
            }
            PagerKind::External { pager } => Box::new(self.external_pager(record, pager)),
        })
    }

    pub(super) fn file_pager(
        &self,
        record: &ObjectRecord,
        file: &OwnedFd,
        size_bytes: u64,
    ) -> Result<FilePager> {
        let pager = FilePager::new(file.try_clone().doing("using the backing file")?.into(), size_bytes);
        let ordinary = self.machine.is_ordinary(record.charged_uid);
        Ok(if ordinary { pager.leaving_room() } else { pager })
    }

    pub(super) fn external_pager(&self, record: &ObjectRecord, pager: &str) -> ExternalPager {
        // Records of older versions may say more than is granted now.
        let deadline = record.options.pager_deadline_ms.unwrap_or(PAGER_DEADLINE_MS);
        let deadline = Duration::from_millis(deadline.min(limits::PAGER_DEADLINE_MS).into());
        ExternalPager::new(
            self.pagers.clone(),
            pager.to_owned(),
            record.ownership.uid,
            record.first_name.to_string(),
            deadline,
        )
    }

    /// Makes a stored object whole before anybody reads its file. Frames are not touched: those that clients bring back
    /// later are newer, or the same.
    pub(super) fn redo_journal(self: &Arc<Self>, object: &Arc<Object>) {
        let record = object.record().clone();
        if record.options.sync != SyncMode::Atomic
            // Its pager is a process that is not connected yet: done before the first page is read.
            || matches!(record.options.pager, PagerKind::External { .. })
            || !self.machine.journal_paths(object.id).iter().any(|p| p.exists())
        {
            return;
        }
        object.redoes.store(true, Ordering::Release);
        let (this, of) = (self.clone(), object.clone());
        if self.machine.soon(record.charged_uid, move || this.redo_now(&of)).is_none() {
            let why = "somebody keeps its file from being written";
            self.repaired(format!("object {}: its journal is redone later: {why}", object.id.0));
        }
    }

    /// Redoes it, unless that was done for who uses the object.
    pub(super) fn redo_now(&self, object: &Object) {
        // Nobody else opens the same journal meanwhile.
        let _one_at_a_time = lock(&object.making);
        if object.cache().is_some() || !object.redoes.swap(false, Ordering::AcqRel) {
            return;
        }
        let record = object.record().clone();
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
    /// descriptors), they stay with the keeper, and it is tried again when the object is used next: other frames in their
    /// place would lose what is in them. Where the book is gone the object cannot be used: nobody knows then which pages are
    /// the newest, and nobody is given others without a word.
    pub(super) fn adopt_cache(
        &self,
        object: &Object,
        frames: Arc<OwnedFd>,
        takes_over: bool,
    ) -> Result<Arc<Cache>> {
        // Else the object could not be used until the host starts again.
        let again = |error: &Error| {
            self.machine.log(format_args!("object {}: {error}; taking it over again", object.id.0));
        };
        let result = and_again(again, || self.adopt_cache_now(object, frames.clone(), takes_over));
        let Err(error) = &result else {
            object.leave_frames(None);
            return result;
        };
        let is_lost = error.kind == ErrorKind::Lost;
        let record = object.record().clone();
        // What clients bring may be anything. What hosts share is settled with its home.
        if is_lost && (!takes_over || record.options.is_shared()) {
            return result;
        }
        self.keep_frames(object, &frames);
        if is_lost {
            object.set_unusable(format!(
                "its memory is lost: {error}. Put live/{} of the state directory back as it was and restart the host, or \
                 remove the object",
                object.id.0
            ));
            return result;
        }
        object.leave_frames(Some(frames));
        let text = format!(
            "its pages could not be taken over from the host before, and are kept: {}; try again later",
            error.message
        );
        Err(Error::new(error.kind, text))
    }

    fn adopt_cache_now(&self, object: &Object, frames: Arc<OwnedFd>, takes_over: bool) -> Result<Arc<Cache>> {
        let record = object.record().clone();
        let path = self.machine.path("live", object.id);
        let found = Live::reopen(&path, &self.machine.boot_id)?;
        let inode =
            rustix::fs::fstat(&*frames).map_err(std::io::Error::from).doing("looking at frames")?.st_ino;
        let Some((live, header)) = found.filter(|(_, h)| h.frames_inode == inode) else {
            return Err(Error::new(ErrorKind::Lost, "the book of these frames is gone, or of other frames"));
        };
        let doing = "putting back what a host that was killed had at hand";
        if self.machine.refuge.has_bytes_of(inode).doing(doing)? {
            let machine = self.machine.clone();
            let put_back = move |frames: &OwnedFd| machine.refuge.put_back(frames);
            self.machine.patience.call(&frames, record.charged_uid, put_back).doing(doing)?;
        }
        let unfinished = live.intent()?;
        // Of the size that the frames had, or were about to have.
        let mut as_left = record.clone();
        as_left.options.size_bytes = header.size_bytes;
        let cache = self.new_cache(object, &as_left, frames.clone(), Book::recover(live)?)?;
        self.tell_of_snapshots(&cache);
        // Who wrote to them before is not known.
        if rustix::process::geteuid().is_root() {
            cache.is_opened_by_others(true);
        }
        cache.adopt_frames()?;
        // A snapshot that lacks nothing has its pages from elsewhere as well; and where the disk was full the host before may
        // not have noted a first write, of which no page table tells.
        let is_alone = cache.pager.is_anonymous() && record.options.freezable && !record.options.is_shared();
        if cache.pager.has_parent() || record.options.read_only || is_alone {
            cache.all_may_be_newer()?;
        }
        if !unfinished.is_empty() {
            let (id, pages) = (object.id.0, unfinished.len());
            let stuck = lock(&self.stuck_before).clone();
            if takes_over && !stuck.is_empty() {
                cache.finish_eviction_after(stuck)?;
                let why = "of a host that was killed and cannot end yet";
                self.machine
                    .log(format_args!("object {id}: an eviction of {pages} pages, {why}, is finished then"));
            } else {
                cache.finish_eviction(takes_over)?;
                self.machine.log(format_args!("object {id}: finished an eviction of {pages} pages"));
            }
        }
        if header.size_bytes != record.options.size_bytes {
            let (resized, size_bytes) = (cache.clone(), record.options.size_bytes);
            let held = || Err(Error::new(ErrorKind::Busy, "somebody keeps its file from being changed"));
            self.machine
                .soon(record.charged_uid, move || resized.resize_again(size_bytes))
                .unwrap_or_else(held)?;
            self.repaired(format!("object {}: a change of its size was cut short", object.id.0));
        }
        self.keep_frames(object, &frames);
        self.note_used(object.id);
        self.returning.publish(object.id, |incomplete| {
            cache.set_incomplete(incomplete);
            object.set_cache(cache.clone());
        });
        Ok(cache)
    }
}
