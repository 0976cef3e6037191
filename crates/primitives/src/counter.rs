//! A counter: a number, and whether somebody waits for another one.

use crate::memory::{Memory, Refused, nap};
use commonhold_futex::Wait;

/// A counter at a place of some memory.
#[derive(Clone, Copy, Debug)]
pub struct Counter(pub usize);

impl Counter {
    /// Its value.
    pub fn value(self, memory: &impl Memory) -> u64 {
        memory.load(self.0)
    }

    /// Adds, modulo 2^64; gives what it was.
    pub fn add(self, memory: &impl Memory, more: u64) -> u64 {
        let before = memory.add(self.0, more);
        self.wake(memory);
        before
    }

    /// Makes it `new` if it is `old`; else gives what it is.
    pub fn exchange(self, memory: &impl Memory, old: u64, new: u64) -> Result<(), u64> {
        memory.exchange(self.0, old, new)?;
        self.wake(memory);
        Ok(())
    }

    /// Waits until it is another than `value`; gives what it is.
    pub fn wait_while(self, memory: &impl Memory, value: u64, wait: Wait) -> Result<u64, Refused> {
        loop {
            let seen = memory.load(self.0);
            if seen != value {
                return Ok(seen);
            }
            let nap = nap(wait, memory)?;
            // Said before it is looked at once more, so that who changes it sees one or the other.
            let _ = memory.exchange(self.0 + 8, 0, 1); // another may have said so
            if memory.load(self.0) == value {
                memory.sleep(self.0, value as u32, nap);
            }
        }
    }

    fn wake(self, memory: &impl Memory) {
        if memory.load(self.0 + 8) != 0 {
            let _ = memory.exchange(self.0 + 8, 1, 0); // another may be waking them
            memory.wake(self.0, u32::MAX);
        }
    }
}
