//! Asking page tables what was written. Scans only ever *add* to the book.

use super::view::{Mapping, View};
use super::{Cache, Inner, book, lock};
use commonhold_object::{Error, PageRange, Result};
use commonhold_sys::one_mapping::is_one_mapping;
use commonhold_sys::userfaultfd::Kind;
use roaring::RoaringBitmap;
use std::sync::Arc;

/// Pages compared with what is stored while the lock is held.
const TRIM_PAGES: u64 = 32;
/// Of fewer pages the state of each is asked for at once: that takes as long as to look at the mapping.
const LONG_PAGES: u64 = 1024;
/// Runs of written pages that are less apart are asked for in one call.
const NEAR_PAGES: u64 = 128;

/// What one view's page tables said.
#[derive(Default)]
struct Found {
    /// Written, and mapped: to be protected after it is recorded.
    mapped: Vec<PageRange>,
    /// Written, and the kernel is moving the frame: still there in a moment.
    moving: Vec<PageRange>,
    /// Written, and no longer mapped.
    unmapped: Vec<PageRange>,
    /// Not memory of this mapping any more.
    vanished: Vec<PageRange>,
    /// Mapped, written or not.
    there: Vec<PageRange>,
    /// The question failed: nothing is known, everything may have been written.
    failed: bool,
}

impl Cache {
    /// Brings the book up to date for `range`: everything written before this call is in it afterwards, and
    /// what is in it is protected, so that the next write is noticed again.
    pub(super) fn collect(&self, inner: &mut Inner, range: PageRange) {
        self.collect_from(inner, range, 0..inner.views.len());
    }

    /// The same for some of the views: what is written through the others is left to later.
    pub(super) fn collect_from(
        &self,
        inner: &mut Inner,
        range: PageRange,
        views: impl IntoIterator<Item = usize>,
    ) {
        let range = range.intersect(inner.whole());
        let mut dirty = RoaringBitmap::new();
        let mut found = Vec::new();
        for index in views {
            let view = &inner.views[index];
            let part = view.pages.intersect(range);
            if part.is_empty() || !view.mapping.writes_object() || view.mapping.kind == Kind::Synchronous {
                continue;
            }
            let mut seen = ask(view, part);
            seen.mapped.iter().for_each(|run| book::insert(&mut dirty, *run));
            // Whatever is seen there counts as installed, however it came there.
            seen.there.iter().for_each(|run| book::insert(&mut inner.views[index].installed, *run));
            for run in &seen.moving {
                let shown = inner.views[index].may_show(*run, &inner.resident);
                seen.mapped.extend(book::runs(&shown)); // such entries can be protected
                dirty |= shown;
            }
            for run in seen.unmapped.iter().chain(&seen.vanished) {
                // Without an entry a page counts only if the host put it there: then it was written, and its
                // entry dropped (MADV_DONTNEED, reclaim), or the whole mapping went unscanned.
                let shown = inner.views[index].may_show(*run, &inner.resident);
                if !seen.failed {
                    inner.views[index].forget(&shown);
                }
                dirty |= shown;
            }
            found.push((index, seen.mapped));
        }
        self.record(inner, &dirty);
        for (index, mapped) in found {
            let mapping = &inner.views[index].mapping;
            for run in mapped {
                // What could not be protected counts as written, again and again.
                if let Err(errno) = mapping.protect(run) {
                    self.report(&cannot_protect(errno));
                }
            }
        }
    }

    /// Asks one mapping, which is about to go, what was written through it.
    pub fn gather(&self, mapping: &Arc<Mapping>, pages: PageRange) {
        let mut inner = self.lock();
        let views = inner.views.of(mapping).to_vec();
        self.collect_from(&mut inner, pages, views);
    }

    /// Takes pages out of the book that equal what is stored: after a mapping vanished unscanned, everything
    /// it had counts as written, and most of it was not. A write meanwhile is seen by the next scan.
    pub fn trim(&self) -> Result<()> {
        if self.pager.is_anonymous() || self.pager.may_block() || self.is_incomplete() {
            return Ok(());
        }
        let _turn = lock(&self.turn);
        let dirty = self.lock().book.dirty().clone();
        for run in book::runs(&dirty) {
            for first in (run.first..run.end()).step_by(TRIM_PAGES as usize) {
                self.trim_part(PageRange::new(first, TRIM_PAGES.min(run.end() - first)));
            }
        }
        Ok(())
    }

