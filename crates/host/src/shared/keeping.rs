//! Versions that this host keeps for a loss, under forwarding, beyond what a turn does with them.

use super::driver::{Driver, State};
use super::part::{How, Part};
use crate::cache::Cache;
use commonhold_coherence::Span;
use std::sync::Arc;

impl Driver {
    /// Of forwarding: what came back to this host by a loss while nobody used the object here.
    pub(super) fn put_back(&self, state: &mut State, cache: &Arc<Cache>) {
        let Part::Forwarding(node) = &state.part else { return };
        let here: Vec<u32> = state.sent.keys().copied().filter(|page| node.owns(*page)).collect();
        for page in here {
            if let Some(version) = state.sent.remove(&page)
                && let Err(error) = cache.restore(self.frames(Span::one(page)), &version)
            {
                cache.report(&error);
            }
        }
    }

    /// Of forwarding: says so if there are fewer hosts than the object's replicas need.
    pub fn lacks_hosts(&self) -> Option<String> {
        let state = self.state();
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
