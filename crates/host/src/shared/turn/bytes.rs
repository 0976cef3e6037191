//! What becomes of the bytes of a page: taken from processes of this host, saved at the home, or kept in case the
//! newest version is lost with the host that has it.

use super::super::Role;
use super::super::insist::insist;
use super::super::part::How;
use super::Turn;
use crate::cache::versions::Version;
use commonhold_coherence::{Access, HostId, Span};
use commonhold_object::Result;

impl Turn<'_> {
    /// Processes of this host may do no more than that with it. What they wrote is what is sent next, or, at the home,
    /// saved. An error: they may do what they could, and nothing that follows may be done.
    pub(super) fn restrict(&mut self, page: u32, access: Access) -> Result<()> {
        let frames = self.frames_of(Span::one(page));
        let Some(cache) = &self.cache else { return Ok(()) };
        if let Some(bytes) = cache.restrict(frames, self.driver.reach(frames), access)? {
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
        match self.driver.plan.how {
            // Who syncs hears that it could not be kept, and has it still.
            How::Explicit => {
                saved.save_copy(frames, bytes).inspect_err(|_| self.state.not_kept = true)?;
            }
            _ => insist(saved, || saved.save_copy(frames, bytes)),
        }
        // What another host wrote its loss does not take any more, nor this home's.
        let published = saved.publish(frames);
        saved.returned(frames);
        published
    }

    /// The page is this host's.
    pub(super) fn own(&mut self, page: u32, number: u64) -> Result<()> {
        self.owned.push(page);
        let Some(handovers) = &self.driver.handovers else {
            // At the home: after a loss. (What comes is the home's when its bytes are there.)
            if let Some(saved) = self.saved.as_ref().filter(|_| self.came.is_empty()) {
                saved.returned(self.frames_of(Span::one(page)));
            }
            return Ok(());
        };
        handovers.own(page, number)?;
        if let Some(cache) = &self.cache {
            cache.is_newest(self.frames_of(Span::one(page))); // of a page that was here to read
        }
        Ok(())
    }

    /// What is sent is kept here. At the origin the frame stays as it was sent, until something else comes into it.
    pub(super) fn keep_sent(&mut self, page: u32, number: u64, to: HostId) -> Result<()> {
        // Its bytes are kept already, since before its frame went.
        match &self.driver.handovers {
            Some(handovers) if handovers.sent(page, number, to)? => self.takes_room(page),
            _ => {}
        }
        Ok(())
    }

    /// What came is kept here for others.
    pub(super) fn keep_came(&mut self, page: u32, number: u64) -> Result<()> {
        let frames = self.frames_of(Span::one(page));
        let bytes = self.came.next(frames.count as usize);
        if let Some(saved) = &self.saved {
            insist(saved, || saved.save_copy(frames, bytes)); // with another host it stays: nothing is returned
            return Ok(());
        }
        if let Some(handovers) = &self.driver.handovers {
            handovers.keep(page, number, bytes)?;
            self.takes_room(page);
        }
        Ok(())
    }

    /// At the home: what was here to be read is the saved copy.
    pub(super) fn keep_read(&mut self, page: u32, number: u64) -> Result<()> {
        if let Some(saved) = &self.saved {
            insist(saved, || saved.was_read(self.frames_of(Span::one(page)), number));
        }
        Ok(())
    }

    /// What is kept here arrived where it was sent.
    pub(super) fn keep_old(&mut self, page: u32) -> Result<()> {
        self.driver.handovers.as_ref().map_or(Ok(()), |handovers| handovers.is_old(page))
    }

    /// What is kept here is of no use any more.
    pub(super) fn drop_kept(&mut self, page: u32) -> Result<()> {
        self.state.sent.remove(&page);
        self.driver.handovers.as_ref().map_or(Ok(()), |handovers| handovers.drop_kept(page))
    }

    /// What is kept here is the newest version.
    pub(super) fn restore(&mut self, page: u32) -> Result<()> {
        // Where nobody uses the object, it stays what it is until somebody does or it goes on.
        match &self.cache {
            Some(cache) => self.driver.put_version_back(self.state, cache, page),
            None => Ok(()),
        }
    }

    fn takes_room(&mut self, page: u32) {
        let bytes = self.frames_of(Span::one(page)).length_bytes();
        let version = Version::keep(bytes, &self.driver.machine, self.cache.as_ref());
        self.state.sent.insert(page, version);
    }
}
