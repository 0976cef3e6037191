//! Bringing pages into memory: from zeros, the spill file, or the pager.

use super::fault::{Ahead, Answer, Cluster};
use super::view::{Mapping, View};
use super::{Cache, Inner, book, lock};
use crate::arriving::Arrival;
use crate::asker;
use crate::faults::stream::CLUSTER_PAGES;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, PAGE_SIZE_BYTES, PageRange, Result, limits};
use commonhold_sys::memory::FileWindow;
use commonhold_sys::userfaultfd::Kind;
use roaring::RoaringBitmap;
use rustix::io::Errno;
use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, RwLockReadGuard};
use std::time::{Duration, Instant};

/// Pages brought in between two looks at who waits: the thread runs on while the rest of its cluster comes.
const PART_PAGES: u64 = 64;
/// The first part of a cluster is smaller: somebody waits for it.
const FIRST_PART_PAGES: u64 = 16;
/// From this size on, pages of a file are copied straight from the page cache.
const WINDOW_PAGES: u64 = 8;

/// How long somebody waits for his other pages to come before more are asked for.
const MOST_WAIT: Duration = Duration::from_secs(60);

/// Pages that a client may fill with zeros after it asked for one.
const GRANT_PAGES: u64 = 256;

static ZEROS: [u8; (PART_PAGES * PAGE_SIZE_BYTES) as usize] = [0; (PART_PAGES * PAGE_SIZE_BYTES) as usize];

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Where the content of a run of absent pages is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Zeros,
    Spill,
    Pager,
}

impl Cache {
    fn source(&self, inner: &Inner, page: u64) -> Source {
        if inner.book.spilled().contains(page as u32) {
            Source::Spill
        } else if self.pager.is_anonymous() && !self.pager.has_parent() {
            Source::Zeros
        } else {
            Source::Pager
        }
    }

    /// How many pages from the start of `range` are absent, idle, and come from the same source.
    fn absent_run(&self, inner: &Inner, range: PageRange, most: u64) -> (Source, u64) {
        let source = self.source(inner, range.first);
        let mut count = 0;
        while count < most.min(range.count) {
            let page = (range.first + count) as u32;
            let busy = inner.resident.contains(page)
                || inner.in_flight.contains(page)
                || count > 0 && !inner.may(page.into(), false);
            if busy || self.source(inner, range.first + count) != source {
                break;
            }
            count += 1;
        }
        (source, count)
    }

    /// A fault on a page without a frame. `range` begins at the page and ends with the view.
    pub(super) fn bring_missing(
        self: &Arc<Self>,
        mut inner: MutexGuard<'_, Inner>,
        mapping: &Arc<Mapping>,
        range: PageRange,
        write: bool,
    ) -> Answer {
        let most = (self.traits.limit_pages.min(self.machine.budget.limit_pages()) / 8).max(1);
        let most = most.min(self.most_arriving());
        let mut stream = lock(&mapping.stream);
        let cluster = stream.cluster(range.first, CLUSTER_PAGES).min(most);
        let (source, count) = self.absent_run(&inner, range, cluster);
        stream.advance(range.first, count);
        drop(stream);
        let run = PageRange::new(range.first, count);
        book::insert(&mut inner.in_flight, run);
        inner.wait_for(mapping, run.first, write);
        drop(inner);
        let waits = source == Source::Pager && self.pager.would_wait(run.offset_bytes());
        if waits && self.ask_pager(mapping, run) {
            return Answer::Elsewhere;
        }
        if waits || !self.try_take(count) {
            let (this, mapping) = (self.clone(), mapping.clone());
            book::insert(&mut self.lock().queued, run);
            self.run_fault(move || this.bring_slowly(&mapping, run, waits));
            return if waits { Answer::Elsewhere } else { Answer::Done };
        }
        if source == Source::Zeros {
            self.grant_zeros(mapping, run.end());
        }
        self.evict_ahead();
        let cluster = Cluster { cache: self.clone(), mapping: mapping.clone(), rest: run, first: true };
        let rest = self.clone().bring_part(cluster);
        rest.map_or(Answer::Done, |rest| Answer::Ahead(Ahead::Bring(rest)))
    }

