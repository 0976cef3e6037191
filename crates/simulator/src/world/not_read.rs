//! Pages that the home cannot read when it is to send them: what its driver does then.

use super::{HOME, World};
use commonhold_coherence::{Event, HostId, NotRead, Scheduler};

impl<N: Scheduler> World<N>
where
    N::Message: Clone,
{
    /// Whether the pages of this message cannot be read: what is said and heard in its place.
    pub(super) fn is_not_read(
        &mut self,
        from: usize,
        to: usize,
        message: &N::Message,
    ) -> Option<NotRead<N::Message>> {
        if from != HOME || !self.cannot_read || N::carries(message).pages().is_empty() {
            return None;
        }
        let not_read = N::not_read(message, HostId(HOME as u32), HostId(to as u32))?;
        self.cannot_read = false;
        self.was_unreadable = true;
        Some(not_read)
    }

    /// What the home hears of what it could not send, after all else that it was about to do. The bytes are where they were.
    pub(super) fn hear(&mut self, heard: Vec<(HostId, N::Message)>) {
        for (from, message) in heard {
            let (mut actions, data) = (Vec::new(), self.carried(HOME, &message));
            self.nodes[HOME].handle(Event::Message { from, message }, &mut actions);
            self.perform(HOME, actions, &data);
        }
    }
}
