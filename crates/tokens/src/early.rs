//! What comes sooner than it can be heard, and which messages no honest host says: nothing grows by what a host says.

use crate::event::{Has, Message, State};
use commonhold_coherence::HostId;

/// More messages do not wait until the home has counted.
const MOST_WAITING: usize = 1 << 16;
/// Nor do more hosts in the queues of tokens that wait.
const MOST_IN_QUEUES: usize = 1 << 18;
/// More hosts do not wait for one token: as many take part in an object at most (`commonhold_coherence::forwarding`).
pub(crate) const MOST_HOSTS: usize = 1024;

/// What was said by those who heard sooner than this host that all begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Early {
    said: Vec<(HostId, Message)>,
    in_queues: usize,
}

impl Early {
    /// Kept, if there is room. Of each host one message is kept that says what it has: the last one.
    pub fn push(&mut self, from: HostId, message: Message) {
        let joins = |message: &Message| matches!(message, Message::Join { .. });
        if joins(&message) {
            self.said.retain(|(other, message)| *other != from || !joins(message));
        }
        let more =
            if let Message::Token { queue, state, .. } = &message { queue.len() + state.hosts() } else { 0 };
        if self.said.len() < MOST_WAITING && self.in_queues + more <= MOST_IN_QUEUES {
            self.in_queues += more;
            self.said.push((from, message));
        }
    }

    /// All of them, in order.
    pub fn take(&mut self) -> Vec<(HostId, Message)> {
        std::mem::take(self).said
    }

    /// Nothing that this host said: it is lost.
    pub fn forget(&mut self, host: HostId) {
        let left = self.take().into_iter().filter(|(from, _)| *from != host);
        left.for_each(|(from, message)| self.push(from, message));
    }
}

impl State {
    /// How many hosts it names.
    fn hosts(&self) -> usize {
        self.watchers.len() + self.readers.len()
    }

    fn is_sound(&self) -> bool {
        self.watchers.len() <= MOST_HOSTS && self.readers.len() <= MOST_HOSTS
    }
}

impl Message {
    /// Whether an honest host could say it of so many mutexes: each is named once, in order, and no more hosts wait than
    /// there may be.
    pub(crate) fn is_sound(&self, mutexes: u32) -> bool {
        let has_order = |has: &[Has]| rises(has.iter().map(|has| has.index), mutexes);
        match self {
            Message::Request { index, .. } | Message::Changed { index, .. } => *index < mutexes,
            Message::Token { index, queue, state, .. } => {
                *index < mutexes && queue.len() <= MOST_HOSTS && state.is_sound()
            }
            Message::Join { has, .. } | Message::Counted { has, .. } => has_order(has),
            Message::Leave(leaving) => has_order(&leaving.has),
            Message::Count { .. } => true,
            Message::Begin { placed, .. } => {
                let few =
                    placed.iter().all(|placed| placed.queue.len() <= MOST_HOSTS && placed.state.is_sound());
                few && rises(placed.iter().map(|placed| placed.index), mutexes)
            }
        }
    }
}

/// Whether each is larger than the one before, and less than `end`.
fn rises(mut all: impl Iterator<Item = u32>, end: u32) -> bool {
    let mut least = 0;
    all.all(|index| (least..end).contains(&index) && std::mem::replace(&mut least, index + 1) <= index)
}
