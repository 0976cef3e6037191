//! Pages come to this host.

use super::Turn;
use crate::cache::Cache;
use crate::cache::coherent::PageBytes;
use crate::shared::Role;
use crate::shared::insist::insist;
use commonhold_coherence::{Access, Span};
use commonhold_object::{PageRange, Result};
use std::sync::Arc;

impl Turn<'_> {
    /// Pages come. Those past the end go back, as they came.
    pub(super) fn install(&mut self, span: Span, access: Access, with_data: bool) -> Result<()> {
        let driver = self.driver;
        let past = |page: u32| {
            let ends = |cache: &Arc<Cache>| cache.is_past_end(driver.frames(Span::one(page)));
            self.cache.as_ref().filter(|cache| !cache.has_pages()).is_some_and(ends)
        };
        if self.state.late.is_empty() && !span.pages().any(past) {
            return self.install_in_time(span, access, with_data, None);
        }
        let late: Vec<bool> = span.pages().map(past).collect();
        for (page, late) in span.pages().zip(late) {
            let count = self.frames_of(Span::one(page)).count as usize;
            let came: Option<PageBytes> = with_data.then(|| self.came.next(count).into());
            if late {
                // What is in a frame here the frame's end would take.
                let here = || self.cache.as_ref().and_then(|cache| cache.content(self.numbers(page)).ok());
                let bytes = came.or_else(|| here().map(Vec::into_boxed_slice));
                self.state.late.put(page, bytes);
                continue;
            }
            let bytes = came.or_else(|| self.state.late.take(page));
            self.state.late.is_in_time(page);
            self.install_in_time(Span::one(page), access, bytes.is_some(), bytes)?;
        }
        Ok(())
    }

    /// `bytes`: theirs, if they are not the next of those that came.
    fn install_in_time(
        &mut self,
        span: Span,
        access: Access,
        with_data: bool,
        bytes: Option<PageBytes>,
    ) -> Result<()> {
        self.given_back = None; // whoever may use it may change it
        if with_data && !self.taken.is_empty() {
            // What was taken of a copy that this host had until now is older.
            span.pages().for_each(|page| _ = self.taken.remove(&page));
        }
        let plan = &self.driver.plan;
        let newest = self.is_newest(span, access);
        let in_place = plan.role() == Role::Saved;
        let stamp = self.came.stamp().filter(|_| access == Access::Write && !plan.is_home);
        let frames = self.frames_of(span);
        let bytes = match &bytes {
            Some(bytes) => Some(&bytes[..]),
            None => (with_data && !in_place).then(|| self.came.next(frames.count as usize)),
        };
        let Some(cache) = &self.cache else { return Ok(()) };
        let is_origin = plan.role() == Role::Origin;
        let bytes = if newest && is_origin && with_data {
            // Owned here again: also for the next process, as soon as the bytes are there, and before anybody uses them.
            bytes.iter().for_each(|bytes| insist(cache, || cache.save_copy(frames, bytes)));
            cache.returned(frames);
            None
        } else {
            bytes
        };
        if let Some(stamp) = stamp {
            cache.granted(frames, stamp).inspect_err(|error| cache.cannot_be_had(frames, error))?;
        }
        let is_larger = plan.sizes.host_is_larger();
        let place = || match bytes {
            Some(bytes) if is_larger => cache.arrive(frames, newest, bytes),
            None if is_larger => Ok(()),
            bytes => cache.install(frames, access, newest, bytes),
        };
        let placed = if is_origin && bytes.is_some() {
            insist(cache, place); // in the frame there is a version before
            Ok(())
        } else {
            place()
        };
        let installed =
            placed.and_then(|()| if is_larger { self.install_what_is_whole(cache, frames) } else { Ok(()) });
        installed.inspect_err(|error| {
            if stamp.is_some() {
                let _ = cache.granted(frames, 0); // as if it had never come
            }
            cache.cannot_be_had(frames, error);
        })
    }

    /// Whether what comes may be the newest version from now on. Who owns a page need not be writing it yet.
    fn is_newest(&self, span: Span, access: Access) -> bool {
        let owns = |page: u32| self.owned.contains(&page) || self.state.part.owns(page);
        access == Access::Write || span.pages().all(owns)
    }

    /// A page of this host that is several scheduler pages may be used as the one of them that allows least.
    fn install_what_is_whole(&self, cache: &Arc<Cache>, frames: PageRange) -> Result<()> {
        let sizes = self.driver.plan.sizes;
        let host = sizes.host();
        for page in frames.first / host..frames.end().div_ceil(host) {
            let whole = self.driver.reach(PageRange::new(page * host, 1));
            let parts = sizes.requests(whole, self.driver.end()).flat_map(Span::pages);
            let least = parts.map(|part| self.state.part.access(part)).min().unwrap_or(Access::None);
            if least > Access::None {
                cache.install(whole, least, least == Access::Write, None)?;
            }
        }
        Ok(())
    }
}