    /// Under the lock from scan to verdict: what is written after the scan is seen by the next one, and no
    /// eviction can come in between.
    fn trim_part(&self, part: PageRange) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        self.collect(inner, part);
        let candidates = (book::within(inner.book.dirty(), part) & &inner.resident) - &inner.in_flight;
        if let Err(error) = self.protect_synchronous(inner, &candidates) {
            return self.report(&error);
        }
        let equal: RoaringBitmap =
            candidates.iter().filter(|page| self.equals_stored(u64::from(*page))).collect();
        inner.book.forget(&equal);
        for run in inner.book.unspill(&equal) {
            lock(&self.spill).forget(run.first, run.count);
        }
    }

    pub(super) fn record(&self, inner: &mut Inner, dirty: &RoaringBitmap) {
        if dirty.is_empty() {
            return;
        }
        inner.touched |= dirty & &inner.leaving;
        if let Err(error) = inner.book.add_dirty(dirty) {
            self.machine.log(format_args!(
                "object {}: dirty pages are known to this process only: {error}",
                self.id.0
            ));
        }
        for run in inner.book.unspill(dirty) {
            lock(&self.spill).forget(run.first, run.count);
        }
        self.tell_soon(inner);
    }

    /// Under synchronous protection the book is exact; here its dirty pages are protected again, so that
    /// writes from now on wait for the host.
    pub(super) fn protect_synchronous(&self, inner: &Inner, pages: &RoaringBitmap) -> Result<()> {
        for view in
            inner.views.iter().filter(|v| v.mapping.kind == Kind::Synchronous && v.mapping.writes_object())
        {
            for run in book::runs(&book::within(pages, view.pages)) {
                view.mapping.protect(run).map_err(cannot_protect)?;
            }
        }
        Ok(())
    }

    /// After a punch: victims that were written before their entries went, in any view.
    pub(super) fn written_before_punch(&self, inner: &Inner, victims: &RoaringBitmap) -> RoaringBitmap {
        let mut written = RoaringBitmap::new();
        for view in inner.views.iter() {
            if !view.mapping.writes_object() || view.mapping.kind == Kind::Synchronous {
                continue;
            }
            for run in book::runs(&(book::within(victims, view.pages) & &view.installed)) {
                let seen = ask(view, run);
                for gone in seen.mapped.iter().chain(&seen.moving).chain(&seen.unmapped).chain(&seen.vanished)
                {
                    book::insert(&mut written, *gone);
                }
            }
        }
        written
    }
}

/// Without that, writes would not be noticed.
pub(super) fn cannot_protect(error: impl Into<std::io::Error>) -> Error {
    Error::io("protecting pages from writes", &error.into())
}

impl Found {
    fn add(&mut self, more: Found) {
        self.mapped.extend(more.mapped);
        self.moving.extend(more.moving);
        self.unmapped.extend(more.unmapped);
        self.vanished.extend(more.vanished);
        self.there.extend(more.there);
        self.failed |= more.failed;
    }
}

/// Scans the part of a view, without changing anything.
fn ask(view: &View, part: PageRange) -> Found {
    let short_way = if part.count < LONG_PAGES { None } else { written_of(view, part) };
    let Some(runs) = short_way else { return ask_of_all(view, part) };
    let mut found = Found::default();
    runs.into_iter().for_each(|run| found.add(ask_of_all(view, run)));
    found
}

/// Where in the part everything lies that is not known to be protected. None: it cannot be told so.
fn written_of(view: &View, part: PageRange) -> Option<Vec<PageRange>> {
    let mapping = &view.mapping;
    let (start, end) = (mapping.address_of(part.first), mapping.address_of(part.end()));
    let mut runs: Vec<PageRange> = Vec::new();
    let scanned = mapping.pagemap.scan_written(start, end, |from, to| {
        let (first, end) = (mapping.page_at(from), mapping.page_at(to));
        match runs.last_mut() {
            Some(last) if first - last.end() < NEAR_PAGES => last.count = end - last.first,
            _ => runs.push(PageRange::new(first, end - first)),
        }
    });
    // The scan passes over what is not mapped any more. So the mapping is looked at, and after it.
    (scanned.is_ok() && is_one_mapping(&mapping.uffd, start, end - start)).then_some(runs)
}

/// Asks for the state of each page.
fn ask_of_all(view: &View, part: PageRange) -> Found {
    let mapping = &view.mapping;
    let (start, end) = (mapping.address_of(part.first), mapping.address_of(part.end()));
    let pages = |from: u64, to: u64| {
        let first = mapping.page_at(from);
        PageRange::new(first, mapping.page_at(to) - first)
    };
    let mut found = Found::default();
    let mut covered = start;
    let result = mapping.pagemap.scan(start, end, |seen| {
        if seen.start > covered {
            found.vanished.push(pages(covered, seen.start));
        }
        covered = seen.end;
        let run = pages(seen.start, seen.end);
        if seen.present {
            found.there.push(run);
        }
        match (seen.written, seen.present, seen.swapped) {
            (true, true, _) => found.mapped.push(run),
            (true, false, true) => found.moving.push(run),
            (true, false, false) => found.unmapped.push(run),
            (false, ..) => {}
        }
    });
    if result.is_err() {
        covered = start;
        found = Found { failed: true, ..Found::default() };
    }
    if covered < end {
        found.vanished.push(pages(covered, end));
    }
    found
}
