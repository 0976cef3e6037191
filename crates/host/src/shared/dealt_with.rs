//! At a host that is not the home: what the home has dealt with of the pages that it was sent. Until then the ring of pages on
//! their way has them (`crate::on_way`), in case the home's process dies; so when the ring is full, what the home asks for
//! waits, and everything that it says after that. The home does not wait for it in any turn, so this ends.

use super::Driver;
use super::driver::{PAGE, State};
use super::inbox::{Later, OVERHEAD};
use super::part::Part;
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Result};
use std::collections::VecDeque;
use std::sync::Arc;

/// More bytes are not held back, but for all pages of the object once: of pages that were granted, which a host asks for.
const MOST_BYTES: usize = 64 << 20;

/// What was said by the home and is not listened to yet, in its order.
#[derive(Default)]
pub(super) struct HeldBack {
    messages: VecDeque<Later>,
    bytes: usize,
}

impl HeldBack {
    fn push(&mut self, later: Later, most: usize) -> Result<()> {
        if let Later::Message(from, _, bytes) = &later {
            self.bytes += bytes.len() + OVERHEAD;
            if self.bytes > most {
                let text = format!("{from} grants more than {most} bytes that nobody asked for");
                return Err(Error::new(ErrorKind::Protocol, text));
            }
        }
        self.messages.push_back(later);
        Ok(())
    }

    fn pop(&mut self) -> Option<Later> {
        let next = self.messages.pop_front()?;
        if let Later::Message(_, _, bytes) = &next {
            self.bytes -= bytes.len() + OVERHEAD;
        }
        Some(next)
    }

    pub fn clear(&mut self) {
        *self = HeldBack::default();
    }
}

/// All that this host has sent to that home so far.
#[derive(Clone, Copy, Debug)]
pub struct SentSoFar {
    /// Which home.
    pub home: HostId,
    /// It is another conversation if this is another number.
    beginnings: u64,
    mark: u64,
}

impl Driver {
    /// What the home says has its turn now, unless that may have pages leave for which there is no room on the way.
    pub(super) fn hold_back(&self, state: &mut State, came: Later) -> Result<Option<Later>> {
        let waits = !self.plan.is_home
            && state.home.is_some()
            && matches!(state.part, Part::Central(_))
            && (!state.held_back.messages.is_empty() || self.machine.on_way.is_full());
        if !waits {
            return Ok(Some(came));
        }
        state.held_back.push(came, self.room() as usize * PAGE + MOST_BYTES)?;
        self.carrier.ask_what_has_come();
        Ok(None)
    }

    /// Before there is no room any more.
    pub(super) fn look_at_the_way(&self) {
        if !self.plan.is_home && self.machine.on_way.is_filling_more() {
            self.carrier.ask_what_has_come();
        }
    }

    /// Whether something is held back.
    pub fn holds_back(&self) -> bool {
        !self.state().held_back.messages.is_empty()
    }

    /// There may be room again.
    pub fn take_up(self: &Arc<Self>) {
        let mut state = self.state();
        while !self.machine.on_way.is_full() {
            let Some(next) = state.held_back.pop() else { return };
            self.do_now(&mut state, next);
        }
    }

    /// This host has left the object off: whoever waits for an answer hears that nothing is here.
    pub(super) fn answer_held_back(&self, state: &mut State) {
        while let Some(next) = state.held_back.pop() {
            if let Later::Message(from, message, _) = next {
                self.answer_if_left(state, from, &message);
            }
        }
    }

    /// What is on its way, all of which its connection has when this returns.
    pub fn sent_so_far(&self) -> Option<SentSoFar> {
        let state = self.state();
        // What leaves is said under the lock under which it left.
        let (mark, beginnings) = (self.machine.on_way.mark(), state.beginnings);
        let home = state.home.filter(|home| *home != self.plan.me)?;
        drop(state);
        self.outbox.wait_sent();
        Some(SentSoFar { home, beginnings, mark })
    }

    /// The home has dealt with that. Of a conversation that is over nobody knows what it had heard.
    pub fn has_come(&self, sent: &SentSoFar) {
        let state = self.state();
        if (state.home, state.beginnings) == (Some(sent.home), sent.beginnings) {
            self.machine.on_way.has_come(self.plan.object, sent.mark);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::part::Said;
    use commonhold_coherence::{Access, Span, central};

    #[test]
    fn what_is_held_back_keeps_its_order_and_is_bounded() {
        let said = |page: u32, bytes: usize| {
            let span = Span::one(page);
            let message = central::Message::Grant { span, access: Access::Read, with_data: true };
            Later::Message(HostId(1), Said::Central(message), vec![0; bytes])
        };
        let page = |later| match later {
            Later::Message(_, message, _) => message.pages()[0],
            _ => unreachable!("nothing else was put there"),
        };
        let (mut held, most) = (HeldBack::default(), 4 * (1000 + OVERHEAD));
        (0..4).for_each(|page| held.push(said(page, 1000), most).unwrap());
        assert_eq!(held.push(said(4, 1), most).unwrap_err().kind, ErrorKind::Protocol);
        assert!((0..4).all(|next| held.pop().map(page) == Some(next)) && held.pop().is_none());
        held.clear();
        held.push(said(5, 3000), most).unwrap();
        assert_eq!(held.pop().map(page), Some(5));
    }
}
