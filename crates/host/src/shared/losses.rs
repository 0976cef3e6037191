//! What an object has lost with hosts: which pages, and of how many an older version serves, for people and programs.

use super::driver::Driver;
use super::insist::insist;
use super::part::How;
use commonhold_coherence::Span;
use commonhold_object::{Losses, PageRange};
use std::sync::atomic::Ordering;

impl Driver {
    /// At the home, in a turn: newest versions of pages are lost, or may be.
    pub(super) fn has_losses(&self) {
        if let Some(saved) = self.saved() {
            insist(&saved, || saved.has_losses());
        }
    }

    /// At the home, in a turn: older versions of so many pages serve from now on.
    pub(super) fn older_serve(&self, pages: u64) {
        if pages > 0 {
            self.reverted.fetch_add(pages, Ordering::Relaxed);
            self.has_losses();
        }
    }

    /// At the home, in a turn: what it has of these frames is the newest version from now on, and with nobody else. (Under
    /// forwarding somebody else may own them.) What is stored of it the next home does not take for lost a second time.
    pub(super) fn has_again(&self, frames: PageRange) {
        if let (Some(saved), How::Central(_)) = (self.saved(), &self.plan.how) {
            saved.returned(frames);
        }
    }

    /// The loss generation for who has stored something: when no turn is under way, for a turn that finds losses may not have
    /// noted them yet.
    pub fn loss_generation_after_turns(&self) -> u64 {
        let _still = self.state();
        self.loss_generation()
    }

    /// The loss generation as it is known here, whatever is under way: nobody who opens an object waits for its pager.
    pub fn loss_generation(&self) -> u64 {
        self.cache().map_or(0, |cache| cache.loss_generation())
    }

    /// At another host: the home told this loss generation.
    pub fn is_told_losses(&self, generation: u64) {
        if let Some(cache) = self.cache()
            && let Err(error) = cache.is_told_losses(generation)
        {
            cache.report(&error);
        }
    }

    /// What is lost of the object, as far as this host knows: its home knows all of it. While a turn waits for a pager, as many
    /// pages as were said before.
    pub fn losses(&self) -> Losses {
        if let Some(state) = self.state_soon() {
            let lost = self.count_frames(&state.part.lost_pages());
            self.lost.store(lost, Ordering::Relaxed);
        }
        Losses {
            lost_pages: self.lost.load(Ordering::Relaxed),
            reverted_pages: self.reverted.load(Ordering::Relaxed),
            generation: self.loss_generation(),
        }
    }

    /// Which of these frames are of pages whose newest version is lost, as far as this host knows.
    pub fn lost_in(&self, frames: PageRange) -> Vec<PageRange> {
        let lost = self.state().part.lost_pages();
        let runs = lost.into_iter().map(|page| self.frames(Span::one(page)).intersect(frames));
        let mut found: Vec<PageRange> = Vec::new();
        for run in runs.filter(|run| !run.is_empty()) {
            match found.last_mut().filter(|last| last.end() == run.first) {
                Some(last) => last.count += run.count,
                None => found.push(run),
            }
        }
        found
    }
}
