//! Syncs of an object under explicit coherence: at the host that syncs, and at the home, which says that one is done when
//! it is stored.

use super::driver::{Driver, MOST_PAGES, State, why_not};
use super::part::{Part, Said};
use super::turn::{Turn, tell_written};
use commonhold_coherence::{Event, HostId, Why, explicit};
use commonhold_object::{Error, ErrorKind, PageRange, Result};
use roaring::RoaringBitmap;
use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How long a sync may take.
const LONGEST: Duration = Duration::from_secs(60);

fn away() -> Error {
    let text = "the object's home is away: what was written stays here; try again later";
    Error::new(ErrorKind::Disconnected, text)
}

impl Driver {
    /// Makes pages that were written here what everybody sees. `choose` says which they are, at an instant when no message
    /// is being handled, and protects them.
    pub fn sync(self: &Arc<Self>, choose: impl FnOnce() -> Result<RoaringBitmap>) -> Result<()> {
        let mut state = self.state();
        if state.home.is_none() || state.stuck {
            return Err(away());
        }
        let pages: Vec<u32> = {
            let pages = choose()?;
            if let Part::Explicit(node) = &mut state.part {
                tell_written(node, &pages);
            }
            pages.iter().collect()
        };
        let mut waiting = Vec::new();
        // One of nothing too: what was synced by others here a moment ago is done when it is.
        let parts: Vec<&[u32]> =
            if pages.is_empty() { vec![&[]] } else { pages.chunks(MOST_PAGES as usize).collect() };
        for part in parts {
            if state.stuck {
                break; // what was said of the parts before fails with them
            }
            let (sender, receiver) = channel();
            state.syncs.push_back((sender, part.iter().copied().collect()));
            waiting.push(receiver);
            Turn::take(self, &mut state, Event::Sync { pages: part.to_vec() }, Vec::new());
        }
        let whole = !state.stuck;
        drop(state);
        let done = waiting.into_iter().try_for_each(|done| {
            done.recv_timeout(LONGEST).unwrap_or_else(|_| {
                Err(Error::new(
                    ErrorKind::TimedOut,
                    format!("the object's home did not answer a sync within {} s", LONGEST.as_secs()),
                ))
            })
        });
        let done = if whole { done } else { done.and_then(|()| Err(away())) };
        // Of what counts as failed nothing is noted any more: its pages may be in another sync by then.
        done.inspect_err(|_| self.state().syncs.iter_mut().for_each(|(_, pages)| pages.clear()))
    }

    /// What this host speaks of with its home begins anew: no sync of before is answered any more.
    pub(super) fn fail_syncs(&self, state: &mut State) {
        for (waiting, _) in state.syncs.drain(..) {
            let _ = waiting.send(Err(why_not(Why::HomeLost)));
        }
    }

    /// At the home: a host's sync is in the saved copies, and everybody knows. Whether it is said later that it is done:
    /// when it is stored.
    pub(super) fn stores(self: &Arc<Self>, whose: HostId) -> bool {
        let Some(saved) = self.saved().filter(|saved| !saved.pager.is_anonymous()) else { return false };
        let mut storing = self.storing.lock().unwrap_or_else(PoisonError::into_inner);
        storing.push_back(whose);
        if storing.len() == 1 {
            let this = self.clone();
            saved.run_request(None, move || this.store_in_turn());
        }
        true
    }

    /// Stores what is to be stored, as long as there is any: all that came by then at once.
    fn store_in_turn(self: &Arc<Self>) {
        loop {
            let whose: Vec<HostId> = {
                let storing = self.storing.lock().unwrap_or_else(PoisonError::into_inner);
                storing.iter().copied().collect()
            };
            let Some(saved) = self.saved() else { return };
            let whole = PageRange::new(0, commonhold_object::pages_of(saved.size_bytes()));
            // Of a freezable object what is stored is of one instant: no other sync is mixed into it.
            let frozen = saved.traits.freezable.then(|| self.freeze());
            let stored = saved.sync(whole, frozen.is_some());
            drop(frozen);
            if let Err(error) = &stored {
                saved.report(error);
            }
            for to in &whose {
                let message =
                    if stored.is_ok() { explicit::Message::Synced } else { explicit::Message::NotSynced };
                self.tell(*to, Said::Explicit(message));
            }
            let mut storing = self.storing.lock().unwrap_or_else(PoisonError::into_inner);
            storing.drain(..whose.len());
            if storing.is_empty() {
                return;
            }
        }
    }

    fn tell(self: &Arc<Self>, to: HostId, message: Said) {
        if to == self.plan.me {
            self.happened(Event::Message { from: to, message }, Vec::new());
        } else {
            self.say(&self.state(), to, message, Vec::new());
        }
    }
}
