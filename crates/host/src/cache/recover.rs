//! Taking over from a host that died: frames and book are there, what page tables hold is asked.

use super::view::Mapping;
use super::{Cache, View, book};
use commonhold_object::{PageRange, Result};
use roaring::RoaringBitmap;
use std::sync::Arc;

impl Cache {
    /// Frames that exist are resident.
    pub fn adopt_frames(&self) -> Result<()> {
        let look = |fd: &std::os::fd::OwnedFd| {
            let mut resident = RoaringBitmap::new();
            commonhold_sys::frames::resident_runs(fd, |offset, length| {
                let first = offset / commonhold_object::PAGE_SIZE_BYTES;
                book::insert(&mut resident, PageRange::new(first, commonhold_object::pages_of(length)));
            })?;
            Ok(resident)
        };
        let resident =
            self.on_frames(look).map_err(|e| commonhold_object::Error::io("looking for frames", &e))?;
        let mut inner = self.lock();
        self.budget.take_anyway(resident.len());
        self.machine.budget.take_anyway(resident.len());
        inner.order = book::runs(&resident).into();
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
        inner.views.push(View { mapping, pages, installed });
    }

    /// Pages whose entries are there, or left a marker, were installed; one without any trace was either never
    /// installed or written and dropped, and only a comparison with what is stored could tell.
    fn maybe_installed(&self, inner: &super::Inner, mapping: &Mapping, pages: PageRange) -> RoaringBitmap {
        let mut unknown = book::within(&inner.resident, pages);
        if self.pager.is_anonymous() {
            return unknown;
        }
        let mut seen = RoaringBitmap::new();
        let (start, end) = (mapping.address_of(pages.first), mapping.address_of(pages.end()));
        let scan = mapping.pagemap.scan(start, end, |found| {
            if found.present || !found.written {
                let first = mapping.page_at(found.start);
                book::insert(&mut seen, PageRange::new(first, mapping.page_at(found.end) - first));
            }
        });
        if scan.is_err() {
            return unknown;
        }
        let suspects = &unknown - &seen;
        for page in suspects {
            if self.equals_stored(page.into()) {
                unknown.remove(page);
            }
        }
        unknown
    }

    /// Whether a frame holds what is stored.
    pub(super) fn equals_stored(&self, page: u64) -> bool {
        let mut stored = vec![0; commonhold_object::PAGE_SIZE_BYTES as usize];
        let mut frame = stored.clone();
        let offset = page * commonhold_object::PAGE_SIZE_BYTES;
        !self.pager.may_block()
            && self.pager.page_in(offset, &mut stored).is_ok()
            && super::read_frames(&self.frames, page, &mut frame).is_ok()
            && stored == frame
    }
}
