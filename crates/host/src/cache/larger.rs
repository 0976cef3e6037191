//! Pages of a shared object that are several to the cache: the scheduler's, which go and come as one, and this host's own,
//! which its processes may use as a whole or not at all. `shared/sizes.rs` says which they are.

use super::coherent::{FENCE_PAGES, PageBytes};
use super::view::Mapping;
use super::{Cache, Inner, book, read_frames};
use crate::shared::Role;
use commonhold_object::error::Doing;
use commonhold_object::{PAGE_SIZE_BYTES, PageRange, Result};
use roaring::RoaringBitmap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Cache {
    /// Takes frames out of every page table; they stay. Gives their bytes if all of them are here.
    pub(super) fn take_out(&self, inner: &Inner, pages: PageRange) -> Result<Option<PageBytes>> {
        let mut bytes = vec![0; pages.length_bytes() as usize].into_boxed_slice();
        let mut here = 0;
        for part in inner.frames_of(pages).into_iter().flat_map(|run| super::sync::parts(run, FENCE_PAGES)) {
            let at = ((part.first - pages.first) * PAGE_SIZE_BYTES) as usize;
            let slot = &mut bytes[at..at + part.length_bytes() as usize];
            read_frames(&self.frames, part.first, slot).doing("reading a frame")?;
            let anew = self.make_anew(part, slot);
            anew.doing("keeping a copy")?;
            here += part.count;
        }
        Ok((here == pages.count).then_some(bytes))
    }

    /// Takes frames out of every page table, and away. Gives their bytes if there were any: they are nowhere else.
    pub(super) fn take_away(
        &self,
        inner: &mut Inner,
        pages: PageRange,
        set: &RoaringBitmap,
    ) -> Result<Option<PageBytes>> {
        if inner.frames_of(pages).is_empty() {
            return Ok(None);
        }
        let mut bytes = vec![0; pages.length_bytes() as usize].into_boxed_slice();
        let here = pages.intersect(inner.whole()); // what the object has lost is zero
        let slot = &mut bytes[..here.length_bytes() as usize];
        read_frames(&self.frames, here.first, slot).doing("reading a frame")?;
        self.note_on_way(inner, pages, &bytes);
        if let Some(driver) = self.driver() {
            driver.leaves(pages, &bytes).unwrap_or_else(|error| self.report(&error)); // it goes all the same
        }
        self.punch(pages).doing("dropping a frame")?;
        let gone = inner.resident.remove_range(pages.first as u32..=(pages.end() - 1) as u32);
        inner.book.forget(set);
        self.give_back(gone);
        Ok(Some(bytes))
    }

    /// Bytes that came for a part of one of this host's pages: nobody may use them before all of it is here.
    pub fn arrive(&self, pages: PageRange, newest: bool, bytes: &[u8]) -> Result<()> {
        // The end does not move meanwhile: whoever moves it waits for the scheduler's lock.
        let pages = pages.intersect(self.lock().whole());
        let bytes = &bytes[..bytes.len().min(pages.length_bytes() as usize)];
        self.write_frames(pages.first, bytes).doing("making a frame")?;
        let mut inner = self.lock();
        self.count_frames(&mut inner, pages);
        if self.role() == Some(Role::Copies) && newest || self.role() == Some(Role::Origin) {
            self.record(&mut inner, &book::set_of(pages));
        }
        Ok(())
    }

    /// Of one of this host's larger pages, which was touched in one place, what is here stands in the page table.
    pub(super) fn show_around(&self, inner: &mut Inner, mapping: &Arc<Mapping>, page: u64) {
        let unit = self.host_page.load(Ordering::Relaxed);
        if unit == 1 {
            return;
        }
        let Some(view) = inner.view_of(mapping, page) else { return };
        let whole = PageRange::new(page / unit * unit, unit).intersect(inner.whole());
        let mut here = book::within(&inner.resident, whole.intersect(inner.views[view].pages));
        here -= &inner.in_flight;
        here.remove(page as u32);
        if !inner.may(page, false) {
            return;
        }
        for run in book::runs(&here) {
            self.show_run(inner, mapping, run);
        }
    }
}

impl Inner {
    /// Which of these pages have frames.
    fn frames_of(&self, pages: PageRange) -> Vec<PageRange> {
        if pages.count == 1 {
            return if self.resident.contains(pages.first as u32) { vec![pages] } else { Vec::new() };
        }
        book::runs(&book::within(&self.resident, pages))
    }
}
