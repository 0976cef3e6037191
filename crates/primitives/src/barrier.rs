//! A barrier: threads wait in it until so many are there.
//!
//! One word holds the number of the round (lower half), how many have arrived in it (24 bits), and
//! of the last eight rounds which were broken. Whoever arrives last makes it the next round, in one
//! step. The table has the processes that ever arrived: when one of them ends, the round in which
//! others wait is broken. `ENDED` counts those; `SETTLED` is what it was when a round was last
//! complete. Where they differ somebody is missing, and who arrives waits for a newcomer only so
//! long.

use crate::members::Members;
use crate::memory::{Memory, Refused, nap};
use commonhold_futex::Wait;
use std::time::Duration;

const ENDED: usize = 8;
const SETTLED: usize = 16;

/// A barrier at a place of some memory.
#[derive(Clone, Copy, Debug)]
pub struct Barrier {
    /// Where it is.
    pub at: usize,
    /// How many it waits for.
    pub parties: u32,
}

/// A round that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// This thread came last: so one of them is.
    pub is_last: bool,
}

/// What the word says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Round {
    pub number: u32,
    pub arrived: u32,
    broken: u8,
}

impl Round {
    pub fn of(word: u64) -> Round {
        Round { number: word as u32, arrived: (word >> 32) as u32 & 0xff_ffff, broken: (word >> 56) as u8 }
    }

    pub fn word(self) -> u64 {
        u64::from(self.broken) << 56 | u64::from(self.arrived & 0xff_ffff) << 32 | u64::from(self.number)
    }

    pub fn next(self, is_broken: bool) -> Round {
        let broken = self.broken << 1 | u8::from(is_broken);
        Round { number: self.number.wrapping_add(1), arrived: 0, broken }
    }

    /// What became of an earlier round.
    pub fn outcome(self, earlier: u32) -> Result<Arrived, Refused> {
        let since = self.number.wrapping_sub(earlier);
        let is_whole = (1..=8).contains(&since) && self.broken >> (since - 1) & 1 == 0;
        if is_whole { Ok(Arrived { is_last: false }) } else { Err(Refused::Broken) }
    }
}

impl Barrier {
    /// Waits until all are there. `patience`: how long a newcomer is waited for where somebody is
    /// missing. [`Refused::TimedOut`]: this thread did not arrive.
    pub fn wait(
        self,
        memory: &impl Memory,
        member: u32,
        wait: Wait,
        patience: Duration,
    ) -> Result<Arrived, Refused> {
        Members(self.at).enter(memory, member)?;
        let ended = memory.load(self.at + ENDED);
        let number = loop {
            let seen = memory.load(self.at);
            let mut round = Round::of(seen);
            let is_last = round.arrived + 1 >= self.parties;
            if is_last {
                self.settle(memory, ended);
                if memory.exchange(self.at, seen, round.next(false).word()).is_ok() {
                    memory.wake(self.at, u32::MAX);
                    return Ok(Arrived { is_last });
                }
                continue;
            }
            if wait == Wait::No {
                return Err(Refused::TimedOut);
            }
            round.arrived += 1;
            if memory.exchange(self.at, seen, round.word()).is_ok() {
                break round.number;
            }
        };
        self.sleep(memory, number, wait, patience)
    }

    fn sleep(
        self,
        memory: &impl Memory,
        number: u32,
        wait: Wait,
        patience: Duration,
    ) -> Result<Arrived, Refused> {
        let mut given_up = None;
        loop {
            let round = Round::of(memory.load(self.at));
            if round.number != number {
                return round.outcome(number);
            }
            if given_up.is_none() && memory.load(self.at + ENDED) != memory.load(self.at + SETTLED) {
                given_up = Some(Wait::Until(memory.now() + patience));
            }
            let Ok(left) = nap(wait, memory) else { return self.withdraw(memory, number) };
            let Ok(most) = nap(given_up.unwrap_or(Wait::Forever), memory) else {
                self.give_up(memory, |round| round.number == number);
                continue;
            };
            memory.sleep(self.at, number, left.min(most));
        }
    }

    /// Takes this thread's arrival back, unless the round is over.
    fn withdraw(self, memory: &impl Memory, number: u32) -> Result<Arrived, Refused> {
        loop {
            let seen = memory.load(self.at);
            let mut round = Round::of(seen);
            if round.number != number {
                return round.outcome(number);
            }
            round.arrived = round.arrived.saturating_sub(1);
            if memory.exchange(self.at, seen, round.word()).is_ok() {
                return Err(Refused::TimedOut);
            }
        }
    }

    /// Nobody is missing who ended before.
    fn settle(self, memory: &impl Memory, ended: u64) {
        let seen = memory.load(self.at + SETTLED);
        if seen != ended {
            // If it fails another has done so.
            let _ = memory.exchange(self.at + SETTLED, seen, ended);
        }
    }

    /// Ends the round, if somebody waits in it: they get [`Refused::Broken`].
    pub fn abort(self, memory: &impl Memory) {
        self.give_up(memory, |_| true);
    }

    fn give_up(self, memory: &impl Memory, which: impl Fn(Round) -> bool) {
        loop {
            let seen = memory.load(self.at);
            let round = Round::of(seen);
            if round.arrived == 0 || !which(round) {
                return;
            }
            if memory.exchange(self.at, seen, round.next(true).word()).is_ok() {
                memory.wake(self.at, u32::MAX);
                return;
            }
        }
    }

    /// So many processes ended that were there before, and did not leave by themselves.
    pub(crate) fn misses(self, memory: &impl Memory, ended: u64) {
        memory.add(self.at + ENDED, ended);
        self.abort(memory);
    }
}
