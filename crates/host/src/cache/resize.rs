//! Changing the size of a controlled object.

use super::{Cache, book};
use crate::shared::Role;
use commonhold_object::error::Doing;
use commonhold_object::{PAGE_SIZE_BYTES, PageRange, Result, pages_of};
use commonhold_points as points;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

impl Cache {
    /// Makes frames and stored object `size_bytes` long. Pages past a smaller end give SIGBUS from now on, and
    /// nothing else changes.
    pub fn resize(self: &Arc<Self>, size_bytes: u64) -> Result<()> {
        // Nothing in the journal may reach past the new end.
        self.checkpoint_all()?;
        let _turn = self.turn_without_snapshots(self.changed_by(size_bytes));
        self.resize_in_turn(size_bytes)
    }

    /// The same, which the host before had begun: its snapshots had what they lacked before anybody heard of the size.
    pub fn resize_again(self: &Arc<Self>, size_bytes: u64) -> Result<()> {
        self.checkpoint_all()?;
        let _turn = super::lock(&self.turn);
        self.resize_in_turn(size_bytes)
    }

    fn resize_in_turn(self: &Arc<Self>, size_bytes: u64) -> Result<()> {
        // Replicas hear of a larger size before it is the object's, of a smaller one after, and without the cache's lock.
        let (replicas, before) = (self.pager.replicas(), self.size_bytes());
        let tell = |size_bytes: u64| replicas.map_or(Ok(()), |replicas| replicas.resize(size_bytes));
        if size_bytes <= before {
            return self.resize_here(size_bytes).and_then(|()| tell(size_bytes));
        }
        tell(size_bytes)?;
        self.resize_here(size_bytes).inspect_err(|_| drop(tell(before)))
    }

    /// Pages that a smaller size takes, or cuts: where the new end lies within a page, its rest becomes zero.
    pub fn changed_by(&self, size_bytes: u64) -> PageRange {
        let first = size_bytes / PAGE_SIZE_BYTES;
        PageRange::new(first, pages_of(self.size_bytes()).saturating_sub(first))
    }

    /// Whoever touches what is to go waits from now on. Gives when nobody brings such pages in any more.
    fn close_from(&self, size_bytes: u64) {
        let kept = pages_of(size_bytes);
        let mut inner = self.lock();
        inner.closing = kept;
        let gone = PageRange::new(kept, inner.size_pages().saturating_sub(kept));
        while !book::within(&inner.in_flight, gone).is_empty() {
            inner = self.wait_settled(inner);
        }
    }

    fn resize_here(self: &Arc<Self>, size_bytes: u64) -> Result<()> {
        if self.driver().is_some() {
            self.pager_and_frames(size_bytes, true)
        } else {
            self.close_from(size_bytes);
            // What is to go is not stored any more. Only now: whoever brings pages in may evict
            // others for that.
            let _no_eviction = super::lock(&self.evict_turn);
            // Without the lock: a client can make calls on its file wait. Where it fails nothing is
            // forgotten.
            let stored = self.pager.resize(size_bytes);
            stored
                .and_then(|()| self.pager_and_frames(size_bytes, false))
                .inspect_err(|_| self.stay_as_large())
        }
    }

    fn pager_and_frames(self: &Arc<Self>, size_bytes: u64, pager_too: bool) -> Result<()> {
        let driver = self.driver();
        let (_still, mut inner, gone) = loop {
            let still = driver.as_ref().map(|driver| driver.still());
            let inner = self.lock();
            let kept = pages_of(size_bytes);
            let gone = PageRange::new(kept, inner.size_pages().saturating_sub(kept));
            if book::within(&inner.in_flight, gone).is_empty() {
                break (still, inner, gone);
            }
            drop((still, self.wait_settled(inner)));
        };
        let grown = size_bytes > inner.size_bytes;
        if pager_too {
            self.pager.resize(size_bytes)?; // where it fails nothing is forgotten
        }
        if grown {
            if !self.is_import() {
                self.clear_tail(&inner, inner.size_bytes)?;
            }
            inner.book.set_size(size_bytes)?;
        } else {
            self.forget_past_end(&mut inner, gone);
        }
        let file_bytes = pages_of(size_bytes) * PAGE_SIZE_BYTES;
        self.on_frames(move |fd| Ok(rustix::fs::ftruncate(fd, file_bytes)?)).doing("resizing the frames")?;
        if !grown {
            inner.book.set_size(size_bytes)?;
            self.clear_tail(&inner, size_bytes)?;
        }
        inner.size_bytes = size_bytes;
        inner.closing = u64::MAX;
        inner.grows = false;
        driver.iter().for_each(|driver| driver.set_end(inner.size_pages()));
        drop(inner);
        self.ask_again(); // whoever waits past the end
        Ok(())
    }

