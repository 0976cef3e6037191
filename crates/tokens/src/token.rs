//! What a host knows of one token.

use crate::event::{Has, Kept, State};
use commonhold_coherence::HostId;
use commonhold_primitives::between::{Given, Left};
use std::collections::{BTreeSet, VecDeque};

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
    /// Of a monitor.
    pub monitor: Monitor,
}

/// What a host knows of a monitor, beside its mutex.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Monitor {
    /// Of one that is in the hands of threads here: what came with it, and by now is changed. Of others: what it has, or had here.
    pub state: State,
    /// How many read here.
    pub readers: u32,
    /// Threads here wait for a change that is made elsewhere.
    pub watches: bool,
    /// When it is taken from the threads here, those who wait are to look again.
    pub is_touched: bool,
}

impl Monitor {
    /// One that a process before this one left.
    pub fn left(left: &Left) -> Monitor {
        let mut monitor = Monitor::default();
        monitor.is_taken(left);
        monitor
    }

    /// It is taken from the threads here; gives whether anybody changed it.
    pub fn is_taken(&mut self, left: &Left) -> bool {
        let came = self.state.kept.changes;
        let more = u64::from(std::mem::take(&mut self.is_touched));
        let changes = left.changes.wrapping_add(more);
        self.state.kept = Kept { moves: left.moves, changes, value: left.value };
        (self.readers, self.watches) = (left.readers, left.is_watched);
        changes != came
    }

    /// What goes to the next host with the token.
    pub fn goes(&mut self, me: HostId) -> State {
        let kept = self.state.kept;
        let mut state = std::mem::replace(&mut self.state, State { kept, ..State::default() });
        state.kept.moves = kept.moves.wrapping_add(1);
        if self.watches {
            state.watchers.push(me);
        }
        if self.readers > 0 {
            state.readers.push((me, self.readers));
        }
        state
    }

    /// What came with the token, or is there after a count.
    pub fn comes(&mut self, me: HostId, mut state: State) {
        // Each once, whatever a host says: who watches is told of each change.
        let (mut watch, mut read) = (BTreeSet::from([me]), BTreeSet::from([me]));
        state.watchers.retain(|host| watch.insert(*host));
        state.readers.retain(|(host, _)| read.insert(*host));
        self.state = state;
    }

    /// What the threads here are given.
    pub fn given(&mut self) -> Given {
        let State { kept, watchers, readers, is_missed } = &mut self.state;
        Given {
            changes: kept.changes,
            value: kept.value,
            moves: kept.moves,
            is_watched: !watchers.is_empty(),
            readers: readers.iter().fold(0, |sum, (_, readers)| sum.saturating_add(*readers)),
            is_missed: std::mem::take(is_missed),
        }
    }
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
        let Monitor { state: State { kept, .. }, readers, .. } = self.monitor;
        let (waits, died) = (!here && (waits || wants), (parked || !here) && died);
        Has { index, here, waits, died, went_to, kept, readers }
    }
}
