//! What a host knows of one token.

use crate::event::Has;
use commonhold_coherence::HostId;
use std::collections::VecDeque;

/// One token, as one host sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Token {
    /// It is here.
    pub here: bool,
    /// Of one that is here: its word is taken from the threads of this host.
    pub parked: bool,
    /// Of a parked one, and one that went elsewhere: an owner died.
    pub died: bool,
    /// Of one that is here: whoever has the word gives it up next.
    pub claimed: bool,
    /// This host's request is in a queue, or on its way there.
    pub waits: bool,
    /// Threads here want it, and no request says so.
    pub wants: bool,
    /// Of one that is here: who gets it next. Of one that this host waits for: who asked here, and comes after it.
    pub queue: VecDeque<HostId>,
    /// Where to ask, if it is neither here nor waited for; `None`: at the home.
    pub last: Option<HostId>,
    /// To whom it went from here since the last count.
    pub went_to: Option<HostId>,
}

impl Token {
    /// One that is here, in the hands of this host's threads.
    pub fn at_hand() -> Token {
        Token { here: true, ..Token::default() }
    }

    /// Those also come after all who are in the queue, each once, and never this host.
    pub fn append(&mut self, me: HostId, hosts: impl IntoIterator<Item = HostId>) {
        for host in hosts {
            if host != me && !self.queue.contains(&host) {
                self.queue.push_back(host);
            }
        }
    }

    /// What the home is told.
    pub fn has(&self, index: u32) -> Has {
        let Token { here, parked, died, waits, wants, went_to, .. } = *self;
        Has { index, here, waits: !here && (waits || wants), died: (parked || !here) && died, went_to }
    }
}
