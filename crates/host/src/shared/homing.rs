//! Where an object's home is: found, away, lost, or this host itself; and what a host begins anew with.

use super::Role;
use super::driver::{Driver, State, why_not};
use super::part::{How, Part};
use super::turn::Turn;
use super::users::UsersTold;
use commonhold_coherence::{Event, HostId, Why};
use commonhold_object::{PageRange, Result};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

impl Driver {
    /// At the home: when [`begin`](Self::begin) was first.
    pub fn begun_at(&self) -> Option<Instant> {
        self.begun_at.get().copied()
    }

    /// Nobody else finds the home until the guard is dropped: it would begin with it twice.
    pub fn seek_alone(&self) -> MutexGuard<'_, ()> {
        self.seeking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The home, if it is known.
    pub fn home(&self) -> Option<HostId> {
        self.state().home
    }

    /// At the home: nobody has anything of the object that this process has not given, and what was lent and not given
    /// back is lost. Whoever waited is served.
    pub fn begin(&self) {
        let mut state = self.state();
        if self.fenced.load(Ordering::SeqCst) || state.home.is_some() {
            return;
        }
        self.rest_is_lost(&mut state);
        self.lends_itself();
        self.machine.on_way.has_all_come(self.plan.object); // to another home, before
        state.home = Some(self.plan.me);
        self.speaks_with(self.plan.me);
        let _ = self.begun_at.set(Instant::now());
        state.beginnings += 1;
        self.hold_again(&mut state);
        drop(state);
        if let Some(cache) = self.cache() {
            cache.is_well_again();
            cache.ask_again();
        }
    }

    /// This host's lease is about to end: no process of it uses the object any more, and nothing is scheduled. For ever.
    pub fn fence(&self) -> Result<()> {
        let mut state = self.state();
        self.fenced.store(true, Ordering::SeqCst);
        state.home = None;
        self.forget_conversation(&mut state);
        match (self.cache(), self.plan.role()) {
            (Some(cache), Role::Saved | Role::Origin) => cache.fence(),
            (Some(cache), Role::Copies) => cache.keep_newest(),
            (Some(cache), Role::Own) => cache.keep_written().map(drop),
            (None, _) => Ok(()),
        }
    }

    /// Pages that go when this host is fenced, and pages that stay and leave page tables.
    pub fn pages_to_fence(&self) -> (u64, u64) {
        let Some(cache) = self.cache() else { return (0, 0) };
        let numbers = cache.numbers();
        match self.plan.role() {
            _ if self.plan.home_moves => (0, numbers.resident_pages),
            Role::Saved | Role::Origin => (0, 0),
            Role::Copies | Role::Own => {
                let stay = numbers.dirty_pages.min(numbers.resident_pages);
                (numbers.resident_pages - stay, stay)
            }
        }
    }

    /// The home is known (again). Whoever waited asks it. `lost`: hosts that are, and who follows them, in case others speak of
    /// them. `told`: what the home was told of those who use the object here. False if that was not all: then it is told the
    /// rest first.
    pub fn found_home(
        self: &Arc<Self>,
        home: HostId,
        lost: &[(HostId, Option<HostId>)],
        told: UsersTold,
    ) -> bool {
        let mut state = self.state();
        if self.fenced.load(Ordering::SeqCst) || state.has_left {
            return true;
        }
        if !state.users.are_told(told) {
            return false;
        }
        self.forget_conversation(&mut state);
        state.part = self.plan.part(home);
        if let Err(error) = self.begin_with(&mut state, home, lost) {
            self.cache().iter().for_each(|cache| cache.report(&error)); // asked again by who looks for the home
            return true;
        }
        // It has asked for whatever it had not dealt with.
        self.machine.on_way.has_all_come(self.plan.object);
        state.home = Some(home);
        self.speaks_with(home);
        state.granted_by = Some(home);
        state.beginnings += 1;
        self.begin_anew(&mut state);
        self.hold_again(&mut state);
        if let Part::Forwarding(_) = state.part {
            for (host, followed_by) in lost.iter().filter(|(host, _)| *host != home) {
                let event = Event::Lost { host: *host, followed_by: *followed_by };
                Turn::take(self, &mut state, event, Vec::new());
            }
            Turn::take(self, &mut state, Event::Join, Vec::new());
        }
        // Notifications that were on their way here may be lost.
        self.machine.watches.wake(self.plan.object, |_| true);
        drop(state);
        if let Some(cache) = self.cache() {
            cache.is_well_again();
            cache.ask_again();
        }
        true
    }

    /// What is here of copies before the home is asked for any: nothing; under forwarding what the process before this one had
    /// newest, if `lost` says that this one follows it.
    fn begin_with(&self, state: &mut State, home: HostId, lost: &[(HostId, Option<HostId>)]) -> Result<()> {
        let cache = self.cache().filter(|_| self.plan.role() == Role::Copies);
        let (cache, handovers) = match (cache, &self.handovers) {
            (Some(cache), Some(handovers)) => (cache, handovers),
            (Some(cache), None) => return cache.held_by(self.plan.me),
            // Nobody here uses it.
            (None, handovers) => {
                return handovers.as_ref().map_or(Ok(()), |notes| notes.begin(home, self.plan.me));
            }
        };
        let holder = cache.holder();
        let follows = lost.iter().any(|(host, next)| Some(*host) == holder && *next == Some(self.plan.me));
        self.take_over(state, (&cache, handovers), home, follows)
    }

    /// Of explicit coherence: this host has what was written here and sent nowhere, and nothing else.
    pub(super) fn begin_anew(&self, state: &mut State) {
        if let (Part::Explicit(node), Some(cache)) = (&mut state.part, self.cache()) {
            match cache.keep_written() {
                Ok(written) => {
                    node.begin_anew(written);
                    self.hold_again(state);
                }
                Err(error) => cache.report(&error),
            }
        }
    }

    /// The home cannot be found: whoever waits learns it.
    pub fn home_is_away(&self) {
        if let Some(cache) = self.cache()
            && self.home().is_none()
        {
            cache.cannot_be_had(PageRange::new(0, u64::from(u32::MAX)), &why_not(Why::HomeLost));
        }
    }

    /// A host is lost: nothing comes from it any more. Whether it was the home. `followed_by`: its next process.
    pub fn lost(self: &Arc<Self>, host: HostId, followed_by: Option<HostId>) -> bool {
        let mut state = self.state();
        self.catch_up_with(&mut state);
        let event = Event::Lost { host, followed_by };
        state.put_off.forget(host);
        if state.home != Some(host) {
            if state.home.is_some() {
                self.will_be_lost(&state, host);
                Turn::take(self, &mut state, event, Vec::new());
                // If that process lives it begins anew, and must not take an old grant for a new one.
                self.outbox.forget(host);
            }
            return false;
        }
        if self.plan.how == How::Explicit {
            // Syncs under way fail; what was written here stays. The rest may be old as soon as others find the next home.
            if !self.plan.home_moves {
                Turn::take(self, &mut state, event, Vec::new());
            } // else whoever waits for pages asks the next home
            self.fail_syncs(&mut state);
            self.forget_conversation(&mut state);
            state.home = None;
            if let Some(Err(error)) = self.cache().map(|cache| cache.keep_written()) {
                self.cache().iter().for_each(|cache| cache.report(&error));
            }
            return true;
        }
        self.forget_conversation(&mut state);
        // Whatever is here may be old by the time the home is back, but for what the home then asks for.
        state.home = None;
        self.machine.on_way.park(self.plan.object);
        self.keep_newest(&mut state);
        state.part = self.plan.part(host);
        true
    }
}
