//! At the home of an object that replicas keep: they hear that a page may be newer than what they have before anybody writes it.
//! They are told without the cache's lock: whoever touches other pages, or other objects, does not wait for that, and whoever is
//! about to write the page waits as for one that comes from elsewhere.

use super::view::Mapping;
use super::{Cache, Inner, book, lock};
use crate::live::Grant;
use commonhold_object::{PageRange, Result};
use std::sync::Arc;
use std::time::Duration;

/// Between two attempts, where this host may be about to end.
const PAUSE: Duration = Duration::from_millis(50);

impl Cache {
    /// Whether a first write of the page must wait for snapshots or replicas. Then whoever writes is answered when those have
    /// the page, and these have heard it.
    pub(super) fn write_waits(&self, inner: &mut Inner, mapping: &Arc<Mapping>, page: u64) -> bool {
        if self.snapshots_wait(inner, mapping, page) {
            return true;
        }
        if !inner.book.must_tell_page(page as u32) {
            return false;
        }
        let one = book::set_of(PageRange::new(page, 1));
        inner.wait_for(mapping, page, true);
        if let Err(error) = inner.book.may_be_newer(&one) {
            self.report(&error); // replicas know it in a moment, and `live/` of what is written
        }
        self.tell_soon(inner);
        true
    }

    /// What the replicas have not heard of yet they hear, and nobody waits here.
    pub(super) fn tell_soon(&self, inner: &mut Inner) {
        if inner.book.is_all_told() || std::mem::replace(&mut inner.is_telling, true) {
            return;
        }
        let this = self.this.clone();
        self.machine.scheduling.run(move || {
            if let Some(this) = this.upgrade() {
                this.tell_all();
            }
        });
    }

    fn tell_all(&self) {
        loop {
            let told = self.tell(|inner| {
                inner.is_telling = !inner.book.is_all_told();
                inner.is_telling
            });
            match told {
                Ok(true) => {}
                Ok(false) => break,
                // Fenced, or about to be: whoever waits does so until the next process, or the next home.
                Err(_) if self.driver().is_none_or(|driver| driver.is_over()) => return,
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
        // Pages that nobody wrote after all.
        if let Err(error) = self.settle_replicas() {
            self.report(&error);
        }
    }

    /// The replicas hear what they have not heard of. `then` is done before anybody could change that again.
    fn tell<R>(&self, then: impl FnOnce(&mut Inner) -> R) -> Result<R> {
        // What was told a while ago may have been cleared since: one after the other.
        let _turn = lock(&self.telling);
        let untold = self.lock().book.untold();
        if let (false, Some(replicas)) = (untold.is_empty(), self.pager.replicas()) {
            replicas.set_newer(&untold)?;
        }
        let mut inner = self.lock();
        let inner = &mut *inner;
        inner.book.told(&untold);
        let done = then(inner);
        book::runs(&untold).into_iter().for_each(|run| self.settle(inner, run));
        // Whoever was about to write one may be gone, or has to ask the scheduler again.
        inner.book.now_stored(&untold);
        Ok(done)
    }

    /// Pages go to a host that may write them, when the replicas have heard it.
    pub(super) fn lend_told(&self, pages: PageRange, grant: Grant) -> Result<()> {
        let lend = |inner: &mut Inner| {
            let pages = pages.intersect(inner.whole());
            let set = book::set_of(pages);
            if !inner.book.must_tell(&set) {
                return inner.book.lend(pages, grant).map(|()| true);
            }
            inner.book.may_be_newer(&set).map(|()| false)
        };
        let mut lent = lend(&mut self.lock())?;
        while !lent {
            let told = self.tell(lend).and_then(|lent| lent);
            lent = told.inspect_err(|_| self.tell_soon(&mut self.lock()))?;
        }
        Ok(())
    }
}
