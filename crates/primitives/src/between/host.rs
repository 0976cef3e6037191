//! What a host does with a primitive that hosts share: its word is of the threads here or away, and what a monitor has beside it
//! comes and goes with the token. Where the token goes is `commonhold-tokens`' affair.

use super::barrier::Barrier;
use super::monitor::{
    CHANGES, LOCAL, LOOK, MISSED, MOVES, VALUE, WATCHED_ELSEWHERE, WATCHED_HERE, change_word,
};
use super::rwlock::{RwLock, readers_here, with_others};
use crate::dead::{Named, each_of_the_dead};
use crate::kind::Kind;
use crate::memory::Memory;
use crate::mutex::Mutex;
use crate::shared::Taken;
use std::collections::HashSet;
use std::ops::Range;

/// A primitive that hosts share, at a place of some memory.
#[derive(Clone, Copy, Debug)]
pub struct Monitor {
    /// Where it is.
    pub at: usize,
    /// What it is. (A mutex has nothing that travels.)
    pub kind: Kind,
}

/// What a host's memory has of a monitor when the token leaves it, or did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The number that changes when those who wait are to look again.
    pub changes: u64,
    /// What it guards.
    pub value: u64,
    /// How often the token had moved when it came.
    pub moves: u64,
    /// Threads here wait for a change.
    pub is_watched: bool,
    /// How many read here.
    pub readers: u32,
}

/// What comes with the token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// As in [`Left`].
    pub changes: u64,
    /// As in [`Left`].
    pub value: u64,
    /// As in [`Left`].
    pub moves: u64,
    /// Threads of other hosts wait for a change.
    pub is_watched: bool,
    /// How many read on other hosts.
    pub readers: u32,
    /// A host was lost whose processes may have arrived at a barrier.
    pub is_missed: bool,
}

/// What a word says to a host that follows another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// It is of the threads here.
    pub here: bool,
    /// Threads here wait for it, or for a change; or the host is to settle something.
    pub wants: bool,
    /// What it has beside the word.
    pub left: Left,
}

impl Monitor {
    /// The one with that number in an object of a kind.
    pub fn nth(kind: Kind, index: u32) -> Monitor {
        Monitor { at: index as usize * kind.bytes(), kind }
    }

    fn mutex(self) -> Mutex {
        Mutex(self.at)
    }

    fn has_state(self) -> bool {
        self.kind != Kind::Mutex
    }

    fn local(self, memory: &impl Memory) -> u64 {
        if self.has_state() { memory.load(self.at + LOCAL) } else { 0 }
    }

    fn left(self, memory: &impl Memory) -> Left {
        if !self.has_state() {
            return Left::default();
        }
        let local = self.local(memory);
        Left {
            changes: memory.load(self.at + CHANGES),
            value: memory.load(self.at + VALUE),
            moves: local >> MOVES,
            is_watched: local & WATCHED_HERE != 0,
            readers: if self.kind == Kind::RwLock { readers_here(memory, self.at) } else { 0 },
        }
    }

    /// One that is at another host, in memory that nobody has seen yet.
    pub fn begin_away(self, memory: &impl Memory) {
        self.mutex().begin_away(memory);
    }

    /// What is there.
    pub fn seen(self, memory: &impl Memory) -> Seen {
        let seen = self.mutex().seen(memory);
        let asks = self.local(memory) & (WATCHED_HERE | MISSED | LOOK) != 0;
        Seen { here: seen.here, wants: seen.sleepers || asks, left: self.left(memory) }
    }

    /// Takes it from the threads here. One that was woken for it is waited for, unless `firmly`.
    pub fn take_away(self, memory: &impl Memory, firmly: bool) -> (Taken, Left) {
        let mut taken = self.mutex().take_away(memory, firmly);
        if let Taken::Yes { died, .. } = &mut taken {
            self.settle(memory, 0);
            // Who died in the monitor, and did not write, left nothing to mend.
            *died &= self.kind != Kind::RwLock || RwLock::is_written(memory.load(self.at + VALUE));
        }
        (taken, self.left(memory))
    }

