//! A lock to read or to write that hosts share.
//!
//! Who writes stays in the monitor. Who reads is counted in the table of its host's processes; of other hosts the monitor has
//! how many read there, as they said when they had it.

use super::monitor::{Inside, LOCAL};
use crate::members::{Members, number};
use crate::memory::{Memory, Refused, Who};
use crate::mutex::DIED;
use commonhold_futex::Wait;
use std::time::Duration;

/// In the value: a thread writes. After its death this stays until another has mended what the lock guards.
const WRITES: u64 = 1;
/// In the value: a thread waits to write, and readers that come later wait for it.
const PENDING: u64 = 2;

/// How long readers wait for one who waits to write, and may have died.
const PATIENCE: Duration = Duration::from_secs(2);

/// In the word that a host has for itself: how many read on other hosts.
const OTHERS: u32 = 4;
const MOST_OTHERS: u64 = (1 << 20) - 1;

/// A lock at a place of some memory.
#[derive(Clone, Copy, Debug)]
pub struct RwLock(pub usize);

/// How many read on this host.
pub(super) fn readers_here(memory: &impl Memory, at: usize) -> u32 {
    Members(at).places().map(|place| number(memory.load(place))).fold(0, u32::saturating_add)
}

/// How many read elsewhere, in a host's own word.
pub(super) fn others(local: u64) -> u64 {
    local >> OTHERS & MOST_OTHERS
}

/// A host's own word with so many.
pub(super) fn with_others(local: u64, count: u32) -> u64 {
    local & !(MOST_OTHERS << OTHERS) | u64::from(count).min(MOST_OTHERS) << OTHERS
}

impl RwLock {
    /// Whether a value says that a thread writes.
    pub(super) fn is_written(value: u64) -> bool {
        value & WRITES != 0
    }

    /// The same value, and it says so.
    pub(super) fn written(value: u64) -> u64 {
        value | WRITES
    }

    fn inside(self) -> Inside {
        Inside(self.0)
    }

    fn is_read(self, memory: &impl Memory) -> bool {
        others(memory.load(self.0 + LOCAL)) > 0 || readers_here(memory, self.0) > 0
    }

    /// Enters; whether its last writer died in it.
    fn enter(self, memory: &impl Memory, who: Who, wait: Wait) -> Result<bool, Refused> {
        let inside = self.inside();
        let died = inside.mutex().lock(memory, who, wait)?;
        if died && inside.value(memory) & WRITES == 0 {
            inside.mutex().mend(memory, who)?;
            return Ok(false);
        }
        Ok(died)
    }

    /// Takes it to read. [`Refused::OwnerDied`]: what it guards may be half written.
    pub fn read(self, memory: &impl Memory, who: Who, wait: Wait) -> Result<(), Refused> {
        let inside = self.inside();
        let patience = Wait::Until(memory.now() + PATIENCE);
        loop {
            if self.enter(memory, who, wait)? {
                return inside.leave(memory, who).and(Err(Refused::OwnerDied));
            }
            let is_late = patience.left(|| memory.now(), PATIENCE).is_none();
            if inside.value(memory) & PENDING == 0 || is_late {
                let read = Members(self.0).add(memory, who.member);
                if is_late {
                    self.nobody_is_pending(memory, who);
                }
                return inside.leave(memory, who).and(read);
            }
            let number = inside.watch(memory);
            inside.leave(memory, who)?;
            match inside.sleep(memory, number, wait.sooner(patience)) {
                Err(Refused::TimedOut) if wait.left(|| memory.now(), PATIENCE).is_some() => {}
                slept => slept?,
            }
        }
    }

    /// Who waits to write says so anew, if it lives.
    fn nobody_is_pending(self, memory: &impl Memory, who: Who) {
        let value = self.inside().value(memory);
        if value & PENDING != 0 {
            self.inside().set(memory, value & !PENDING);
            self.inside().change(memory, who);
        }
    }

    /// Lets it go that was taken to read.
    pub fn end_read(self, memory: &impl Memory, who: Who) -> Result<(), Refused> {
        let inside = self.inside();
        self.enter(memory, who, Wait::Forever)?;
        let ended = Members(self.0).subtract(memory, who.member);
        if ended.is_ok() && !self.is_read(memory) {
            inside.change(memory, who);
        }
        inside.leave(memory, who).and(ended)
    }

    /// Takes it to write; gives whether its last writer died with it.
    pub fn write(self, memory: &impl Memory, who: Who, wait: Wait) -> Result<bool, Refused> {
        let inside = self.inside();
        loop {
            let died = self.enter(memory, who, wait)?;
            if !self.is_read(memory) {
                inside.set(memory, WRITES);
                return Ok(died);
            }
            if wait == Wait::No {
                return inside.leave(memory, who).and(Err(Refused::TimedOut));
            }
            inside.set(memory, inside.value(memory) | PENDING);
            let number = inside.watch(memory);
            inside.leave(memory, who)?;
            if let Err(refused) = inside.sleep(memory, number, wait) {
                // If it cannot be said, readers find out by themselves.
                if self.enter(memory, who, Wait::Until(memory.now() + PATIENCE)).is_ok() {
                    self.nobody_is_pending(memory, who);
                    inside.leave(memory, who)?;
                }
                return Err(refused);
            }
        }
    }

    /// Lets it go that was taken to write.
    pub fn end_write(self, memory: &impl Memory, who: Who) -> Result<(), Refused> {
        let inside = self.inside();
        if inside.mutex().owner(memory) != Some(who) {
            return Err(Refused::NotOwner);
        }
        // What is not mended is the next writer's.
        if memory.load(self.0) & DIED == 0 {
            inside.set(memory, 0);
        }
        inside.change(memory, who);
        inside.leave(memory, who)
    }

    /// Who has it to write says that what it guards is whole, after another died with it.
    pub fn mend(self, memory: &impl Memory, who: Who) -> Result<(), Refused> {
        self.inside().mutex().mend(memory, who)
    }
}
