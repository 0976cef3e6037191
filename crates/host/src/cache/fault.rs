//! One fault: a thread touched a page that its page table does not have, or that is protected.
//!
//! Each way out either wakes the thread with the page in place, leaves it waiting for somebody who will
//! (`in_flight`, `frozen`), or ends its wait with SIGBUS. Nothing is ever installed writable before the book
//! could learn of a write: protected, or, for the very page whose write is being answered, unprotected and
//! thereby "written" to the next scan.

use super::view::Mapping;
use super::{Cache, Inner, Refused, Waiting, book};
use crate::faults::stream::CLUSTER_PAGES;
use crate::seeing;
use crate::shared::Touch;
use commonhold_object::{Error, PAGE_SIZE_BYTES, PageRange};
use commonhold_sys::userfaultfd::Fault;
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

/// Most pages that are asked for at once: 512 KiB.
const PIECE_PAGES: u64 = 128;

/// What came of a fault.
pub enum Answer {
    /// It was answered, or somebody here will.
    Done,
    /// It was, and more of the same stream is wanted.
    Ahead(Ahead),
    /// Another host was asked, or another process: it takes its time.
    Elsewhere,
}

/// More pages of the same stream, which are wanted after the thread was woken.
pub enum Ahead {
    /// They are to be brought in.
    Bring(Cluster),
    /// They have frames.
    Show {
        /// Of which object.
        cache: Arc<Cache>,
        /// Where.
        mapping: Arc<Mapping>,
        /// Which.
        rest: PageRange,
    },
}

/// Pages in flight whose room is taken.
pub struct Cluster {
    pub(super) cache: Arc<Cache>,
    pub(super) mapping: Arc<Mapping>,
    pub(super) rest: PageRange,
    pub(super) first: bool,
}

impl Ahead {
    /// Whether somebody may wait for it: it is in flight. Else it is only sooner there.
    pub fn is_owed(&self) -> bool {
        matches!(self, Ahead::Bring(_))
    }

    /// Deals with the next part; gives what is left.
    pub fn go_on(self) -> Option<Ahead> {
        match self {
            Ahead::Bring(cluster) => cluster.cache.clone().bring_part(cluster).map(Ahead::Bring),
            Ahead::Show { cache, mapping, rest } => cache.show_part(mapping, rest),
        }
    }
}

impl Cache {
    /// Answers a fault of `mapping`.
    pub fn fault(self: &Arc<Self>, mapping: &Arc<Mapping>, fault: Fault) -> Answer {
        let page = mapping.page_at(fault.address);
        mapping.faults.fetch_add(1, Ordering::Relaxed);
        self.machine.counters.faults.fetch_add(1, Ordering::Relaxed);
        self.seen.fault(page, seeing::Fault::new(fault.write, fault.protected));
        let writes = fault.write || fault.protected;
        match self.lock_soon().filter(|inner| !writes || !inner.book.notes_on_disk(page as u32)) {
            Some(inner) => self.answer(inner, mapping, fault),
            None => self.answer_apart(mapping, fault),
        }
    }

    /// Who holds the object's lock may wait for a client, and a first write for a disk: another thread waits for that, one of the
    /// object's own.
    fn answer_apart(self: &Arc<Self>, mapping: &Arc<Mapping>, fault: Fault) -> Answer {
        /// More than an object has waiting threads, unless somebody ends and begins them without end.
        const MOST: usize = 4096;
        if self.apart_faults.fetch_add(1, Ordering::Relaxed) >= MOST {
            self.apart_faults.fetch_sub(1, Ordering::Relaxed);
            wake(mapping, mapping.page_at(fault.address)); // it faults anew
            return Answer::Done;
        }
        let (this, mapping) = (self.clone(), mapping.clone());
        let job = move || {
            let mut next = match this.answer(this.lock(), &mapping, fault) {
                Answer::Ahead(ahead) => Some(ahead),
                Answer::Done | Answer::Elsewhere => None,
            };
            while let Some(ahead) = next {
                next = ahead.go_on();
            }
            this.apart_faults.fetch_sub(1, Ordering::Relaxed);
        };
        self.apart.run_within(self.share_now(), &self.machine.bringing, job);
        Answer::Done
    }