    fn forget_past_end(&self, inner: &mut super::Inner, gone: PageRange) {
        // Only what is known of them: past the end of a sparse object there may be millions of pages.
        let known = [&inner.resident, inner.book.dirty(), inner.book.spilled()];
        let pages =
            known.into_iter().fold(roaring::RoaringBitmap::new(), |all, set| all | book::within(set, gone));
        let frames = &inner.resident & &pages;
        inner.resident -= &frames;
        self.give_back(frames.len());
        for view in &mut inner.views {
            view.forget(&pages);
        }
        inner.book.forget(&pages);
        let lent = inner.book.lent();
        book::runs(&book::within(&lent, gone)).into_iter().for_each(|run| inner.book.returned(run));
        // The home's rights stay, as its scheduler believes: the pages come from its pager when they are there again.
        if !self.has_pages()
            && let Some(rights) = &mut inner.rights
        {
            rights.allow_only(gone, commonhold_coherence::Access::None);
        }
        for run in inner.book.unspill(&pages) {
            super::lock(&self.spill).forget(run.first, run.count);
        }
    }

    /// Whether other hosts may know of another size before this one does.
    fn is_import(&self) -> bool {
        matches!(self.role(), Some(Role::Copies | Role::Own))
    }

    /// Of another host's object: before it grows nobody has written past its end, and what a program wrote there all the same is
    /// gone. After that others may have.
    pub fn about_to_grow(&self, grows: bool) -> Result<()> {
        let mut inner = self.lock();
        if grows && !inner.grows {
            self.clear_tail(&inner, inner.size_bytes)?;
        }
        inner.grows = grows;
        Ok(())
    }

    /// Pages came from a host that had not heard of the end yet.
    pub(super) fn cut_tail(&self, inner: &super::Inner, pages: PageRange) -> Result<()> {
        if !inner.grows && inner.has_tail() && pages.contains(inner.size_pages() - 1) {
            return self.clear_tail(inner, inner.size_bytes);
        }
        Ok(())
    }

    /// Bytes of the last page past a new end must read as zero if the object grows again.
    fn clear_tail(&self, inner: &super::Inner, size_bytes: u64) -> Result<()> {
        let last = size_bytes / PAGE_SIZE_BYTES;
        let within = (size_bytes % PAGE_SIZE_BYTES) as usize;
        if within == 0 {
            return Ok(());
        }
        if inner.book.spilled().contains(last as u32) {
            let mut page = vec![0u8; PAGE_SIZE_BYTES as usize];
            let mut spill = super::lock(&self.spill);
            spill.read(last, &mut page)?;
            page[within..].fill(0);
            spill.write(last, &page)?;
        }
        if !inner.resident.contains(last as u32) {
            return Ok(());
        }
        let zeros = vec![0u8; PAGE_SIZE_BYTES as usize - within];
        self.on_frames(move |fd| {
            points::pwrite(|| std::fs::File::from(fd.try_clone()?).write_all_at(&zeros, size_bytes))
        })
        .doing("resizing the frames")
    }
}

impl super::Inner {
    /// Whether the object ends within a page.
    pub(super) fn has_tail(&self) -> bool {
        !self.size_bytes.is_multiple_of(PAGE_SIZE_BYTES)
    }
}
