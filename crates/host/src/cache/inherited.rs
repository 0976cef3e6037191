//! What a home does about page tables that it did not fill itself: those that clients have by grants of the host process
//! before, and its own when its lease ends.
//!
//! The grants of a dead process go on. Its scheduler gave each page to one writer or to readers, and the next scheduler
//! gives nothing to another host before every member has dropped what it had. So the next process takes nothing away at
//! its start, however much memory there is. It remembers which pages page tables may have, its *inherited* pages, and
//! takes a page out of all page tables just before the page goes to another host.
//!
//! Pages that are lent are no home's to use. Under central scheduling no page table of the home has one; under forwarding
//! the home may have had a page to read while another host owned it.

use super::{Cache, Inner, book, read_frames, sync};
use crate::cache::coherent::{FENCE_PAGES, Rights};
use crate::cache::kept::Lent;
use commonhold_object::error::Doing;
use commonhold_object::{PageRange, Result};
use roaring::RoaringBitmap;

impl Inner {
    /// Whether page tables may have one of these pages by a grant of the process before.
    pub(super) fn inherits_any(&self, pages: PageRange) -> bool {
        let inherited = self.rights.as_ref().map(|rights| &rights.inherited).filter(|all| !all.is_empty());
        inherited.is_some_and(|inherited| !book::within(inherited, pages).is_empty())
    }

    /// The pages left all page tables.
    pub(super) fn inherits_no_more(&mut self, pages: &RoaringBitmap) {
        if let Some(rights) = &mut self.rights {
            rights.inherited -= pages;
        }
    }
}

impl Cache {
    /// The host process begins with what page tables have by grants of the process before. At the home it gives the pages
    /// that process had lent; elsewhere only what may be the newest version stays, in no page table.
    ///
    /// All clients that have the object must be known: a page table that is not known cannot be changed later.
    pub fn begin_anew(&self, is_home: bool) -> Result<Lent> {
        if !is_home {
            self.keep_newest()?;
            return Ok(Lent::default());
        }
        let lent = self.lent();
        if self.traits.home_moves {
            self.take_all_out()?; // another host may be the home by now
            return Ok(lent);
        }
        self.take_lent_out(&(lent.to_anybody() | &lent.to_nobody))?;
        let mut inner = self.lock();
        let inherited = &inner.resident - inner.book.lent();
        if let Some(rights) = &mut inner.rights {
            rights.inherited = inherited;
        }
        Ok(lent)
    }

    /// At the home, whose lease is about to end: no process here uses a page that another host may write from now on. What
    /// is in the frames stays: they are the saved copies. Nobody gets other pages from a home that does not move, so
    /// processes here may go on with those.
    pub fn fence(&self) -> Result<()> {
        if self.traits.home_moves {
            return self.take_all_out();
        }
        let lent = self.lent();
        self.take_lent_out(&(lent.to_anybody() | &lent.to_nobody))
    }

    /// Takes those of the pages out of all page tables that page tables may have by grants of the process before. A home
    /// that was not replaced, or has taken all of them out, pays a look at an empty set.
    pub(super) fn take_inherited(&self, pages: impl Iterator<Item = u64>) -> Result<()> {
        if self.lock().rights.as_ref().is_none_or(|rights| rights.inherited.is_empty()) {
            return Ok(());
        }
        let pages: RoaringBitmap = pages.map(|page| page as u32).collect();
        let inherited = |inner: &Inner| inner.rights.as_ref().map(|rights| &rights.inherited & &pages);
        let (Some(first), Some(last)) = (pages.min(), pages.max()) else { return Ok(()) };
        let mut inner = self.idle(PageRange::new(first.into(), u64::from(last - first) + 1));
        let old = inherited(&inner).unwrap_or_default();
        self.take_these_out(&mut inner, &old)
    }

    /// Takes lent pages out of the page tables that have them.
    fn take_lent_out(&self, lent: &RoaringBitmap) -> Result<()> {
        let views: Vec<_> = self.views();
        let mut seen = RoaringBitmap::new();
        for (mapping, pages) in views {
            let here = book::within(&(lent & &self.lock().resident), pages);
            let (Some(first), Some(last)) = (here.min(), here.max()) else { continue };
            let part = PageRange::new(first.into(), u64::from(last - first) + 1);
            // Where that cannot be told, all count.
            seen |= match self.seen_by_scan(&mapping, part, here.len(), |found| found.present) {
                Some(seen) => seen & here,
                None => here,
            };
        }
        if seen.is_empty() {
            return Ok(());
        }
        self.take_these_out(&mut self.lock(), &seen)
    }

    /// Takes every page out of all page tables.
    fn take_all_out(&self) -> Result<()> {
        let mut inner = self.lock();
        let all = inner.resident.clone();
        if let Some(rights) = &mut inner.rights {
            *rights = Rights { inherited: all.clone(), ..Rights::default() };
        }
        self.take_these_out(&mut inner, &all)
    }

    fn take_these_out(&self, inner: &mut Inner, pages: &RoaringBitmap) -> Result<()> {
        let mut bytes = Vec::new();
        for part in
            book::runs(&(pages & &inner.resident)).into_iter().flat_map(|run| sync::parts(run, FENCE_PAGES))
        {
            self.protect_everywhere(inner, part)?;
            bytes.resize(part.length_bytes() as usize, 0);
            read_frames(&self.frames, part.first, &mut bytes).doing("reading frames")?;
            self.make_anew(part, &bytes).doing("taking frames from page tables")?;
            let gone = book::set_of(part);
            inner.views.iter_mut().for_each(|view| view.forget(&gone));
            inner.inherits_no_more(&gone);
        }
        inner.inherits_no_more(pages);
        Ok(())
    }
}
