//! A counter that hosts share.

use super::monitor::{Inside, Next};
use crate::memory::{Memory, Refused, Who};
use commonhold_futex::Wait;

/// A counter at a place of some memory.
#[derive(Clone, Copy, Debug)]
pub struct Counter(pub usize);

impl Counter {
    /// Its value.
    pub fn value(self, memory: &impl Memory, who: Who) -> Result<u64, Refused> {
        Inside(self.0).run(memory, who, Wait::Forever, Next::Done)
    }

    /// Adds, modulo 2^64; gives what it was.
    pub fn add(self, memory: &impl Memory, who: Who, more: u64) -> Result<u64, Refused> {
        let look = |value: u64| Next::Changes(value.wrapping_add(more), value);
        Inside(self.0).run(memory, who, Wait::Forever, look)
    }

    /// Makes it `new` if it is `old`; gives what it was.
    pub fn exchange(self, memory: &impl Memory, who: Who, old: u64, new: u64) -> Result<u64, Refused> {
        let look = |value| if value == old { Next::Changes(new, value) } else { Next::Done(value) };
        Inside(self.0).run(memory, who, Wait::Forever, look)
    }

    /// Waits until it is another than `value`; gives what it is.
    pub fn wait_while(self, memory: &impl Memory, who: Who, value: u64, wait: Wait) -> Result<u64, Refused> {
        let look = |seen| if seen == value { Next::Waits } else { Next::Done(seen) };
        Inside(self.0).run(memory, who, wait, look)
    }
}
