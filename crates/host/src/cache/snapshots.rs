//! Snapshots of this object (`docs/SNAPSHOTS.md`): they have a page from here before it is written here, and what they lack is
//! read from here.
//!
//! Locks: who holds the parent's, as every fault does, only tries the snapshot's; where it is held, or the page has to come from
//! elsewhere, the write waits, and no thread does.

use super::atomic::Turn;
use super::view::Mapping;
use super::{Cache, Inner, book, lock, read_frames};
use commonhold_object::{Error, ErrorKind, ObjectId, PAGE_SIZE_BYTES, PageRange, Result};
use commonhold_versions::{Before, Has, Link, before_write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, TryLockError, Weak};

const PAGE_BYTES: usize = PAGE_SIZE_BYTES as usize;

/// Who knows all objects of the host.
pub trait Family: Send + Sync {
    /// The object's cache. It may have to be waited for.
    fn cache(&self, id: ObjectId) -> Result<Arc<Cache>>;

    /// What a snapshot is of. None: it lacks nothing.
    fn parent(&self, id: ObjectId) -> Result<Option<Parent>>;

    /// Waits for the object's memory, if somebody may bring it back.
    fn wait_for(&self, id: ObjectId) -> Result<()>;

    /// A snapshot could not have a page that was about to be written, and is of no use any more.
    fn is_broken(&self, id: ObjectId, why: &Error);
}

/// What a snapshot is of, and that object's cache if it is there.
pub type Parent = (Link<ObjectId>, Option<Arc<Cache>>);

/// A snapshot of this object.
pub(super) struct Child {
    id: ObjectId,
    link: Link<ObjectId>,
    /// Not there yet: it comes back after the death of host and keeper.
    cache: Weak<Cache>,
    /// It is about to be one of this object, and another version may have its pages yet.
    moves: bool,
}

/// Where the pages are that a snapshot lacks.
enum Look {
    /// Further up: the version's own parent, what it is of it, and the pages that it lacks.
    Above(Arc<Cache>, Link<ObjectId>, PageRange),
    /// This came of it here.
    Here(Read),
}

/// What came of reading a version's pages.
pub enum Read {
    /// So many were read.
    Pages(u64),
    /// They have to be brought there first.
    Bring(Arc<Cache>, PageRange),
    /// The snapshot is one of another object by now.
    Moved,
}

impl Cache {
    /// The instant: `child` has these pages of this object as they are now. Whoever writes one from now on waits until the
    /// child has it.
    pub fn take_instant(&self, id: ObjectId, child: &Arc<Cache>, link: Link<ObjectId>) -> Result<()> {
        let _turn = lock(&self.turn); // no sync, revert or other size meanwhile
        if self.is_incomplete() {
            let why =
                "processes that have newer pages of this object are expected back: try again in a moment";
            return Err(Error::new(ErrorKind::Busy, why));
        }
        let mut inner = self.lock();
        let pages = PageRange::new(link.first_page, link.pages);
        if pages.intersect(inner.whole()) != pages {
            let why = "the object has become smaller meanwhile: take the snapshot again";
            return Err(Error::new(ErrorKind::Mismatch, why));
        }
        // Everything else is protected already.
        self.protect_synchronous(&inner, &book::within(&inner.unprotected, pages))?;
        book::remove(&mut inner.unprotected, pages);
        inner.children.push(Child { id, link, cache: Arc::downgrade(child), moves: false });
        Ok(())
    }

    /// It has this snapshot: since before, or (`moves`) soon. `cache`: the snapshot's, if it is there.
    pub fn has_snapshot(&self, id: ObjectId, link: Link<ObjectId>, cache: Weak<Cache>, moves: bool) {
        let mut inner = self.lock();
        inner.children.retain(|child| child.id != id);
        inner.children.push(Child { id, link, cache, moves });
    }

    /// It has not, any more.
    pub fn has_no_snapshot(&self, id: ObjectId) {
        self.lock().children.retain(|child| child.id != id);
    }

