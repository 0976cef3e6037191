//! A barrier that hosts share: its value is the word of the round, and whether somebody is missing since a round was whole.

use super::monitor::{Inside, Next};
use crate::barrier::{Arrived, Round};
use crate::members::Members;
use crate::memory::{Memory, Refused, Who};
use commonhold_futex::Wait;
use std::time::Duration;

/// A process ended that had arrived before. (No round has so many arrivals.)
const MISSING: u64 = 1 << 55;

/// A barrier at a place of some memory.
#[derive(Clone, Copy, Debug)]
pub struct Barrier {
    /// Where it is.
    pub at: usize,
    /// How many it waits for.
    pub parties: u32,
}

fn round(value: u64) -> Round {
    Round::of(value & !MISSING)
}

fn word(round: Round, value: u64) -> u64 {
    round.word() | value & MISSING
}

impl Barrier {
    fn inside(self) -> Inside {
        Inside(self.at)
    }

    /// Waits until all are there, as [`crate::Barrier::wait`]. Who arrived and gives up takes that back, however long it takes
    /// until it may.
    pub fn wait(
        self,
        memory: &impl Memory,
        who: Who,
        wait: Wait,
        patience: Duration,
    ) -> Result<Arrived, Refused> {
        let arrive = |value: u64| {
            if let Err(refused) = Members(self.at).enter(memory, who.member) {
                return Next::Done(Err(refused));
            }
            let mut now = round(value);
            if now.arrived + 1 >= self.parties {
                return Next::Changes(now.next(false).word(), Ok(None));
            } else if wait == Wait::No {
                return Next::Done(Err(Refused::TimedOut));
            }
            now.arrived += 1;
            Next::Becomes(word(now, value), Ok(Some((now.number, value & MISSING != 0))))
        };
        let Some((number, is_missing)) = self.inside().run(memory, who, wait, arrive)?? else {
            return Ok(Arrived { is_last: true });
        };
        let look = |value| match round(value) {
            now if now.number == number => Next::Waits,
            now => Next::Done(now.outcome(number)),
        };
        // If another process ends meanwhile, the round ends with it.
        let until = if is_missing { wait.sooner(Wait::Until(memory.now() + patience)) } else { wait };
        match self.inside().run(memory, who, until, look) {
            Err(Refused::TimedOut) => self.give_up(memory, who, number, wait),
            outcome => outcome?,
        }
    }

    /// Takes this thread's arrival back; or ends the round, if nobody is waited for any more who is missing.
    fn give_up(self, memory: &impl Memory, who: Who, number: u32, wait: Wait) -> Result<Arrived, Refused> {
        let is_late = wait.left(|| memory.now(), Duration::MAX).is_none();
        self.inside().run(memory, who, Wait::Forever, |value| {
            let mut now = round(value);
            if now.number != number {
                return Next::Done(now.outcome(number));
            } else if is_late {
                now.arrived = now.arrived.saturating_sub(1);
                return Next::Becomes(word(now, value), Err(Refused::TimedOut));
            }
            Next::Changes(word(now.next(true), value), Err(Refused::Broken))
        })?
    }

    /// Ends the round, if somebody waits in it: they get [`Refused::Broken`].
    pub fn abort(self, memory: &impl Memory, who: Who) -> Result<(), Refused> {
        self.inside().run(memory, who, Wait::Forever, |value| match round(value) {
            now if now.arrived == 0 => Next::Done(()),
            now => Next::Changes(word(now.next(true), value), ()),
        })
    }

    /// The value after a process ended that had arrived in it before.
    pub(super) fn missed(value: u64) -> u64 {
        let now = round(value);
        MISSING | if now.arrived == 0 { value } else { now.next(true).word() }
    }
}
