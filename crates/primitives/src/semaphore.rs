//! A semaphore: what its value differs from the one that it began with, and whether somebody sleeps.

use crate::kind::Kind;
use crate::memory::{Memory, Refused, nap};
use commonhold_futex::Wait;

/// In the upper half: somebody may sleep until the value is above zero.
const SLEEPERS: u64 = 1 << 32;

/// A semaphore at a place of some memory.
#[derive(Clone, Copy, Debug)]
pub struct Semaphore {
    /// Where it is.
    pub at: usize,
    /// The value that it began with.
    pub first: u32,
}

impl Semaphore {
    fn value_of(self, word: u64) -> i64 {
        i64::from(self.first) + i64::from(word as u32 as i32)
    }

    fn word(self, value: i64) -> u64 {
        u64::from((value - i64::from(self.first)) as i32 as u32)
    }

    /// Its value.
    pub fn value(self, memory: &impl Memory) -> u32 {
        self.value_of(memory.load(self.at)).clamp(0, i64::from(u32::MAX)) as u32
    }

    /// Takes one from the value, once it is above zero.
    pub fn acquire(self, memory: &impl Memory, wait: Wait) -> Result<(), Refused> {
        let mut seen = memory.load(self.at);
        loop {
            let value = self.value_of(seen);
            if value > 0 {
                match memory.exchange(self.at, seen, self.word(value - 1) | seen & SLEEPERS) {
                    Ok(()) => return Ok(()),
                    Err(now) => seen = now,
                }
                continue;
            }
            let nap = nap(wait, memory)?;
            if seen & SLEEPERS == 0
                && let Err(now) = memory.exchange(self.at, seen, seen | SLEEPERS)
            {
                seen = now;
                continue;
            }
            memory.sleep(self.at, seen as u32, nap);
            seen = memory.load(self.at);
        }
    }

    /// Adds to the value, and wakes as many.
    pub fn release(self, memory: &impl Memory, more: u32) -> Result<(), Refused> {
        let mut seen = memory.load(self.at);
        let new = loop {
            let value = self.value_of(seen) + i64::from(more);
            if value > i64::from(Kind::MOST_VALUE) {
                return Err(Refused::Overflow);
            }
            let new = self.word(value) | seen & SLEEPERS;
            match memory.exchange(self.at, seen, new) {
                Ok(()) => break new,
                Err(now) => seen = now,
            }
        };
        if seen & SLEEPERS != 0 && memory.wake(self.at, more) == 0 {
            // Nobody sleeps, unless the word is another by now.
            let _ = memory.exchange(self.at, new, new & !SLEEPERS);
        }
        Ok(())
    }
}