    /// A client that serves itself asked through its ordinary mapping: let it fill the next pages with zeros without
    /// asking again. Their room is taken, and they count as resident, from now on.
    fn grant_zeros(&self, mapping: &Arc<Mapping>, first: u64) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        if !inner.views.any_claims() {
            return;
        }
        let own = |v: &&View| v.mapping.session == mapping.session && v.mapping.claims.is_some();
        let Some(view) = inner.views.iter().filter(own).find(|v| v.pages.contains(first)) else { return };
        let (target, end) = (view.mapping.clone(), view.pages.end().min(inner.size_pages()));
        let range = PageRange::new(first, end.saturating_sub(first));
        if range.is_empty() {
            return;
        }
        let (source, count) = self.absent_run(inner, range, GRANT_PAGES);
        if source != Source::Zeros || count == 0 || !self.try_take(count) {
            return;
        }
        // Only those that it takes: a page that is neither granted nor there would count as written and lost.
        let taken = |page: &u64| target.claim_of(*page).is_some_and(|(claims, at)| claims.grant_zero(at));
        let granted: RoaringBitmap = (first..first + count).filter(taken).map(|page| page as u32).collect();
        self.give_back(count - granted.len());
        inner.order.extend(book::runs(&granted));
        inner.resident |= granted;
    }

    /// The same on a worker: make room first, then bring everything.
    pub(super) fn bring_slowly(self: &Arc<Self>, mapping: &Arc<Mapping>, run: PageRange, whole: bool) {
        let Some(run) = self.begin_queued(run) else { return };
        // The room of a cluster that could not be taken at once is taken for the one page somebody waits for.
        let wanted = if whole { run } else { PageRange::new(run.first, 1) };
        self.not_coming(PageRange::new(wanted.end(), run.end() - wanted.end()));
        let _acting = mapping.asker.acts();
        let _arrival = match self.room_to_arrive(wanted.count) {
            Ok(arrival) => arrival,
            Err(error) => {
                let mut inner = self.lock();
                book::remove(&mut inner.in_flight, wanted);
                self.not_brought(&mut inner, wanted, &error);
                return;
            }
        };
        let mut next =
            Some(Cluster { cache: self.clone(), mapping: mapping.clone(), rest: wanted, first: true });
        while let Some(cluster) = next {
            next = self.clone().bring_part(cluster);
        }
    }

    /// A thread is free for what was queued. Gives what is left to bring: the rest somebody else has, who had to wait for it; and
    /// what lies behind that is asked for anew.
    fn begin_queued(&self, run: PageRange) -> Option<PageRange> {
        let mut inner = self.lock();
        let mine = book::within(&inner.queued, run);
        inner.queued -= &mine;
        drop(inner);
        let mut mine = book::runs(&mine).into_iter();
        let first = mine.next();
        mine.for_each(|later| self.not_coming(later));
        first
    }

    /// Pages could not be had for whom this thread acts. If he has gone, others who wait ask for themselves.
    pub(super) fn not_brought(&self, inner: &mut Inner, range: PageRange, error: &Error) {
        if asker::is_wanted() {
            self.fail(inner, range, error);
        } else {
            self.settle(inner, range);
        }
    }

    /// The most pages that are brought at once from a pager that may never answer.
    fn most_arriving(&self) -> u64 {
        const AT_ONCE: u64 = limits::PAGER_BYTES / PAGE_SIZE_BYTES;
        if self.pager.may_block() { AT_ONCE.min(self.machine.arriving.of_one_user()) } else { u64::MAX }
    }

    /// The ordinary user for whom pages on their way to or from the pager count, if that is another process.
    pub(super) fn pays_for_pager(&self) -> Option<u32> {
        let uid = asker::Asker::acting().map_or(self.traits.uid, |asker| asker.uid);
        (self.pager.may_block() && self.machine.is_ordinary(uid)).then_some(uid)
    }

    /// Waits until so many pages more may be on their way to or from the pager, if that is another process.
    pub(super) fn on_its_way(&self, pages: u64) -> Result<Option<Arrival>> {
        let Some(uid) = self.pays_for_pager() else { return Ok(None) };
        let arriving = &self.machine.arriving;
        let arrival = arriving.wait(uid, pages.min(arriving.of_one_user()), Instant::now() + MOST_WAIT);
        arrival.map(Some).ok_or_else(|| {
            Error::new(
                ErrorKind::Pager,
                format!(
                    "user {uid} waits for pagers to answer for {} pages, as many as one user may, and none did within \
                     {} s: see what the pagers are doing, or start them again, then try again",
                    arriving.of_one_user(),
                    MOST_WAIT.as_secs()
                ),
            )
        })
    }

    fn room_to_arrive(self: &Arc<Self>, pages: u64) -> Result<Option<Arrival>> {
        let arrival = self.on_its_way(pages)?;
        self.make_room(pages).map(|()| arrival)
    }

    /// Pages announced as in flight that will not be brought after all.
    fn not_coming(&self, range: PageRange) {
        if range.is_empty() {
            return;
        }
        let mut inner = self.lock();
        book::remove(&mut inner.in_flight, range);
        self.settle(&mut inner, range);
    }

    /// Brings the next part of a cluster whose room is taken and whose pages are in flight.
    pub(super) fn bring_part(self: Arc<Self>, cluster: Cluster) -> Option<Cluster> {
        let part_pages = if cluster.first { FIRST_PART_PAGES } else { PART_PAGES };
        let part = PageRange::new(cluster.rest.first, cluster.rest.count.min(part_pages));
        let rest = PageRange::new(part.end(), cluster.rest.count - part.count);
        match self.bring(Some(&cluster.mapping), part) {
            Ok(()) if rest.is_empty() => None,
            Ok(()) => Some(Cluster { rest, first: false, ..cluster }),
            Err((error, from)) => {
                let mut inner = self.lock();
                self.abandon(&mut inner, PageRange::new(from, cluster.rest.end() - from));
                self.not_brought(&mut inner, PageRange::new(from, part.end() - from), &error);
                self.settle(&mut inner, rest);
                None
            }
        }
    }

    /// Pages that could not be brought are idle again, and their room is free.
    pub(super) fn abandon(&self, inner: &mut Inner, range: PageRange) {
        let left = book::within(&inner.in_flight, range);
        self.give_back(left.len());
        inner.in_flight -= left;
    }

    /// Brings pages in whose room is taken and which are in flight, into the page tables of `mapping` if that
    /// is given. An error names the first page that was not brought: from there on they are still in flight and their
    /// room is still taken.
    fn bring(
        &self,
        mapping: Option<&Arc<Mapping>>,
        part: PageRange,
    ) -> std::result::Result<(), (Error, u64)> {
        let mut at = part.first;
        while at < part.end() {
            let rest = PageRange::new(at, part.end() - at);
            at = self.bring_run(mapping, rest).map_err(|error| (error, at))?;
        }
        Ok(())
    }

    /// Brings the pages at the start of `part` that come from the same source; gives the page after them.
    fn bring_run(&self, mapping: Option<&Arc<Mapping>>, part: PageRange) -> Result<u64> {
        let begun = Instant::now();
        let (source, same) = {
            let inner = self.lock();
            let source = self.source(&inner, part.first);
            let same =
                (part.first..part.end()).take_while(|p| self.source(&inner, *p) == source).count() as u64;
            (source, same)
        };
        let run = PageRange::new(part.first, same);
        let shown = self.place(mapping, run, source)?;
        self.placed(mapping, run, shown, begun);
        Ok(run.end())
    }

    /// Pages that were in flight since then have frames with their content. `shown`: they stand in the mapping's page tables.
    pub(super) fn placed(&self, mapping: Option<&Arc<Mapping>>, run: PageRange, shown: bool, begun: Instant) {
        let mut inner = self.lock();
        if self.pager.has_parent() {
            // What it is a snapshot of may be written from now on.
            self.record(&mut inner, &book::set_of(run));
        }
        book::insert(&mut inner.resident, run);
        book::remove(&mut inner.in_flight, run);
        inner.order.push_back(run);
        if let (Some(mapping), true) = (mapping, shown) {
            if inner.shows(mapping, run) {
                inner.installed(mapping, run);
            } else if mapping.kind != Kind::Synchronous {
                // It went before this was noted: its last look may have come too early.
                self.record(&mut inner, &book::set_of(run));
            }
            // Placing them woke this mapping's own threads that waited then. One that has come since (to write under
            // synchronous protection, or because its entry went again) is answered below.
            inner.waiting.retain(|w| {
                !(Arc::ptr_eq(&w.mapping, mapping) && run.contains(w.page.into()) && w.since < begun)
            });
        }
        self.machine.counters.installed.fetch_add(run.count, Ordering::Relaxed);
        self.settle(&mut inner, run);
        // The frames of a reader came into being past its page tables. It wants the next ones, too.
        if let Some(reader) = mapping.filter(|mapping| !shown && !mapping.writes_object())
            && inner.rights.is_none()
            && inner.shows(reader, run)
        {
            self.show_run(&mut inner, reader, run);
        }
    }

    /// Makes frames with their content; whether they stand in the mapping's page tables too.
    fn place(&self, mapping: Option<&Arc<Mapping>>, run: PageRange, source: Source) -> Result<bool> {
        let length = run.length_bytes() as usize;
        if source == Source::Zeros {
            return self.place_bytes(mapping, run, &ZEROS[..length]);
        }
        if source == Source::Pager {
            self.make_whole()?;
        }
        let mut done = 0;
        let whole_pages = run.end() * PAGE_SIZE_BYTES <= self.size_bytes();
        if let (Source::Pager, Some(file), true) =
            (source, self.pager.window(), run.count >= WINDOW_PAGES && whole_pages)
            && let Some((target, _gate)) = self.target(mapping, run)
            && let Ok(window) = FileWindow::open(file, run.offset_bytes(), length)
        {
            // SAFETY: the window maps `length` bytes and lives until the call is over.
            let progress = unsafe {
                target.uffd.copy_raw(target.address_of(run.first), window.as_ptr(), length as u64, true)
            };
            if progress.stopped_by.is_none() {
                return Ok(true);
            }
            // What was copied is in use already, and must not be touched again.
            done = progress.done;
        }
        let run = PageRange::new(run.first + done / PAGE_SIZE_BYTES, run.count - done / PAGE_SIZE_BYTES);
        let length = run.length_bytes() as usize;
        // Taken, not borrowed: what a snapshot lacks may have to be brought to where it is first.
        let mut buffer = BUFFER.take();
        buffer.resize(length, 0);
        let read = match source {
            Source::Spill => lock(&self.spill).read(run.first, &mut buffer),
            _ => self.pager.page_in(run.offset_bytes(), &mut buffer),
        };
        let placed = read.and_then(|()| self.place_bytes(mapping, run, &buffer));
        BUFFER.set(buffer);
        placed
    }

    /// The mapping through which pages can be placed, if it shows all of them, and goes on to for as long as the gate
    /// is held: afterwards something else may be at its addresses.
    fn target<'m>(
        &self,
        mapping: Option<&'m Arc<Mapping>>,
        run: PageRange,
    ) -> Option<(&'m Arc<Mapping>, RwLockReadGuard<'m, ()>)> {
        let mapping = mapping.filter(|m| m.writes_object())?;
        let gate = mapping.gate.read().unwrap_or_else(PoisonError::into_inner);
        self.lock().shows(mapping, run).then_some((mapping, gate))
    }

    /// Puts bytes into frames, through the mapping's page table if that can be. A frame that is there already is left
    /// alone: it can only be newer.
    pub(super) fn place_bytes(
        &self,
        mapping: Option<&Arc<Mapping>>,
        run: PageRange,
        bytes: &[u8],
    ) -> Result<bool> {
        let mut done = 0;
        if let Some((target, _gate)) = self.target(mapping, run) {
            let protect = !self.single_write(target, run);
            while done < bytes.len() {
                let address = target.address_of(run.first) + done as u64;
                let progress = target.uffd.copy(address, &bytes[done..], protect);
                done += progress.done as usize;
                match progress.stopped_by {
                    None => return Ok(true),
                    Some(Errno::EXIST) => {
                        target.uffd.continue_(
                            target.address_of(run.first) + done as u64,
                            PAGE_SIZE_BYTES,
                            true,
                        );
                        done += PAGE_SIZE_BYTES as usize;
                    }
                    Some(Errno::NOMEM) => {
                        return Err(Error::new(
                            ErrorKind::NoSpace,
                            "no memory for a frame: free some, or lower the budget",
                        ));
                    }
                    Some(_) => break,
                }
            }
            if done == bytes.len() {
                return Ok(true);
            }
        }
        // Nobody's mapping, a reader's, or one that went away in between: the frame comes into being all the same,
        // and who waits for it is shown it afterwards.
        let first = run.first + done as u64 / PAGE_SIZE_BYTES;
        self.write_frames(first, &bytes[done..]).doing("making a frame")?;
        Ok(false)
    }

    /// A single page brought in for a write may be writable at once (asynchronous protection: an unprotected
    /// page counts as written).
    fn single_write(&self, mapping: &Arc<Mapping>, run: PageRange) -> bool {
        if run.count != 1 || mapping.kind == Kind::Synchronous {
            return false;
        }
        let inner = self.lock();
        inner
            .waiting
            .iter()
            .any(|w| w.write && u64::from(w.page) == run.first && Arc::ptr_eq(&w.mapping, mapping))
    }

    /// Brings in all absent pages of `range` and waits for those that others bring. For locks, prefetch and
    /// copies; runs on a worker.
    pub fn bring_all(self: &Arc<Self>, range: PageRange) -> Result<()> {
        if !self.has_pages() {
            return self.ask_ahead(range);
        }
        let mut at = range.first;
        while at < range.end() {
            let mut inner = self.lock();
            let end = range.end().min(inner.size_pages()).min(inner.closing);
            if at >= end {
                return Ok(());
            }
            // It may be that all threads which are to bring what is queued are here: then none would.
            let was_queued = inner.queued.remove(at as u32);
            if inner.in_flight.contains(at as u32) && !was_queued {
                drop(self.wait_settled(inner));
                continue;
            }
            if inner.resident.contains(at as u32) {
                at += 1;
                continue;
            }
            let most = PART_PAGES.min(self.most_arriving());
            let (_, count) = self.absent_run(&inner, PageRange::new(at, end - at), most);
            let count = if was_queued { 1 } else { count };
            let run = PageRange::new(at, count);
            book::insert(&mut inner.in_flight, run);
            drop(inner);
            let _arrival = match self.room_to_arrive(count) {
                Ok(arrival) => arrival,
                Err(error) => {
                    self.not_coming(run);
                    return Err(error);
                }
            };
            if let Err((error, from)) = self.bring(None, run) {
                let mut inner = self.lock();
                self.abandon(&mut inner, PageRange::new(from, run.end() - from));
                self.settle(&mut inner, run);
                return Err(error);
            }
            at += count;
        }
        Ok(())
    }
}
