//! Frames of an object whose home moves: what is valid here when the home is lost, and what the next home makes of it
//! (`docs/LEASES.md`, "Moving the home").

use super::{Cache, book, read_frames};
use crate::live::Grant;
use crate::newer::Newer;
use crate::pagers::HomeFile;
use commonhold_coherence::HostId;
use commonhold_object::error::Doing;
use commonhold_object::{PAGE_SIZE_BYTES, PageRange, Result};
use roaring::RoaringBitmap;

impl Cache {
    /// The frames that are kept here were valid when this host heard that the home is lost.
    pub fn home_is_lost(&self, home: HostId) -> Result<()> {
        self.lock().book.live().set_lost_home(home.0)
    }

    /// When which home was lost the frames here were valid.
    pub fn lost_home(&self) -> Option<HostId> {
        self.lock().book.live().lost_home().map(HostId)
    }

    /// The first `most` frames from that page on, with their bytes, and whether there are more.
    pub fn frames_from(&self, page: u32, most: usize) -> Result<(Vec<u32>, Vec<u8>, bool)> {
        const PAGE: usize = PAGE_SIZE_BYTES as usize;
        let inner = self.lock();
        let mut pages: Vec<u32> = inner.resident.range(page..).take(most + 1).collect();
        let more = pages.len() > most;
        pages.truncate(most);
        let mut bytes = vec![0; pages.len() * PAGE];
        for (page, slot) in pages.iter().zip(bytes.chunks_mut(PAGE)) {
            read_frames(&self.frames, (*page).into(), slot).doing("reading a frame")?;
        }
        Ok((pages, bytes, more))
    }

    /// At the next home, before it schedules: a version of a page that is the newest. All that are given are equal.
    pub fn was_valid(&self, page: u32, bytes: &[u8]) -> Result<()> {
        let mut inner = self.lock();
        let one = PageRange::new(page.into(), 1);
        // What came of a page that was asked for as lent may be older.
        let is_lent = inner.book.is_lent(page);
        if inner.resident.contains(page) && !is_lent || !inner.whole().contains(page.into()) {
            return Ok(());
        }
        self.write_frames(page.into(), bytes).doing("saving a page")?;
        self.count_frames(&mut inner, one);
        self.record(&mut inner, &[page].into());
        if is_lent {
            inner.book.returned(one);
        }
        Ok(())
    }

    /// This host is the home, and alone has the file.
    pub fn becomes_home(&self, home: HomeFile, newer: Newer) -> Result<()> {
        let mut inner = self.lock();
        inner.book.is_home(newer)?;
        self.pager.is_home(home, inner.size_bytes)?;
        self.tell_soon(&mut inner);
        Ok(())
    }

    /// At the home of an object that replicas keep: they have these pages as they are here. Nobody here may write them
    /// meanwhile.
    pub fn publish(&self, pages: PageRange) -> Result<()> {
        if self.pager.replicas().is_none() {
            return Ok(());
        }
        let unsaved = {
            let inner = self.lock();
            let pages = pages.intersect(inner.whole());
            book::within(inner.book.dirty(), pages) | book::within(inner.book.writing(), pages)
        };
        for run in book::runs(&unsaved) {
            let bytes = self.content(run.first..run.end())?;
            self.pager.publish(run.offset_bytes(), &bytes)?;
        }
        if !unsaved.is_empty() {
            self.lock().book.forget(&unsaved);
        }
        Ok(())
    }

    /// At the same: what was stored and is with nobody else the replicas do not take for older than it is.
    pub fn settle_replicas(&self) -> Result<()> {
        self.pager.replicas().map_or(Ok(()), |replicas| replicas.settle())
    }

    /// Whether another host becomes the home when the home is lost.
    pub fn home_moves(&self) -> bool {
        self.traits.home_moves
    }

    /// Whether this host has the file.
    pub fn has_file(&self) -> bool {
        self.pager.file().is_some()
    }

    /// At the home, which is about to schedule.
    pub fn schedules_as(&self, host: HostId) -> Result<()> {
        self.lock().book.live().set_holder(host.0)
    }

    /// At the next home, which has all that was valid: pages that are newer than the file, and that nobody has.
    pub fn had_by_nobody(&self) -> RoaringBitmap {
        let inner = self.lock();
        let whole = book::set_of(inner.whole());
        inner.book.newer() & (whole - &inner.resident)
    }

    /// The same, and those that were lent by that host as far as this one knows. They are noted as lent by it.
    pub fn noted_as_lent(&self, lost: HostId) -> Result<RoaringBitmap> {
        let mut inner = self.lock();
        let whole = book::set_of(inner.whole());
        let rest = inner.book.newer() & ((&whole - &inner.resident) | (inner.book.lent() & whole));
        let grant = Grant { to: Some(lost.0), stamp: 0 };
        book::runs(&rest).into_iter().try_for_each(|run| inner.book.lend(run, grant))?;
        Ok(rest)
    }

    /// Their newest versions are lost. `until_reverted`: for the next process too; else the stored ones are the newest now.
    pub fn lose(&self, pages: &RoaringBitmap, until_reverted: bool) -> Result<()> {
        let mut inner = self.lock();
        if !until_reverted {
            inner.book.now_stored(pages);
            return Ok(());
        }
        book::runs(pages).into_iter().try_for_each(|run| inner.book.lend(run, Grant::default()))
    }

    /// Nothing is lent: what was noted so belongs to an earlier time as home.
    pub fn nothing_is_lent(&self) {
        let mut inner = self.lock();
        let whole = inner.whole();
        inner.book.returned(whole);
    }
}