    fn answer(
        self: &Arc<Self>,
        mut inner: MutexGuard<'_, Inner>,
        mapping: &Arc<Mapping>,
        fault: Fault,
    ) -> Answer {
        let page = mapping.page_at(fault.address);
        let Some(view) = inner.view_of(mapping, page) else {
            // Taken out since it was looked up: what is there now is looked up anew.
            wake(mapping, page);
            return Answer::Done;
        };
        let within = inner.views[view].pages.intersect(inner.whole());
        if !within.contains(page) {
            inner.refuse(mapping, page); // the object was shrunk after the touch
            return Answer::Done;
        }
        let writes = fault.write || fault.protected;
        if page >= inner.closing {
            inner.wait(mapping, page, writes);
            return Answer::Done;
        }
        let within = PageRange::new(within.first, within.end().min(inner.closing) - within.first);
        if !inner.may(page, writes) {
            self.ask_the_scheduler(inner, mapping, PageRange::new(page, within.end() - page), writes);
            return if self.lock().may(page, writes) { Answer::Done } else { Answer::Elsewhere };
        }
        if fault.protected {
            self.protected_write(&mut inner, mapping, page);
            return Answer::Done;
        }
        if inner.in_flight.contains(page as u32) {
            inner.wait(mapping, page, fault.write);
            return Answer::Done;
        }
        if !fault.missing && !inner.resident.contains(page as u32) && self.has_frame(page) {
            self.adopt_frame(&mut inner, page);
        }
        if inner.resident.contains(page as u32) {
            let range = PageRange::new(page, within.end() - page);
            let answer = self.show_resident(&mut inner, mapping, range, fault.write);
            if !fault.write && inner.rights.is_some() {
                self.ask_further(inner, mapping, within.end());
            }
            return answer;
        }
        let range = PageRange::new(page, within.end() - page);
        self.bring_missing(inner, mapping, range, fault.write)
    }

    /// Another host may have the page, or this one may not use it so: whoever waits is answered when it may. Reads that
    /// go on one after the other ask for several at once.
    fn ask_the_scheduler(
        self: &Arc<Self>,
        mut inner: MutexGuard<'_, Inner>,
        mapping: &Arc<Mapping>,
        range: PageRange,
        write: bool,
    ) {
        inner.wait(mapping, range.first, write);
        if write {
            drop(inner);
            return self.ask_for(PageRange::new(range.first, 1), Touch::Write);
        }
        let mut stream = super::lock(&mapping.stream);
        let cluster = stream.cluster(range.first, CLUSTER_PAGES).min(range.count);
        let count = Self::lacking(&inner, range, cluster).max(1);
        stream.asked_until(range.first + count);
        stream.advance(range.first, 1); // so many are shown when they come
        drop((stream, inner));
        if count == 1 && mapping.writes_object() {
            self.ask_for(PageRange::new(range.first, 1), Touch::ReadToWrite);
        } else {
            self.ask_in_pieces(PageRange::new(range.first, count));
        }
        self.ask_further(self.lock(), mapping, range.end());
    }

    /// Asks for what a sequential reader will want next.
    fn ask_further(self: &Arc<Self>, inner: MutexGuard<'_, Inner>, mapping: &Arc<Mapping>, end: u64) {
        let Some((first, most)) = super::lock(&mapping.stream).ask_ahead(end) else { return };
        let count = Self::lacking(&inner, PageRange::new(first, most), most);
        drop(inner);
        if count > 0 {
            self.ask_in_pieces(PageRange::new(first, count));
        }
    }

    /// Several requests, so that the first pages can be read while the last are on their way.
    fn ask_in_pieces(self: &Arc<Self>, pages: PageRange) {
        let mut at = pages.first;
        while at < pages.end() {
            let count = (pages.end() - at).min(PIECE_PAGES);
            self.ask_for(PageRange::new(at, count), Touch::Read);
            at += count;
        }
    }

    /// The kernel says that there is a frame which the host did not make: a client's thread did (in-thread service, in
    /// the instant of a take-over; a `write` to the descriptor). It counts from now on, and is dirty.
    fn adopt_frame(&self, inner: &mut Inner, page: u64) {
        inner.resident.insert(page as u32);
        inner.order.push_back(PageRange::new(page, 1));
        self.budget.take_anyway(1);
        self.machine.budget.take_anyway(1);
        self.note_write(inner, page);
    }

    /// A write to a protected page of a mapping under synchronous protection.
    fn protected_write(&self, inner: &mut Inner, mapping: &Arc<Mapping>, page: u64) {
        if inner.holds_writers() || inner.in_flight.contains(page as u32) {
            inner.wait(mapping, page, true);
            return;
        }
        if !inner.resident.contains(page as u32) {
            wake(mapping, page); // evicted since the touch: it faults anew, on a missing page
            return;
        }
        if self.write_waits(inner, mapping, page) {
            return;
        }
        self.note_write(inner, page);
        match mapping.uffd.unprotect(mapping.address_of(page), PAGE_SIZE_BYTES) {
            Ok(()) => {}
            Err(_) => wake(mapping, page),
        }
    }

    /// The book learns of a write before it happens.
    pub(super) fn note_write(&self, inner: &mut Inner, page: u64) {
        inner.unprotected.insert(page as u32);
        if !inner.book.is_noted(page as u32) {
            self.note_writes(inner, PageRange::new(page, 1));
        }
    }

