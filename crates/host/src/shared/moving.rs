//! One shared object whose home moves: at whoever was not its home, and is about to be (`docs/LEASES.md`, "Moving the home").

use super::driver::{Driver, PAGE};
use super::give_back::{Back, Loan};
use super::part::How;
use crate::cache::book;
use crate::cache::kept::Lent;
use crate::handovers::Handovers;
use commonhold_coherence::{HostId, Span};
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
        let Some(cache) = kept else { return Ok(Default::default()) };
        let (mut pages, mut bytes, more) = cache.frames_from(from_page, MOST_FRAMES)?;
        // Of a page of several frames all or none.
        let unit = self.plan.sizes.page() as u32;
        if let (Some(first), Some(last), true) = (pages.first(), pages.last(), more)
            && first / unit != last / unit
        {
            let cut = last / unit * unit;
            pages.retain(|page| *page < cut);
            bytes.truncate(pages.len() * PAGE);
        }
        Ok((pages, bytes, more))
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

    /// At a host that becomes the home, under forwarding, if its process is another since it heard of the home that is lost: of the
    /// frames that the process before left those stay that it owned, if the others have heard who follows it. Whether it left any.
    pub fn keep_owned(&self, notes: &Handovers, lost: HostId, followed: &[HostId]) -> Result<bool> {
        let Some(cache) = self.saved() else { return Ok(false) };
        let is_of_follower = cache.holder().is_some_and(|holder| followed.contains(&holder));
        if !is_of_follower || notes.begun().is_none_or(|begun| begun.home != lost) {
            return Ok(false);
        }
        let resident = cache.resident();
        let frames = |page: u32| self.frames(Span::one(page));
        let here =
            |page: u32| (frames(page).first..frames(page).end()).all(|frame| resident.contains(frame as u32));
        let mut owned = RoaringBitmap::new();
        for left in notes.left(here)?.iter().filter(|left| left.standing.owned && !left.is_kept) {
            book::insert(&mut owned, frames(left.standing.page));
        }
        cache.keep_these(&owned)?;
        cache.home_is_lost(lost)?; // so the next process of this host finds them
        Ok(true)
    }

    /// At a home that was another's sharer: what it, or a process that it follows, keeps of what it passed on then.
    pub fn back_of_notes(
        &self,
        notes: &Handovers,
        loan: Loan,
        followed: &[HostId],
        pages: &[(u32, u64)],
    ) -> Result<Back> {
        let mut back = Back::default();
        let Some(begun) = notes.begun() else { return Ok(back) };
        let is_own = begun.by.iter().any(|process| *process == self.plan.me || followed.contains(process));
        if is_own && Some(begun.home) == loan.by && loan.to == self.plan.me {
            self.give_kept(notes, pages, &mut back)?;
        }
        Ok(back)
    }

    /// At the next home, which has not begun, under forwarding: what is newer than the file and was valid with nobody is as what
    /// the home that is lost had lent. It may have been on its way between two others. Whether there is any.
    pub fn asks_for_rest(&self, lost: HostId) -> Result<bool> {
        let Some(saved) = self.saved() else { return Ok(false) };
        let mut state = self.state();
        // Noted before anything comes: what comes of it may be older than what comes next, and is not the newest for this host's
        // next process before all were asked.
        let rest = saved.noted_as_lent(lost)?;
        let is_any = !rest.is_empty();
        state.lent = Lent { to: [(lost, rest)].into(), by: Some(lost), ..Lent::default() };
        Ok(is_any)
    }

    /// At the next home, which has not begun and has all that was valid: gives how many pages are lost.
    pub fn rest_was_lost(&self) -> Result<u64> {
        let Some(cache) = self.saved() else { return Ok(0) };
        let mut state = self.state();
        let lost: RoaringBitmap = match self.plan.how {
            How::Central(_) => cache.had_by_nobody(),
            How::Forwarding(_) => state.lent.to_anybody(),
            How::Explicit => return Ok(0), // what was not synced is where it was written
        };
        if self.plan.how.serves_older() {
            // Under forwarding what somebody keeps serves, of the rest what is stored.
            match self.plan.how {
                How::Forwarding(_) => book::runs(&lost).into_iter().for_each(|run| cache.returned(run)),
                _ => cache.lose(&lost, false)?,
            }
            state.lent = Lent::default();
            self.older_serve(lost.len());
            return Ok(lost.len());
        }
        cache.lose(&lost, true)?;
        if !lost.is_empty() {
            self.has_losses();
        }
        if matches!(self.plan.how, How::Central(_)) {
            state.lent.to_nobody = lost.clone();
        } // else it is lent still, and counts as lost when this home begins
        Ok(lost.len())
    }
}
