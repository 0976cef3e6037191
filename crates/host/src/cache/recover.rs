//! Taking over from a host that died: frames and book are there, what page tables hold is asked.

use super::view::Mapping;
use super::{Cache, Refused, View, book};
use commonhold_object::{PageRange, Result};
use commonhold_points as points;
use commonhold_sys::pagemap::Found;
use commonhold_sys::userfaultfd::Kind;
use roaring::RoaringBitmap;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// How long the next host, and so everybody, waits for a scan of one client's page tables. Without
/// it all pages count as written.
const SCAN_WAIT: Duration = Duration::from_millis(200);
/// How much longer for each page that may be found: some four times what one takes.
const A_PAGE: Duration = Duration::from_nanos(500);
/// How long at most: a client says how long a mapping is, and how many pages of it are in memory.
const LONGEST_SCAN: Duration = Duration::from_secs(2);

impl Cache {
    /// Somebody may have written to any of them, and the page tables that would say so are gone.
    pub fn all_may_be_newer(&self) -> Result<()> {
        let mut inner = self.lock();
        let clean = &inner.resident - inner.book.dirty();
        inner.book.add_dirty(&clean)
    }

    /// Frames that exist are resident.
    pub fn adopt_frames(&self) -> Result<()> {
        let mut resident = RoaringBitmap::new();
        let size_bytes = self.size_bytes();
        commonhold_sys::frames::runs_of_memory(&*self.frames, size_bytes, |offset, length| {
            let first = offset / commonhold_object::PAGE_SIZE_BYTES;
            book::insert(&mut resident, PageRange::new(first, commonhold_object::pages_of(length)));
        })
        .map_err(|e| commonhold_object::Error::io("looking for frames", &e))?;
        let mut inner = self.lock();
        self.budget.take_anyway(resident.len());
        self.machine.budget.take_anyway(resident.len());
        inner.order = book::runs(&resident).into();
        inner.unprotected = resident.clone();
        inner.resident = resident;
        Ok(())
    }

    /// A mapping that the host before served. Which pages it had installed is not known: all that have frames
    /// count, so that an entry that is missing now counts as written (it may have been). Threads that wait are
    /// woken and fault anew.
    pub fn adopt_view(&self, mapping: Arc<Mapping>, pages: PageRange) {
        let mut inner = self.lock();
        let installed = if mapping.writes_object() {
            self.maybe_installed(&inner, &mapping, pages)
        } else {
            RoaringBitmap::new()
        };
        let _ = mapping.uffd.wake(mapping.address_of(pages.first), pages.length_bytes());
        inner.views.push(View { mapping: mapping.clone(), pages, installed });
        self.count_views(&inner);
        drop(inner);
        let this = self.this.clone();
        self.run_on(&self.machine.ahead, move || {
            if let Some(this) = this.upgrade() {
                this.look_for_refused(&mapping, pages);
            }
        });
    }

    /// Pages that the host before had refused just now are refused until somebody says otherwise, and that host cannot:
    /// they are to be had again in a moment. An entry without a frame that is not a mark of protection may also be that of a
    /// page which the kernel is moving: it is found again.
    fn look_for_refused(&self, mapping: &Arc<Mapping>, pages: PageRange) {
        /// Of all mappings: far more than are refused within a second, and few enough to be told of one by one.
        const MOST: usize = 4096;
        let is_refused = |found: &Found| found.written && !found.present && found.swapped;
        let here = book::within(&self.lock().resident, pages).len();
        let Some(refused) = self.seen_by_scan(mapping, pages, here, is_refused) else { return };
        if refused.is_empty() {
            return;
        }
        let of = |page: u32| Refused {
            session: mapping.session,
            address: mapping.address_of(page.into()),
            since: Instant::now(),
        };
        let mut inner = self.lock();
        let room = MOST.saturating_sub(inner.refused.len());
        inner.refused.extend(refused.iter().take(room).map(of));
        drop(inner);
        self.machine.arm();
    }

    /// Pages whose entries are there, or left a marker, were installed; one without any trace was either never
    /// installed or written and dropped, and only a comparison with what is stored could tell.
    fn maybe_installed(
        &self,
        inner: &super::Inner,
        mapping: &Arc<Mapping>,
        pages: PageRange,
    ) -> RoaringBitmap {
        let mut unknown = book::within(&inner.resident, pages);
        // Under synchronous protection the book is exact: page tables are not asked.
        if self.pager.is_anonymous() || mapping.kind == Kind::Synchronous {
            return unknown;
        }
        let (Some(first), Some(last)) = (unknown.min(), unknown.max()) else { return unknown };
        let part = PageRange::new(first.into(), u64::from(last - first) + 1);
        let traces = |found: &Found| found.present || !found.written;
        let Some(seen) = self.seen_by_scan(mapping, part, unknown.len(), traces) else { return unknown };
        let suspects = &unknown - &seen;
        for page in suspects {
            if self.equals_stored(page.into()) {
                unknown.remove(page);
            }
        }
        unknown
    }

    /// Pages whose entries are as `wanted` says; none: they cannot be told. A client can hold the
    /// lock that a scan of its page tables takes for as long as it likes, and everybody waits for
    /// the next host: so it is waited for once, on another thread, and of its user nothing is
    /// scanned any more. `here`: so many of the pages are in memory. Holes take no time.
    pub(super) fn seen_by_scan(
        &self,
        mapping: &Arc<Mapping>,
        pages: PageRange,
        here: u64,
        wanted: fn(&Found) -> bool,
    ) -> Option<RoaringBitmap> {
        if self.machine.holds_up(mapping.uid) {
            return None;
        }
        let (tell, told) = sync_channel(1);
        let of = mapping.clone();
        let scan = move || {
            let mut seen = RoaringBitmap::new();
            let (start, end) = (of.address_of(pages.first), of.address_of(pages.end()));
            let scan = of.pagemap.scan(start, end, |found| {
                if wanted(&found) {
                    let first = of.page_at(found.start);
                    book::insert(&mut seen, PageRange::new(first, of.page_at(found.end) - first));
                }
            });
            let _ = tell.send(scan.is_ok().then_some(seen)); // unheard where it took too long
        };
        if !self.machine.is_ordinary(mapping.uid) {
            scan();
            return told.try_recv().ok().flatten();
        }
        points::thread(|| std::thread::Builder::new().name("scanning".into()).spawn(scan)).ok()?;
        let wait = SCAN_WAIT + A_PAGE * u32::try_from(here).unwrap_or(u32::MAX);
        told.recv_timeout(wait.min(LONGEST_SCAN)).unwrap_or_else(|_| {
            self.machine.note_holds_up(mapping.uid);
            None
        })
    }

    /// Whether a frame holds what is stored.
    pub(super) fn equals_stored(&self, page: u64) -> bool {
        let mut stored = vec![0; commonhold_object::PAGE_SIZE_BYTES as usize];
        let mut frame = stored.clone();
        let offset = page * commonhold_object::PAGE_SIZE_BYTES;
        !self.pager.may_block()
            && self.is_whole()
            && self.pager.page_in(offset, &mut stored).is_ok()
            && super::read_frames(&self.frames, page, &mut frame).is_ok()
            && stored == frame
    }
}
