//! Frames that are there come into page tables: of the page that a thread touched, and of those after it that it will
//! want next.

use super::fault::{Ahead, Answer, wake};
use super::view::Mapping;
use super::{Cache, Inner, lock};
use crate::faults::stream::CLUSTER_PAGES;
use commonhold_object::{PAGE_SIZE_BYTES, PageRange};
use commonhold_sys::frames;
use commonhold_sys::userfaultfd::Kind;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most pages with frames that one sequential fault shows: 64 MiB. To show one takes a quarter of the time that it takes
/// to read it, so the reader meets no further fault meanwhile.
const SHOWN_PAGES: u64 = 16_384;

static ZERO_PAGE: [u8; PAGE_SIZE_BYTES as usize] = [0; PAGE_SIZE_BYTES as usize];

impl Cache {
    /// Maps frames that exist, from the first page of `range` on, as many as the stream suggests: some now, the rest when
    /// the thread runs on.
    pub(super) fn show_resident(
        self: &Arc<Self>,
        inner: &mut Inner,
        mapping: &Arc<Mapping>,
        range: PageRange,
        write: bool,
    ) -> Answer {
        let most = if inner.rights.is_none() { SHOWN_PAGES } else { CLUSTER_PAGES };
        let mut stream = lock(&mapping.stream);
        let wanted = stream.cluster(range.first, most).min(range.count);
        let count = inner.resident_run(range, wanted.min(CLUSTER_PAGES)).max(1);
        stream.advance(range.first, count);
        drop(stream);
        self.machine.counters.installed.fetch_add(count, Ordering::Relaxed);
        self.show(inner, mapping, range.first, write);
        if count > 1 {
            self.show_run(inner, mapping, PageRange::new(range.first + 1, count - 1));
        }
        self.show_around(inner, mapping, range.first);
        let rest = PageRange::new(range.first + count, wanted - count);
        if count < CLUSTER_PAGES || rest.is_empty() {
            return Answer::Done;
        }
        Answer::Ahead(Ahead::Show { cache: self.clone(), mapping: mapping.clone(), rest })
    }

    /// Maps the next part of what a sequential reader will want; gives what is left. Nothing is, if it reads elsewhere
    /// by now, or if somebody has the object's lock.
    pub(super) fn show_part(self: Arc<Self>, mapping: Arc<Mapping>, rest: PageRange) -> Option<Ahead> {
        let mut inner = self.lock_soon()?;
        let view = inner.view_of(&mapping, rest.first)?;
        let rest = rest.intersect(inner.views[view].pages).intersect(inner.whole());
        let rest = PageRange::new(rest.first, rest.end().min(inner.closing).saturating_sub(rest.first));
        let count = inner.resident_run(rest, CLUSTER_PAGES);
        if count == 0 || !lock(&mapping.stream).goes_on(rest.first, count) {
            return None;
        }
        self.machine.counters.installed.fetch_add(count, Ordering::Relaxed);
        self.show_run(&mut inner, &mapping, PageRange::new(rest.first, count));
        drop(inner);
        let rest = PageRange::new(rest.first + count, rest.count - count);
        (count == CLUSTER_PAGES && !rest.is_empty()).then_some(Ahead::Show { cache: self, mapping, rest })
    }

    /// Maps the frame of the very page a thread waits for, and wakes it.
    pub(super) fn show(&self, inner: &mut Inner, mapping: &Arc<Mapping>, page: u64, write: bool) {
        if !inner.may(page, false) {
            wake(mapping, page); // it went to another host meanwhile: it faults anew
            return;
        }
        let mut protect = mapping.writes_object();
        if protect && write && !inner.holds_writers() && inner.may(page, true) {
            if mapping.kind == Kind::Synchronous {
                if self.write_waits(inner, mapping, page) {
                    return;
                }
                self.note_write(inner, page);
            }
            protect = false;
        }
        let address = mapping.address_of(page);
        let progress = mapping.uffd.continue_(address, PAGE_SIZE_BYTES, protect);
        match progress.stopped_by {
            None => inner.installed(mapping, PageRange::new(page, 1)),
            // Mapped meanwhile, by the fault of another thread: this one need only look again.
            Some(Errno::EXIST) => wake(mapping, page),
            // Granted to a client that fills its own zeros, which it has not done yet.
            Some(Errno::FAULT) if self.is_zero_until_written(inner, page) => {
                self.show_zeros(inner, mapping, page, protect);
            }
            // Somebody with the descriptor punched it. What is stored can be had again.
            Some(Errno::FAULT) if !inner.book.is_dirty(page as u32) => {
                if inner.resident.remove(page as u32) {
                    self.give_back(1);
                }
                wake(mapping, page);
            }
            Some(Errno::FAULT) => {
                self.machine.log(format_args!("object {}: the frame of page {page} is lost", self.id.0));
                inner.refuse(mapping, page);
            }
            // The mapping is gone, or its process: nobody waits there any more.
            Some(_) => wake(mapping, page),
        }
    }

    fn is_zero_until_written(&self, inner: &Inner, page: u64) -> bool {
        let at = page as u32;
        // A page that a client was just filling with zeros counts as written before its frame is there.
        let claimed =
            || inner.views.iter().any(|v| v.pages.contains(page) && v.mapping.claim_of(page).is_some());
        self.pager.is_anonymous()
            && !self.pager.has_parent()
            && !inner.book.spilled().contains(at)
            && (!inner.book.is_dirty(at) || claimed())
    }

    fn show_zeros(&self, inner: &mut Inner, mapping: &Arc<Mapping>, page: u64, protect: bool) {
        let address = mapping.address_of(page);
        let progress = if mapping.writes_object() {
            mapping.uffd.copy(address, &ZERO_PAGE, protect)
        } else {
            // Makes the frame unless somebody just did, and never touches one that is there.
            let _ = frames::make_page(&*self.frames, page * PAGE_SIZE_BYTES); // no memory: it asks again
            mapping.uffd.continue_(address, PAGE_SIZE_BYTES, protect)
        };
        match progress.stopped_by {
            None => inner.installed(mapping, PageRange::new(page, 1)),
            Some(_) => wake(mapping, page), // filled meanwhile: it faults anew, and finds the frame
        }
    }

    /// Maps a run of frames, protected; what is mapped already is passed over.
    pub(super) fn show_run(&self, inner: &mut Inner, mapping: &Arc<Mapping>, range: PageRange) {
        let protect = mapping.writes_object();
        let mut at = range.first;
        while at < range.end() {
            let address = mapping.address_of(at);
            let progress = mapping.uffd.continue_(address, (range.end() - at) * PAGE_SIZE_BYTES, protect);
            let done = progress.done / PAGE_SIZE_BYTES;
            inner.installed(mapping, PageRange::new(at, done));
            at += done;
            match progress.stopped_by {
                None => return,
                Some(Errno::EXIST) => at += 1,
                Some(_) => return,
            }
        }
    }
}

impl Inner {
    /// How many pages from the start of `range` have frames and may be read, at most so many.
    fn resident_run(&self, range: PageRange, most: u64) -> u64 {
        let is_shown = |page: &u64| {
            let at = *page as u32;
            self.resident.contains(at) && !self.in_flight.contains(at) && self.may(*page, false)
        };
        (range.first..range.first + most.min(range.count)).take_while(is_shown).count() as u64
    }
}