    pub(super) fn note_writes(&self, inner: &mut Inner, pages: PageRange) {
        let set = book::set_of(pages);
        inner.unprotected |= &set;
        if let Err(error) = inner.book.add_dirty(&set) {
            self.machine.log(format_args!(
                "object {}: dirty pages are known to this process only: {error}",
                self.id.0
            ));
        }
        for run in inner.book.unspill(&set) {
            super::lock(&self.spill).forget(run.first, run.count);
        }
        self.tell_soon(inner);
    }

    /// Pages left `in_flight`, or may be used now: whoever waited for them is answered. Those in flight still are not: what
    /// is written into a page while an eviction saves it would be lost.
    pub(super) fn settle(&self, inner: &mut Inner, range: PageRange) {
        inner.note_there(range);
        if !inner.waiting.is_empty() {
            let mut waiting = std::mem::take(&mut inner.waiting);
            let is_served =
                |w: &mut Waiting| range.contains(u64::from(w.page)) && !inner.in_flight.contains(w.page);
            let now: Vec<_> = waiting.extract_if(.., is_served).collect();
            inner.waiting = waiting;
            for waiter in now {
                self.seen.waited(waiter.since.elapsed());
                if inner.resident.contains(waiter.page)
                    && inner.view_of(&waiter.mapping, waiter.page.into()).is_some()
                {
                    self.show(inner, &waiter.mapping, waiter.page.into(), waiter.write);
                    self.show_around(inner, &waiter.mapping, waiter.page.into());
                } else {
                    wake(&waiter.mapping, waiter.page.into()); // it faults anew
                }
            }
        }
        self.settled.ring();
    }

    /// Pages that cannot be had: whoever waited for them gets SIGBUS, nobody else.
    pub(super) fn fail(&self, inner: &mut Inner, range: PageRange, error: &Error) {
        self.machine.log(format_args!(
            "object {}: pages {}..{} cannot be had: {error}",
            self.id.0,
            range.first,
            range.end()
        ));
        inner.troubles.note(range, &error.message);
        inner.failures += 1;
        inner.last_failure = Some((range, error.clone()));
        let (now, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut inner.waiting).into_iter().partition(|w| range.contains(u64::from(w.page)));
        inner.waiting = later;
        for waiter in now {
            self.seen.waited(waiter.since.elapsed());
            self.seen.refused();
            inner.refuse(&waiter.mapping, waiter.page.into());
        }
        self.settled.ring();
    }
}

pub(super) fn wake(mapping: &Mapping, page: u64) {
    let _ = mapping.uffd.wake(mapping.address_of(page), PAGE_SIZE_BYTES);
}

impl Inner {
    /// Ends a thread's wait with SIGBUS: never a wrong page (DESIGN.md, rule 3).
    pub(super) fn refuse(&mut self, mapping: &Mapping, page: u64) {
        let address = mapping.address_of(page);
        let mut outcome = mapping.uffd.poison(address, PAGE_SIZE_BYTES).stopped_by;
        if outcome == Some(Errno::EXIST) && !(self.resident.contains(page as u32) && self.may(page, false)) {
            // Not a page, but the marker that protection left of one: at the home of a shared object also where there is a
            // frame, which no page table has while another host may write the page.
            let _ = mapping.uffd.drop_markers(address, PAGE_SIZE_BYTES);
            outcome = mapping.uffd.poison(address, PAGE_SIZE_BYTES).stopped_by;
        }
        if outcome.is_some() {
            wake(mapping, page);
            return;
        }
        self.refused.push(Refused { session: mapping.session, address, since: Instant::now() });
        self.machine.arm();
    }

    /// Which view of the mapping shows the page.
    pub(super) fn view_of(&self, mapping: &Arc<Mapping>, page: u64) -> Option<usize> {
        self.views.of(mapping).iter().copied().find(|at| self.views[*at].pages.contains(page))
    }

    /// Whether one view of the mapping shows all of the pages.
    pub(super) fn shows(&self, mapping: &Arc<Mapping>, pages: PageRange) -> bool {
        self.views.of(mapping).iter().any(|at| self.views[*at].pages.intersect(pages) == pages)
    }

    /// Remembers that pages stand in a mapping's page tables.
    pub(super) fn installed(&mut self, mapping: &Arc<Mapping>, pages: PageRange) {
        for n in 0..self.views.of(mapping).len() {
            let at = self.views.of(mapping)[n];
            let view = &mut self.views[at];
            book::insert(&mut view.installed, view.pages.intersect(pages));
        }
    }

    fn wait(&mut self, mapping: &Arc<Mapping>, page: u64, write: bool) {
        let Some(counted) = mapping.asker.waits() else { return wake(mapping, page) };
        self.waiting.push(Waiting {
            mapping: mapping.clone(),
            page: page as u32,
            write,
            since: Instant::now(),
            _counted: counted,
        });
        if self.has_deadline {
            self.machine.arm();
        }
    }

    /// A fault whose page somebody is going to bring.
    pub(super) fn wait_for(&mut self, mapping: &Arc<Mapping>, page: u64, write: bool) {
        self.wait(mapping, page, write);
    }
}
