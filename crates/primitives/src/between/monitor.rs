//! A monitor (Hoare, 1974): a mutex, the value that it guards, and a number that changes whenever those who wait are to look
//! again. Who waits sleeps on that number, on whichever host.
//!
//! The mutex's token carries value and number. So whoever has the mutex has the newest of both, and each host has in its own
//! memory what they were when the token left it.

use crate::memory::{Memory, Refused, Who, nap};
use crate::mutex::{Mutex, OWNER, WANTED, word};
use commonhold_futex::Wait;

/// The number on which those sleep who wait.
pub(super) const CHANGES: usize = 8;
/// What this host alone knows: flags, how many read on other hosts, and how often the token has moved.
pub(super) const LOCAL: usize = 16;
/// What the monitor guards.
pub(super) const VALUE: usize = 24;

/// Threads of this host wait for a change.
pub(super) const WATCHED_HERE: u64 = 1;
/// Those of others do.
pub(super) const WATCHED_ELSEWHERE: u64 = 2;
/// A process of this host ended that had read, or had arrived: the host settles that when it has the token.
pub(super) const MISSED: u64 = 4;
/// One ended in the monitor, and those who wait are to look again: the same.
pub(super) const LOOK: u64 = 8;
/// Above this bit: how often the token has moved.
pub(super) const MOVES: u32 = 24;

/// What a look at the value comes to.
pub(super) enum Next<T> {
    /// Nothing changes.
    Done(T),
    /// The value is another. Nobody waits for that.
    Becomes(u64, T),
    /// The same, and who waits looks again.
    Changes(u64, T),
    /// The caller waits for a change.
    Waits,
}

/// Changes a word; gives what it was.
pub(super) fn change_word(memory: &impl Memory, at: usize, change: impl Fn(u64) -> u64) -> u64 {
    let mut seen = memory.load(at);
    while let Err(now) = memory.exchange(at, seen, change(seen)) {
        seen = now;
    }
    seen
}

/// A monitor at a place of some memory, as a thread sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inside(pub usize);

impl Inside {
    pub(super) fn mutex(self) -> Mutex {
        Mutex(self.0)
    }

    pub(super) fn value(self, memory: &impl Memory) -> u64 {
        memory.load(self.0 + VALUE)
    }

    /// Its value is another. It is one word: who dies before it has changed nothing.
    pub(super) fn set(self, memory: &impl Memory, value: u64) {
        change_word(memory, self.0 + VALUE, |_| value);
    }

    pub(super) fn changes(self, memory: &impl Memory) -> u64 {
        memory.load(self.0 + CHANGES)
    }

    /// Takes the mutex. A thread that died in here left a value that is whole.
    pub(super) fn enter(self, memory: &impl Memory, who: Who, wait: Wait) -> Result<(), Refused> {
        if self.mutex().lock(memory, who, wait)? {
            self.mutex().mend(memory, who)?;
        }
        Ok(())
    }

    /// Lets the mutex go. Refused: somebody took it by force, and has it now.
    pub(super) fn leave(self, memory: &impl Memory, who: Who) -> Result<(), Refused> {
        self.mutex().unlock(memory, who)
    }

    /// Who waits looks again: here at once, elsewhere when the host has told them, which it does as soon as the mutex is free.
    pub(super) fn change(self, memory: &impl Memory, who: Who) {
        memory.add(self.0 + CHANGES, 1);
        let local = change_word(memory, self.0 + LOCAL, |local| local & !WATCHED_HERE);
        if local & WATCHED_HERE != 0 {
            memory.wake(self.0 + CHANGES, u32::MAX);
        }
        if local & WATCHED_ELSEWHERE != 0 {
            let owned = word(who);
            change_word(memory, self.0, |seen| if seen & OWNER == owned { seen | WANTED } else { seen });
        }
    }

    /// Says that this thread waits for a change; gives the number that changes.
    pub(super) fn watch(self, memory: &impl Memory) -> u64 {
        change_word(memory, self.0 + LOCAL, |local| local | WATCHED_HERE);
        self.changes(memory)
    }

    /// Sleeps until the number is another, outside of the monitor. Whoever was to wake this thread may be killed, so it looks by
    /// itself each second.
    pub(super) fn sleep(self, memory: &impl Memory, number: u64, wait: Wait) -> Result<(), Refused> {
        while self.changes(memory) == number {
            let nap = nap(wait, memory)?;
            memory.sleep(self.0 + CHANGES, number as u32, nap);
            if memory.are_gone() {
                return Err(Refused::Gone);
            }
        }
        Ok(())
    }

    /// Looks at the value, and again after each change, until there is nothing to wait for.
    pub(super) fn run<T>(
        self,
        memory: &impl Memory,
        who: Who,
        wait: Wait,
        mut look: impl FnMut(u64) -> Next<T>,
    ) -> Result<T, Refused> {
        loop {
            self.enter(memory, who, wait)?;
            let done = match look(self.value(memory)) {
                Next::Done(done) => done,
                Next::Becomes(value, done) => {
                    self.set(memory, value);
                    done
                }
                Next::Changes(value, done) => {
                    self.set(memory, value);
                    self.change(memory, who);
                    done
                }
                Next::Waits => {
                    let number = self.watch(memory);
                    self.leave(memory, who)?;
                    self.sleep(memory, number, wait)?;
                    continue;
                }
            };
            self.leave(memory, who)?;
            return Ok(done);
        }
    }
}
