//! What the cache of a shared object asks its scheduler for: pages that somebody waits for, that are likely to be wanted next, or
//! that a sync needs.

use super::{Cache, Inner, book, fault};
use crate::shared::Touch;
use commonhold_object::{Error, ErrorKind, PageRange, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pages that the home asks for at once, for a sync.
const FETCH_PAGES: u64 = 512;

impl Cache {
    /// Whoever waits touches the page anew.
    pub fn ask_again(&self) {
        for waiter in std::mem::take(&mut self.lock().waiting) {
            fault::wake(&waiter.mapping, waiter.page.into());
        }
        self.settled.ring();
    }

    /// A touch of pages that this host has not the right to use so: the scheduler is asked. Whoever touched them is among
    /// the waiting already.
    pub(super) fn ask_for(self: &Arc<Self>, pages: PageRange, touch: Touch) {
        if let Some(driver) = self.driver() {
            driver.fault(pages, touch);
        }
    }

    /// Asks for the pages that are with other hosts, and waits for none of them.
    pub(super) fn ask_ahead(self: &Arc<Self>, range: PageRange) -> Result<()> {
        let mut at = range.first;
        while at < range.end() {
            let rest = PageRange::new(at, range.end() - at);
            let count = Self::lacking(&self.lock(), rest, FETCH_PAGES);
            if count > 0 {
                self.ask_for(PageRange::new(at, count), Touch::Read);
            }
            at += count.max(1);
        }
        Ok(())
    }

    /// How many pages from the start of `range` lack the right to read, for a request of several at once.
    pub(super) fn lacking(inner: &Inner, range: PageRange, most: u64) -> u64 {
        let lacks = |page: &u64| !inner.may(*page, false) && !inner.in_flight.contains(*page as u32);
        (range.first..range.end()).take(most as usize).take_while(lacks).count() as u64
    }

    /// At the home: waits until the newest versions of all `pages` are here.
    pub fn fetch_lent(self: &Arc<Self>, pages: PageRange, within: Duration) -> Result<()> {
        self.fetch(pages, false, within)
    }

    /// Whether all `pages` may be read here now.
    pub fn are_readable(&self, pages: PageRange) -> bool {
        let inner = self.lock();
        let pages = pages.intersect(inner.whole());
        inner.rights.as_ref().is_none_or(|rights| book::within(&rights.read, pages).len() == pages.count)
    }

    /// Waits until all `pages` may be used here.
    pub(super) fn fetch(self: &Arc<Self>, pages: PageRange, write: bool, within: Duration) -> Result<()> {
        let deadline = Instant::now() + within;
        let mut at = pages.first;
        loop {
            let mut inner = self.lock();
            let end = pages.end().min(inner.size_pages());
            let Some(page) = (at..end).find(|page| !inner.may(*page, write)) else { return Ok(()) };
            if Instant::now() > deadline {
                return Err(Error::new(
                    ErrorKind::TimedOut,
                    format!("page {page} did not come from another host within {} s", within.as_secs()),
                ));
            }
            let failures = inner.failures;
            let lacks = |page: &u64| !inner.may(*page, write);
            let most = (page..end).take(FETCH_PAGES as usize).take_while(lacks).count() as u64;
            drop(inner);
            let asked = PageRange::new(page, most);
            self.ask_for(asked, if write { Touch::Write } else { Touch::Read });
            inner = self.lock();
            at = page;
            if !inner.may(page, write) && inner.failures == failures {
                inner = self.wait_settled(inner);
            }
            if inner.failures != failures
                && let Some((_, error)) =
                    inner.last_failure.as_ref().filter(|(failed, _)| !failed.intersect(asked).is_empty())
            {
                return Err(error.clone());
            }
        }
    }
}
