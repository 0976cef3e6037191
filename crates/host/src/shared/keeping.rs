//! Versions that this host keeps for a loss, under forwarding, beyond what a turn does with them.

use super::driver::{Driver, State};
use super::part::{How, Part};
use crate::cache::versions::Version;
use crate::cache::{Cache, book};
use crate::handovers::Handovers;
use commonhold_coherence::{HostId, Span};
use commonhold_object::{PageRange, Result};
use roaring::RoaringBitmap;
use std::sync::Arc;

impl Driver {
    /// Of forwarding: what came back to this host by a loss while nobody used the object here.
    pub(super) fn put_back(&self, state: &mut State, cache: &Arc<Cache>) {
        let Part::Forwarding(node) = &state.part else { return };
        let here: Vec<u32> = state.sent.keys().copied().filter(|page| node.owns(*page)).collect();
        for page in here {
            if let Err(error) = self.put_version_back(state, cache, page) {
                cache.report(&error);
            }
        }
    }

    /// What is kept of a page is its frame from now on.
    pub(super) fn put_version_back(&self, state: &mut State, cache: &Arc<Cache>, page: u32) -> Result<()> {
        if state.sent.contains_key(&page)
            && let Some(handovers) = &self.handovers
        {
            cache.restore(self.frames(Span::one(page)), &self.version(page)?)?;
            handovers.restored(page)?;
            state.sent.remove(&page);
        }
        Ok(())
    }

    /// The bytes of a version that is kept.
    pub(super) fn version(&self, page: u32) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.frames(Span::one(page)).length_bytes() as usize];
        self.handovers.as_ref().map_or(Ok(()), |handovers| handovers.version(page, &mut bytes))?;
        Ok(bytes)
    }

    /// Frames leave this host with these bytes: of a page that it owns they are kept before.
    pub fn leaves(&self, frames: PageRange, bytes: &[u8]) -> Result<()> {
        match &self.handovers {
            Some(handovers) => handovers.leaves((frames.first / self.plan.sizes.page()) as u32, bytes),
            None => Ok(()),
        }
    }

    /// What the process before this one had newest, if the others hear that this one follows it, and if it had it of this home:
    /// frames, and what is kept, are as it left them. Else nothing of it is of use.
    pub(super) fn take_over(
        &self,
        state: &mut State,
        (cache, handovers): (&Arc<Cache>, &Handovers),
        home: HostId,
        follows: bool,
    ) -> Result<()> {
        let Part::Forwarding(node) = &mut state.part else { return Ok(()) };
        let Some(begun) = handovers.begun().filter(|begun| follows && begun.home == home) else {
            handovers.begin(home, self.plan.me)?;
            return cache.held_by(self.plan.me);
        };
        let resident = cache.resident();
        let frames = |page: u32| self.frames(Span::one(page));
        let here = |page: u32| frames(page).first..frames(page).end();
        let mut left = handovers.left(|page| here(page).all(|frame| resident.contains(frame as u32)))?;
        let end = self.plan.sizes.pages(self.room());
        left.retain(|left| u64::from(left.standing.page) < end); // the object may have shrunk
        let mut owned = RoaringBitmap::new();
        for left in left.iter().filter(|left| left.standing.owned) {
            let page = left.standing.page;
            if left.is_kept {
                cache.restore(frames(page), &self.version(page)?)?;
                handovers.restored(page)?;
            }
            book::insert(&mut owned, frames(page));
        }
        handovers.go_on(self.plan.me)?;
        cache.held_still(&owned, self.plan.me)?;
        for left in left.iter().filter(|left| left.standing.kept.is_some()) {
            let page = left.standing.page;
            let version = Version::keep(frames(page).length_bytes(), &self.machine, Some(cache));
            state.sent.insert(page, version);
        }
        if !left.is_empty() {
            let (kept, owned) = (state.sent.len(), owned.len());
            let object = self.plan.object;
            self.machine.log(format_args!(
                "object {object:032x}: {owned} pages of the process before are newest here, and {kept} are kept"
            ));
        }
        node.follow(begun.by, left.into_iter().map(|left| left.standing));
        Ok(())
    }

    /// Of forwarding: whether that host takes part, and is not lost, as far as is known here.
    pub fn has_member(&self, host: HostId) -> bool {
        let state = self.state_after_all(); // asked of who was not admitted itself: the next process of one who was
        matches!(&state.part, Part::Forwarding(node) if node.members().living().any(|member| member == host))
    }

    /// Of forwarding: says so if there are fewer hosts than the object's replicas need.
    pub fn lacks_hosts(&self) -> Option<String> {
        let state = self.state_soon()?;
        let (Part::Forwarding(node), How::Forwarding(kept)) = (&state.part, self.plan.how) else {
            return None;
        };
        (state.home.is_some() && node.is_short_of_keepers()).then(|| {
            format!(
                "fewer than {} hosts have opened it: a loss may take more than its {} replicas promise",
                kept.replicas + 1,
                kept.replicas
            )
        })
    }
}
