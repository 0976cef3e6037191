//! A condition: a number that each signal changes.
//!
//! The lower half is 31 bits of number and `SLEEPERS`, which is set by whoever is about to sleep: a
//! signal that nobody waits for is one load.

use crate::memory::{Memory, Refused, Who, nap};
use crate::mutex::Mutex;
use commonhold_futex::Wait;

const NUMBER: u64 = 0x7fff_ffff;
const SLEEPERS: u64 = 0x8000_0000;

/// A condition at a place of some memory.
#[derive(Clone, Copy, Debug)]
pub struct Condition(pub usize);

impl Condition {
    /// Lets the mutex go, waits for a signal, and takes the mutex again, however long that takes.
    /// It may also wake without a signal. Gives whether the mutex's last owner died with it. With
    /// [`Refused::TimedOut`] and [`Refused::OwnerDied`] the caller has the mutex; `OwnerDied`: in
    /// time, but its owner died; with [`Refused::NotOwner`] it never had it.
    ///
    /// The mutex may lie in other memory.
    pub fn wait(
        self,
        memory: &impl Memory,
        mutex: (Mutex, &impl Memory),
        who: Who,
        wait: Wait,
    ) -> Result<bool, Refused> {
        let (mutex, its) = mutex;
        let mut seen = memory.load(self.0);
        if mutex.owner(its) != Some(who) {
            return Err(Refused::NotOwner);
        }
        while seen & SLEEPERS == 0 {
            match memory.exchange(self.0, seen, seen | SLEEPERS) {
                Ok(()) => seen |= SLEEPERS,
                Err(now) => seen = now,
            }
        }
        mutex.unlock(its, who)?;
        let result = loop {
            let nap = match nap(wait, memory) {
                Ok(nap) => nap,
                Err(refused) => break Err(refused),
            };
            memory.sleep(self.0, seen as u32, nap);
            if memory.load(self.0) as u32 != seen as u32 {
                break Ok(());
            }
        };
        let died = mutex.lock(its, who, Wait::Forever)?;
        result.map(|()| died)
    }

    /// What each signal changes that somebody may wait for.
    pub fn number(self, memory: &impl Memory) -> u64 {
        memory.load(self.0) & NUMBER
    }

    /// Wakes one of those who wait.
    pub fn signal(self, memory: &impl Memory) {
        let Some(now) = self.change(memory, SLEEPERS) else { return };
        if memory.wake(self.0, 1) == 0 {
            // Nobody sleeps, unless the word is another by now.
            let _ = memory.exchange(self.0, now, now & !SLEEPERS);
        }
    }

    /// Wakes all who wait.
    pub fn broadcast(self, memory: &impl Memory) {
        if self.change(memory, 0).is_some() {
            memory.wake(self.0, u32::MAX);
        }
    }

    /// The next number, if somebody may sleep.
    fn change(self, memory: &impl Memory, sleepers: u64) -> Option<u64> {
        let mut seen = memory.load(self.0);
        loop {
            if seen & SLEEPERS == 0 {
                return None;
            }
            let next = seen.wrapping_add(1) & NUMBER | sleepers;
            match memory.exchange(self.0, seen, next) {
                Ok(()) => return Some(next),
                Err(now) => seen = now,
            }
        }
    }
}