    /// Gives it to the threads here, and wakes one; those who wait for a change too, if there was one. `wanted`: whoever takes it
    /// gives it on. Gives whether the host is to take it again, and tell others of a change.
    pub fn give(self, memory: &impl Memory, died: bool, wanted: bool, given: &Given) -> bool {
        if !self.has_state() {
            self.mutex().give(memory, died, wanted);
            return false;
        }
        let before = memory.load(self.at + CHANGES);
        // Where an owner died whose host is lost, it may have written since that host said what the value was.
        let is_written = died && self.kind == Kind::RwLock;
        let value = if is_written { RwLock::written(given.value) } else { given.value };
        change_word(memory, self.at + VALUE, |_| value);
        change_word(memory, self.at + LOCAL, |local| {
            let mut flags = local & (WATCHED_HERE | MISSED | LOOK);
            if given.is_watched {
                flags |= WATCHED_ELSEWHERE;
            }
            with_others(flags | given.moves << MOVES, given.readers)
        });
        change_word(memory, self.at + CHANGES, |_| given.changes);
        let is_settled = self.settle(memory, if given.is_missed { MISSED } else { 0 });
        let is_changed = memory.load(self.at + CHANGES) != before;
        if is_changed {
            // Whoever enters from here on may say anew that it waits.
            change_word(memory, self.at + LOCAL, |local| local & !WATCHED_HERE);
        }
        self.mutex().give(memory, died, wanted);
        if is_changed {
            memory.wake(self.at + CHANGES, u32::MAX);
        }
        is_settled && given.is_watched
    }

    /// What happened since the host had the token last; no thread is in it. If the host dies in between, the next one does it
    /// again.
    fn settle(self, memory: &impl Memory, more: u64) -> bool {
        let flags = (self.local(memory) | more) & (MISSED | LOOK);
        if flags == 0 || !self.has_state() {
            return false;
        }
        if flags & MISSED != 0 && matches!(self.kind, Kind::Barrier { .. }) {
            change_word(memory, self.at + VALUE, Barrier::missed);
        }
        memory.add(self.at + CHANGES, 1);
        change_word(memory, self.at + LOCAL, |local| local & !(MISSED | LOOK | WATCHED_HERE));
        memory.wake(self.at + CHANGES, u32::MAX);
        true
    }

    /// It is away, whoever has it here. Gives whether the host is to have the token.
    pub fn void(self, memory: &impl Memory) -> bool {
        let sleepers = self.mutex().void(memory);
        let asks = self.local(memory) & (WATCHED_HERE | MISSED | LOOK) != 0;
        sleepers || asks || self.left(memory).readers > 0
    }

    /// Frees it of processes that have ended; gives whether the host is to settle that. `left`: as for
    /// [`free_of_the_dead`](crate::free_of_the_dead).
    fn free(self, memory: &impl Memory, named: &[Named], left: Option<u32>) -> bool {
        let (owner, members): (Vec<&Named>, Vec<&Named>) = named.iter().partition(|word| word.at == self.at);
        let free_owner = || owner.iter().for_each(|word| self.mutex().free_of(memory, word.word, 1));
        if !self.has_state() {
            free_owner();
            return false;
        }
        let is_barrier = self.kind != Kind::RwLock;
        let is_for_us = |word: &&&Named| !is_barrier || left.is_none_or(|left| left == word.member);
        let mut flags = if owner.is_empty() { 0 } else { LOOK };
        if !members.is_empty() && (!is_barrier || left.is_none()) {
            flags |= MISSED;
        }
        // Said before they are forgotten: if the host dies in between, the next one says it again.
        change_word(memory, self.at + LOCAL, |local| local | flags);
        free_owner();
        members.iter().filter(is_for_us).for_each(|word| _ = word.forget(memory));
        flags != 0
    }
}

/// Frees all in a part of some memory from processes that are none of the living, as
/// [`free_of_the_dead`](crate::free_of_the_dead) does; gives the numbers of those that the host is to settle.
pub fn free_monitors_of_the_dead(
    memory: &impl Memory,
    part: Range<usize>,
    kind: Kind,
    living: impl FnMut() -> HashSet<u32>,
    left: Option<u32>,
) -> Vec<u32> {
    let mut to_settle = Vec::new();
    each_of_the_dead(memory, part, (kind, true), living, |named| {
        let Some(&Named { primitive: at, .. }) = named.first() else { return };
        if (Monitor { at, kind }).free(memory, named, left) {
            to_settle.push((at / kind.bytes()) as u32);
        }
    });
    to_settle
}
