//! What a host's part of an object hears, says, and wants done.

use commonhold_coherence::HostId;
use commonhold_primitives::between::{Given, Left};
use serde::{Deserialize, Serialize};

/// What a monitor has beside its mutex, as a host's memory has it: from when the token left it, or from before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Kept {
    /// How often the token has moved: of two hosts the one with more has the newer state.
    pub moves: u64,
    /// The number that changes when those who wait are to look again.
    pub changes: u64,
    /// What the monitor guards.
    pub value: u64,
}

/// What travels with the token of a monitor. With that of a mutex nothing does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct State {
    /// What it has.
    pub kept: Kept,
    /// Hosts whose threads wait for a change.
    pub watchers: Vec<HostId>,
    /// How many read, on hosts where somebody does.
    pub readers: Vec<(HostId, u32)>,
    /// A host was lost whose processes may have arrived at a barrier.
    pub is_missed: bool,
}

/// What one host has of one token, as it tells the home that counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Has {
    /// Which mutex of the object.
    pub index: u32,
    /// The token is here.
    pub here: bool,
    /// Threads here wait for it.
    pub waits: bool,
    /// Of a token that is taken from the threads here, or that went elsewhere: an owner died with it, and nobody had said then that
    /// what it guards is whole. (Of one that the threads have, the word in memory says it.)
    pub died: bool,
    /// To which host it went from here since the last count.
    pub went_to: Option<HostId>,
    /// What the host knows of the monitor's state.
    pub kept: Kept,
    /// How many read here.
    pub readers: u32,
}

/// Where a token is, as the home has counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Placed {
    /// Which mutex.
    pub index: u32,
    /// Who has its token.
    pub holder: HostId,
    /// It may have been a lost host's: it is as if an owner had died.
    pub died: bool,
    /// Who waits for it, in order.
    pub queue: Vec<HostId>,
    /// Of a monitor: the newest state that anybody knows. It is the holder's, if it has the token already: that has a newer one.
    pub state: State,
}

/// What a host says that takes part no more.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Leaving {
    /// The last count whose end it heard of.
    pub known: u64,
    /// What it had.
    pub has: Vec<Has>,
}

/// What hosts say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Message {
    /// A host wants a token. It is passed on to whoever has it, or waits for it.
    Request {
        /// In which count.
        count: u64,
        /// Which mutex.
        index: u32,
        /// Who wants it.
        by: HostId,
    },
    /// The token.
    Token {
        /// In which count.
        count: u64,
        /// Which mutex.
        index: u32,
        /// An owner died, and nobody has said since that what it guards is whole.
        died: bool,
        /// Who waits for it after this host, in order.
        queue: Vec<HostId>,
        /// What travels with it.
        state: State,
    },
    /// Somebody changed what threads of that host wait for.
    Changed {
        /// In which count.
        count: u64,
        /// Which monitor.
        index: u32,
    },
    /// To the home: the sender takes part from now on.
    Join {
        /// The last count that it heard of.
        count: u64,
        /// The last count whose end it heard of; 0: none, or what it has is of a process before it.
        known: u64,
        /// What is not as at first.
        has: Vec<Has>,
    },
    /// To the home: the sender takes part no more.
    Leave(Leaving),
    /// From the home: it counts. Nothing moves until it has.
    Count {
        /// The number of this count.
        count: u64,
    },
    /// To the home that counts.
    Counted {
        /// In which count.
        count: u64,
        /// The count that the sender knew before.
        known: u64,
        /// What is not as at first.
        has: Vec<Has>,
    },
    /// From the home: all is as it says, and what it does not name is at the home. From now on tokens move.
    Begin {
        /// The count that this ends.
        count: u64,
        /// Where tokens are.
        placed: Vec<Placed>,
    },
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Timer {
    /// A thread that was woken for a token takes it: after that who waits elsewhere gets it. The driver waits for it by itself, where
    /// [`Action::Claim`] or [`Action::Give`] finds that somebody was woken and others wait.
    Taken(u32),
    /// The process that follows a lost host says what its clients have.
    Follows(HostId),
    /// Those who took part with the home's process before say what they have.
    Opens,
}

/// What a part hears.
#[derive(Clone, Debug)]
pub enum Event {
    /// A thread here waits for a token: it has said so in the word.
    Wanted(u32),
    /// A token's word is taken from the threads here: nobody owns it. It followed from [`Action::Claim`].
    Released {
        /// Which.
        index: u32,
        /// An owner died.
        died: bool,
        /// Threads here sleep for it.
        sleepers: bool,
        /// What the memory here has of the monitor.
        left: Left,
    },
    /// A host said that.
    Said {
        /// Who. It takes part, and is not lost.
        from: HostId,
        /// What.
        message: Message,
    },
    /// That host is the home from now on: this one, perhaps.
    Home(HostId),
    /// The home is lost, or was not found yet.
    HomeIsAway,
    /// At the home: that host is lost.
    Lost(HostId),
    /// At the home: that host, which is lost, was a process that this one follows.
    Follows {
        /// The one before.
        former: HostId,
        /// The one that follows.
        by: HostId,
    },
    /// It was waited for long enough.
    Over(Timer),
}

/// What a part wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Say that.
    Send(HostId, Message),
    /// Take the word from the threads here as soon as none owns it; then [`Event::Released`]. A thread that owns it does that when it
    /// lets go.
    Claim {
        /// Which.
        index: u32,
        /// Also if a thread was woken for it, and has not taken it yet.
        firmly: bool,
    },
    /// The token came: give the word to the threads here, and wake one.
    Give {
        /// Which.
        index: u32,
        /// An owner died.
        died: bool,
        /// Others wait: whoever takes it gives it on.
        wanted: bool,
        /// What came with it.
        given: Given,
    },
    /// The token is another's, whatever the word says: what a thread here has of it, it has lost.
    Void(u32),
    /// Wait for that, and say when it is over.
    Wait(Timer),
}