    /// Whether the first write of a page must wait for snapshots. Then whoever writes is answered when they have the page.
    pub(super) fn snapshots_wait(&self, inner: &mut Inner, mapping: &Arc<Mapping>, page: u64) -> bool {
        let is_ready = |child: &Child| match child.link.page_of(page) {
            Some(at) => self.give_copy(child, page, at),
            None => true,
        };
        if inner.children.iter().all(is_ready) {
            return false;
        }
        inner.wait_for(mapping, page, true);
        if inner.giving.insert(page as u32)
            && let Some(this) = self.this.upgrade()
        {
            // Not where pages are brought: it waits for such. Within the owner's share: it may wait for who maps the snapshot.
            let job = move || this.give_slowly(page);
            match &self.own_threads {
                Some(own) => own.run_request(None, job),
                None => self.apart.run_within(self.share_now(), &self.machine.workers, job),
            }
        }
        true
    }

    /// Whether the child has the page, now if not before.
    fn give_copy(&self, child: &Child, page: u64, at: u64) -> bool {
        let Some(cache) = child.cache.upgrade() else { return false };
        let mut theirs = match cache.inner.try_lock() {
            Ok(theirs) => theirs,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        match before_write(theirs.has(at), child.moves) {
            Before::Write => true,
            Before::Bring => false,
            Before::Copy => {
                let mut bytes = [0; PAGE_BYTES];
                cache.try_take(1)
                    && (read_frames(&self.frames, page, &mut bytes).is_ok()
                        && cache.is_given(&mut theirs, at, &mut bytes)
                        || {
                            cache.give_back(1);
                            false
                        })
            }
        }
    }

    /// A page comes from the parent, and its room is taken.
    fn is_given(&self, inner: &mut Inner, page: u64, bytes: &mut [u8]) -> bool {
        inner.cut_past_end(page, bytes);
        if self.write_frames(page, bytes).is_err() {
            return false;
        }
        let one = PageRange::new(page, 1);
        book::insert(&mut inner.resident, one);
        inner.order.push_back(one);
        self.record(inner, &book::set_of(one));
        self.machine.counters.installed.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The same on a thread that may wait: each child brings the page as for anybody who touches it.
    fn give_slowly(self: &Arc<Self>, page: u64) {
        let covering = |child: &Child| child.link.page_of(page).map(|at| (child.id, at));
        let children: Vec<_> = self.lock().children.iter().filter_map(covering).collect();
        children.into_iter().for_each(|(id, at)| self.complete(id, PageRange::new(at, 1)));
        let mut inner = self.lock();
        inner.giving.remove(page as u32);
        self.settle(&mut inner, PageRange::new(page, 1));
    }

    /// The snapshot has these pages of its own afterwards, or is broken.
    fn complete(&self, id: ObjectId, pages: PageRange) {
        let family = self.machine.family();
        let whole = family.cache(id).and_then(|cache| cache.bring_all(pages).map(|()| cache));
        match whole {
            Ok(cache) => {
                let mut inner = self.lock();
                let child = inner.children.iter_mut().find(|child| child.id == id);
                child.into_iter().for_each(|child| child.cache = Arc::downgrade(&cache));
            }
            Err(error) => {
                family.is_broken(id, &error);
                self.has_no_snapshot(id);
            }
        }
    }

    /// Pages as the snapshot `child` has them that lacks them. `run`: by their numbers here.
    ///
    /// One lock after the other, from here up: there may be thousands of versions. A version that has a page has it from then
    /// on, and has it before its parent's is written. So one that lacks it still, when it was read further up, lacked it then.
    pub fn read_version(self: &Arc<Self>, child: ObjectId, run: PageRange, bytes: &mut [u8]) -> Result<Read> {
        let (mut at, mut child, mut run) = (self.clone(), child, run);
        let mut passed: Vec<(Arc<Cache>, u64)> = Vec::new();
        loop {
            match at.look(child, run, bytes)? {
                Look::Above(parent, link, lacked) => {
                    run = PageRange::new(link.first_page + lacked.first, lacked.count);
                    child = at.id;
                    passed.push((std::mem::replace(&mut at, parent), lacked.first));
                }
                Look::Here(Read::Pages(count)) => {
                    let lacks = |(cache, first): &(Arc<Cache>, u64)| {
                        let inner = cache.lock();
                        (*first..*first + count).all(|page| !inner.owns(page))
                    };
                    return Ok(if passed.iter().all(lacks) { Read::Pages(count) } else { Read::Moved });
                }
                Look::Here(other) => return Ok(other),
            }
        }
    }

    /// The first of these pages, as many as stand alike to this version.
    fn look(self: &Arc<Self>, child: ObjectId, run: PageRange, bytes: &mut [u8]) -> Result<Look> {
        let inner = self.lock();
        if !inner.children.iter().any(|one| one.id == child) {
            return Ok(Look::Here(Read::Moved));
        }
        let run = run.intersect(inner.whole());
        let kind = inner.has(run.first);
        let same = (run.first..run.end()).take_while(|page| inner.has(*page) == kind).count() as u64;
        let run = PageRange::new(run.first, same);
        let bytes = &mut bytes[..run.length_bytes() as usize];
        let is_here = |page: u64| inner.resident.contains(page as u32);
        match kind {
            Has::Yes if (run.first..run.end()).all(is_here) => {
                read_frames(&self.frames, run.first, bytes)
                    .map_err(|error| Error::io("reading frames of a snapshot's parent", &error))?;
                Ok(Look::Here(Read::Pages(run.count)))
            }
            Has::No if self.pager.is_anonymous() => match self.machine.family().parent(self.id)? {
                Some((link, Some(parent))) => Ok(Look::Above(parent, link, run)),
                None => {
                    bytes.fill(0);
                    Ok(Look::Here(Read::Pages(run.count)))
                }
                // This one waits for its parent, as long as somebody may bring that back.
                Some((_, None)) => Ok(Look::Here(Read::Bring(self.clone(), run))),
            },
            Has::Yes | Has::No | Has::Soon => Ok(Look::Here(Read::Bring(self.clone(), run))),
        }
    }

    /// Whether its snapshots lack none of these pages.
    fn snapshots_have(&self, pages: PageRange) -> bool {
        let of = |child: &Child| (child.cache.upgrade(), child.link);
        // Without this lock: who holds a snapshot's waits for it.
        let children: Vec<_> = self.lock().children.iter().map(of).collect();
        children.into_iter().all(|(cache, link)| {
            let part = PageRange::new(link.first_page, link.pages).intersect(pages);
            let of = |cache: Arc<Cache>| {
                let theirs = cache.lock();
                (part.first..part.end()).all(|page| theirs.owns(page - link.first_page))
            };
            part.is_empty() || cache.is_some_and(of)
        })
    }

    /// The turn to change what the object is, when its snapshots have what it was.
    pub(super) fn turn_without_snapshots(self: &Arc<Self>, pages: PageRange) -> MutexGuard<'_, Turn> {
        loop {
            self.complete_snapshots(pages);
            let turn = lock(&self.turn);
            if self.snapshots_have(pages) {
                return turn;
            }
        }
    }

    /// Everything that its snapshots lack of these pages they have afterwards, or are broken.
    pub fn complete_snapshots(self: &Arc<Self>, pages: PageRange) {
        let of = |child: &Child| (child.id, child.link);
        let children: Vec<_> = self.lock().children.iter().map(of).collect();
        for (id, link) in children {
            let part = PageRange::new(link.first_page, link.pages).intersect(pages);
            if part.is_empty() {
                continue;
            }
            self.complete(id, PageRange::new(part.first - link.first_page, part.count));
        }
    }

    /// The pages that this version has itself.
    pub fn pages_it_has(&self) -> Vec<PageRange> {
        let inner = self.lock();
        book::runs(&(&inner.resident | inner.book.spilled()))
    }
}

impl Inner {
    /// Whether this version has the page itself.
    fn has(&self, page: u64) -> Has {
        if self.in_flight.contains(page as u32) {
            Has::Soon
        } else if self.owns(page) {
            Has::Yes
        } else {
            Has::No
        }
    }

    /// The same, also of what is just leaving its memory, or coming back from the spill file.
    fn owns(&self, page: u64) -> bool {
        self.resident.contains(page as u32) || self.book.spilled().contains(page as u32)
    }

    /// Of bytes that come from a larger object, those past this one's end are zero.
    fn cut_past_end(&self, page: u64, bytes: &mut [u8]) {
        let end = self.size_bytes.saturating_sub(page * PAGE_SIZE_BYTES).min(bytes.len() as u64) as usize;
        bytes[end..].fill(0);
    }
}
