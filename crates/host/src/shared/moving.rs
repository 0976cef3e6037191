//! One shared object whose home moves, at whoever was not its home (`docs/LEASES.md`, "Moving the home").

use super::driver::Driver;
use super::part::{How, Part};
use commonhold_coherence::{HostId, central};
use commonhold_object::{Error, ErrorKind, Result};
use roaring::RoaringBitmap;
use std::sync::atomic::Ordering;

/// Frames that are given at once.
const MOST_FRAMES: usize = 512;

impl Driver {
    /// The registry says that the home is lost, and nothing of it is used here any more: what is here was valid then, unless
    /// this host had told the home that it gave it up.
    pub fn home_is_lost(&self, home: HostId) {
        let state = self.state();
        if self.plan.home_moves
            && !self.plan.is_home
            && state.granted_by == Some(home)
            && let Some(cache) = self.cache()
            && let Err(error) = cache.home_is_lost(home)
        {
            cache.report(&error);
        }
    }

    /// A home is about to hear that this host gave up what it had: if it granted that, it may give those pages to others from
    /// then on.
    pub fn gives_up_to(&self, home: HostId) {
        let mut state = self.state();
        if state.granted_by == Some(home) {
            state.granted_by = None;
        }
    }

    /// What is here need not be what it should be: nobody is given it.
    pub fn is_in_doubt(&self) {
        self.state().granted_by = None;
    }

    /// At another host: frames that were valid when that home was lost, from that page on, and whether there are more.
    pub fn valid_since(&self, lost: HostId, from_page: u32) -> Result<(Vec<u32>, Vec<u8>, bool)> {
        let state = self.state();
        if state.home == Some(lost) {
            let text = "this host has not heard yet that the object's home is lost: ask again";
            return Err(Error::new(ErrorKind::Busy, text));
        }
        let kept = self.cache().filter(|cache| state.home.is_none() && cache.lost_home() == Some(lost));
        kept.map_or_else(|| Ok(Default::default()), |cache| cache.frames_from(from_page, MOST_FRAMES))
    }

    /// This host is the object's home now: another driver goes on.
    pub fn retire(&self) {
        let mut state = self.state();
        self.fenced.store(true, Ordering::SeqCst);
        state.home = None;
        self.forget_conversation(&mut state);
    }

    /// Whether it does nothing any more.
    pub fn is_over(&self) -> bool {
        self.fenced.load(Ordering::SeqCst)
    }

    /// At a home that has not begun: whether it knows what the process before it had lent.
    pub fn knows_lent(&self) -> bool {
        self.state().lent.is_known
    }

    /// At the next home, which has not begun and has all that was valid: gives how many pages are lost.
    pub fn rest_was_lost(&self) -> Result<u64> {
        let Some(cache) = self.saved() else { return Ok(0) };
        if !matches!(self.plan.how, How::Central(_)) {
            return Ok(0); // what was not synced is where it was written
        }
        let lost: RoaringBitmap = cache.had_by_nobody();
        let serves_older =
            matches!(self.plan.how, How::Central(options) if options.on_loss == central::OnLoss::Revert);
        cache.lose(&lost, !serves_older)?;
        let mut state = self.state();
        if !serves_older && matches!(state.part, Part::Central(_)) {
            state.lent.to_nobody = lost.clone();
        }
        if serves_older {
            self.reverted.add(lost.len());
        }
        Ok(lost.len())
    }
}
