//! What becomes of the bytes of a page: taken from processes of this host, saved at the home, or kept in case the
//! newest version is lost with the host that has it.

use super::super::Role;
use super::Turn;
use crate::cache::coherent::PageBytes;
use crate::cache::versions::Version;
use commonhold_coherence::{Access, Span};
use commonhold_object::Result;

impl Turn<'_> {
    /// Processes of this host may do no more than that with it. What they wrote is what is sent next, or, at the home,
    /// saved.
    pub(super) fn restrict(&mut self, page: u32, access: Access) -> Result<()> {
        let frames = self.frames_of(Span::one(page));
        if let Some(cache) = &self.cache
            && let Some(bytes) = cache.restrict(frames, self.driver.reach(frames), access)?
        {
            if cache.role() == Some(Role::Saved) {
                self.given_back = Some((page, bytes)); // it is the saved copy now
            } else {
                self.taken.insert(page, bytes);
            }
        }
        Ok(())
    }

    /// At the home: what came is the saved copy.
    pub(super) fn save(&mut self, page: u32) -> Result<()> {
        // From this host's own part, centrally scheduled: the bytes are in the frame already.
        let frames = self.frames_of(Span::one(page));
        let bytes = self.came.next(frames.count as usize);
        self.given_back.take_if(|(saved, _)| *saved == page && !bytes.is_empty());
        let Some(saved) = self.saved.as_ref().filter(|_| !bytes.is_empty()) else { return Ok(()) };
        saved.save_copy(frames, bytes).inspect_err(|_| self.state.not_kept = true)?;
        // What another host wrote its loss does not take any more, nor this home's.
        let published = saved.publish(frames);
        saved.returned(frames);
        published
    }

    /// What is sent is kept here. At the origin the frame stays as it was sent, until something else comes into it.
    pub(super) fn keep_sent(&mut self, page: u32) {
        if let Some(bytes) = self.taken.get(&page).filter(|_| !self.driver.plan.is_home) {
            self.keep(page, bytes.clone());
        }
    }

    /// What came is kept here for others.
    pub(super) fn keep_came(&mut self, page: u32) -> Result<()> {
        let frames = self.frames_of(Span::one(page));
        let bytes = self.came.next(frames.count as usize);
        if let Some(saved) = &self.saved {
            return saved.save_copy(frames, bytes).map(drop); // with another host it stays: nothing is returned
        }
        let bytes = bytes.into();
        self.keep(page, bytes);
        Ok(())
    }

    /// What is kept here is the newest version.
    pub(super) fn restore(&mut self, page: u32) -> Result<()> {
        // Where nobody uses the object, it stays what it is until somebody does or it goes on.
        if let Some(cache) = &self.cache
            && let Some(version) = self.state.sent.remove(&page)
        {
            cache.restore(self.frames_of(Span::one(page)), &version)?;
        }
        Ok(())
    }

    fn keep(&mut self, page: u32, bytes: PageBytes) {
        let version = Version::keep(bytes, &self.driver.machine, self.cache.as_ref());
        self.state.sent.insert(page, version);
    }
}
