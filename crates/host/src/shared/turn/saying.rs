//! What the scheduler says to other hosts, with the bytes of pages; and what becomes of what cannot be said.

use super::Turn;
use crate::shared::driver::{PAGE, State};
use crate::shared::part::{How, Said};
use commonhold_coherence::{Access, Carried, Event, HostId, NotRead, Span, central, explicit, forwarding};
use commonhold_object::Result;

impl Turn<'_> {
    /// What cannot be sent must not be waited for.
    pub(super) fn send_or_take_back(&mut self, to: HostId, message: Said) -> Result<()> {
        let plan = &self.driver.plan;
        let not_read = if plan.is_home { message.not_read(plan.me, to) } else { None };
        let sent = self.send(to, message);
        match not_read.filter(|_| sent.is_err()) {
            Some(not_read) => self.take_back(to, not_read),
            None if sent.is_err() && !self.driver.plan.is_home => self.begin_again(),
            None => {}
        }
        sent
    }

    /// At the home: what somebody asked for could not be read, and is said to be so; what it would have owned is the home's.
    fn take_back(&mut self, to: HostId, NotRead { told, heard }: NotRead<Said>) {
        let me = self.driver.plan.me;
        match told {
            Some(told) if to == me => {
                self.to_do.push_back((Event::Message { from: me, message: told }, Vec::new()))
            }
            Some(told) => self.driver.say(self.state, to, told, Vec::new()),
            None => {}
        }
        for (from, message) in heard {
            if let (Said::Central(message), Some(saved)) = (&message, &self.saved) {
                saved.returned(self.driver.frames(message.span()));
            }
            self.to_do.push_back((Event::Message { from, message }, Vec::new()));
        }
    }

    /// At another host: what the scheduler counts on could not be done. What is newest here the home asks for.
    pub(super) fn begin_again(&mut self) {
        self.state.stuck = true;
        self.driver.carrier.begin_again(self.driver.plan.object);
    }

    fn send(&mut self, to: HostId, message: Said) -> Result<()> {
        let plan = &self.driver.plan;
        let synced = message == Said::Explicit(explicit::Message::Synced);
        let failed = synced && std::mem::take(&mut self.state.not_kept);
        if synced && !failed && self.driver.stores(to) {
            return Ok(()); // said when it is stored
        }
        let message = if failed { Said::Explicit(explicit::Message::NotSynced) } else { message };
        if to == plan.me {
            // Centrally scheduled, the home's frames are the saved copies: between its two parts no bytes need move.
            let bytes =
                if matches!(plan.how, How::Central(_)) { Vec::new() } else { self.bytes_of(&message)? };
            self.to_do.push_back((Event::Message { from: to, message }, bytes));
            return Ok(());
        }
        let mut bytes = self.bytes_of(&message)?;
        let lent = match &message {
            Said::Central(central::Message::Grant { span, access: Access::Write, .. }) => Some(*span),
            Said::Forwarding(forwarding::Message::HandOver { page, .. }) => Some(Span::one(*page)),
            _ => None,
        };
        if let (Some(span), Some(saved)) = (lent, &self.saved) {
            let is_stamped = stamped(&message);
            let stamp = match &message {
                // Which of two hand-overs was later these say themselves.
                Said::Forwarding(forwarding::Message::HandOver { number, .. }) => *number,
                _ if is_stamped => self.state.next_stamp(),
                _ => 0,
            };
            // The next host must know that it has not the newest.
            saved.lend(self.driver.frames(span), to, stamp)?;
            if is_stamped {
                bytes.extend_from_slice(&stamp.to_le_bytes());
            }
        }
        self.publish(&message)?;
        self.driver.say(self.state, to, message, bytes);
        Ok(())
    }

    /// At the home of an object that replicas keep: what another host is about to get they have first.
    fn publish(&self, message: &Said) -> Result<()> {
        if let (Said::Central(central::Message::Grant { span, access, .. }), Some(saved)) =
            (message, &self.saved)
        {
            saved.publish(self.driver.frames(*span))?;
            if *access == Access::Read {
                saved.settle_replicas()?; // else a page that the reader drops could count as newer than it is
            }
        }
        Ok(())
    }

    fn bytes_of(&mut self, message: &Said) -> Result<Vec<u8>> {
        match message.carries() {
            Carried::Nothing => Ok(Vec::new()),
            Carried::Saved(pages) => {
                let just_now = self.given_back.take_if(|(page, _)| *pages == [*page]);
                match (just_now, &self.saved) {
                    (Some((_, bytes)), _) => Ok(bytes.into_vec()),
                    (None, Some(saved)) => {
                        saved.content(pages.into_iter().flat_map(|page| self.numbers(page)))
                    }
                    (None, None) => Ok(Vec::new()),
                }
            }
            Carried::Frames(pages) => self.frames(&pages),
        }
    }

    /// Of pages that were taken from the page tables, what was taken; of others, what the frames have.
    fn frames(&mut self, pages: &[u32]) -> Result<Vec<u8>> {
        if let [page] = pages
            && let Some(bytes) = self.state.late.take(*page).or_else(|| self.taken.remove(page))
        {
            return Ok(bytes.into_vec());
        }
        let mut all = Vec::with_capacity(pages.len() * PAGE);
        for page in pages {
            match (self.state.late.take(*page).or_else(|| self.taken.remove(page)), &self.cache) {
                (Some(bytes), _) => all.extend_from_slice(&bytes[..]),
                (None, Some(cache)) => all.extend(cache.content(self.numbers(*page))?),
                (None, None) => {
                    // It came back here by a loss, and nobody has used it since.
                    if self.state.sent.contains_key(page) {
                        all.extend(self.driver.version(*page)?);
                    }
                }
            }
        }
        Ok(all)
    }
}

/// Bytes of a stamp.
pub(in crate::shared) const STAMP: usize = 8;

/// Whether a message says by which stamp its pages are granted: behind their bytes.
pub(in crate::shared) fn stamped(message: &Said) -> bool {
    matches!(message, Said::Central(central::Message::Grant { access: Access::Write, .. }))
}

impl State {
    /// Each grant to write has its own, which no process of the home gives twice.
    fn next_stamp(&mut self) -> u64 {
        self.stamp = self.stamp.wrapping_add(1).max(1);
        self.stamp
    }
}

/// Anywhere, far from where other processes begin.
pub(in crate::shared) fn first_stamp() -> u64 {
    let mut bytes = [0; 8];
    // Without it, stamps of an earlier process could be given again.
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).expect("random numbers");
    u64::from_le_bytes(bytes)
}
