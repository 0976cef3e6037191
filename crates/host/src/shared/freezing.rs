//! A true instant of an object that hosts share: for its time the home lets nobody begin to write.
//!
//! Centrally scheduled, requests to write are put off, those before them end, and everything that was lent is fetched:
//! then no host may write, and the home's processes are held as those of a local object are. Of explicit coherence syncs
//! are put off: the saved copies are those of one instant.

use super::Driver;
use super::part::{Part, Said};
use super::turn::Turn;
use commonhold_coherence::{Access, Event, HostId, central, explicit};
use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};

/// What the home puts off.
#[derive(Default)]
pub(super) struct PutOff {
    /// How many want it still.
    freezes: u32,
    messages: VecDeque<(HostId, Said, Vec<u8>)>,
}

impl PutOff {
    /// Whether the event is put off.
    pub fn takes(&self, event: &Event<Said>) -> bool {
        let Event::Message { message, .. } = event else { return false };
        if self.freezes == 0 {
            return false;
        }
        match message {
            Said::Central(message) => {
                matches!(message, central::Message::Request { access: Access::Write, .. })
            }
            Said::Explicit(message) => matches!(message, explicit::Message::Sync { .. }),
            Said::Forwarding(_) => false, // such objects cannot be frozen
        }
    }

    pub fn put(&mut self, event: Event<Said>, bytes: Vec<u8>) {
        if let Event::Message { from, message } = event {
            self.messages.push_back((from, message, bytes));
        }
    }

    /// What the home's own processes wait for to write, and cannot read here: it is asked for to be read now, and to be written
    /// again when it is here. The sync reads it, too, and a host asks once for a page.
    pub fn ask_to_read(&mut self, me: HostId, is_here: impl Fn(u32) -> bool) -> Vec<Event<Said>> {
        let mut asked = Vec::new();
        self.messages.retain(|(from, message, _)| {
            let Said::Central(central::Message::Request { span, .. }) = message else { return true };
            if *from != me || span.pages().all(&is_here) {
                return true;
            }
            let read = central::Message::Request { span: *span, access: Access::Read, has_copy: false };
            asked.push(Event::Message { from: me, message: Said::Central(read) });
            false
        });
        asked
    }

    /// That host is lost: what it wanted it does not want any more.
    pub fn forget(&mut self, host: HostId) {
        self.messages.retain(|(from, ..)| *from != host);
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn clear(&mut self) {
        self.messages.clear();
    }
}

/// As long as this is there, nobody begins to write.
pub struct Frozen(Arc<Driver>);

impl Driver {
    /// Waits until nobody else freezes the object, and keeps others from it until the guard is dropped.
    pub fn freeze_alone(&self) -> MutexGuard<'_, ()> {
        self.freezing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At the home: from now on nobody begins to write.
    pub fn freeze(self: &Arc<Self>) -> Frozen {
        self.state().put_off.freezes += 1;
        Frozen(self.clone())
    }

    /// At a home that is frozen: whether all that was asked before is answered.
    pub fn is_calm(&self) -> bool {
        match &self.state().part {
            Part::Central(node) => node.home().is_none_or(|home| home.waiting() == 0),
            Part::Forwarding(_) | Part::Explicit(_) => true,
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let driver = &self.0;
        let mut state = driver.state();
        state.put_off.freezes -= 1;
        if state.put_off.freezes > 0 {
            return;
        }
        for (from, message, bytes) in std::mem::take(&mut state.put_off.messages) {
            if state.home.is_some() {
                Turn::take(driver, &mut state, Event::Message { from, message }, bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonhold_coherence::Span;

    #[test]
    fn the_home_asks_to_read_what_it_waits_for_to_write() {
        let (home, other) = (HostId(1), HostId(2));
        let request = |from, page, access| {
            let span = Span::new(page, 2);
            let message =
                Said::Central(central::Message::Request { span, access, has_copy: access == Access::Write });
            Event::Message { from, message }
        };
        let mut put_off = PutOff::default();
        assert!(!put_off.takes(&request(home, 0, Access::Write)), "nobody freezes it");
        put_off.freezes = 1;
        assert!(!put_off.takes(&request(other, 0, Access::Read)));
        for (from, page) in [(home, 0), (other, 0), (home, 4), (other, 4)] {
            let event = request(from, page, Access::Write);
            assert!(put_off.takes(&event));
            put_off.put(event, Vec::new());
        }
        assert!(put_off.ask_to_read(home, |_| true).is_empty());
        assert_eq!(put_off.ask_to_read(home, |page| page != 5), [request(home, 4, Access::Read)]);
        assert!(put_off.ask_to_read(home, |page| page != 5).is_empty(), "once");
        assert_eq!(put_off.messages.len(), 3);
    }
}
