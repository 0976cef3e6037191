//! A semaphore that hosts share: its value is what it differs from the first one.

use super::monitor::{Inside, Next};
use crate::kind::Kind;
use crate::memory::{Memory, Refused, Who};
use commonhold_futex::Wait;

/// A semaphore at a place of some memory.
#[derive(Clone, Copy, Debug)]
pub struct Semaphore {
    /// Where it is.
    pub at: usize,
    /// The value that it began with.
    pub first: u32,
}

impl Semaphore {
    fn is(self, value: u64) -> u64 {
        u64::from(self.first).wrapping_add(value).min(Kind::MOST_VALUE.into())
    }

    fn run<T>(
        self,
        memory: &impl Memory,
        who: Who,
        wait: Wait,
        mut look: impl FnMut(u64) -> Next<T>,
    ) -> Result<T, Refused> {
        let word = |value: u64| value.wrapping_sub(self.first.into());
        Inside(self.at).run(memory, who, wait, |value| match look(self.is(value)) {
            Next::Becomes(value, done) => Next::Becomes(word(value), done),
            Next::Changes(value, done) => Next::Changes(word(value), done),
            same => same,
        })
    }

    /// Its value.
    pub fn value(self, memory: &impl Memory, who: Who) -> Result<u32, Refused> {
        self.run(memory, who, Wait::Forever, |value| Next::Done(value as u32))
    }

    /// Takes one from the value, once it is above zero.
    pub fn acquire(self, memory: &impl Memory, who: Who, wait: Wait) -> Result<(), Refused> {
        self.run(memory, who, wait, |value| match value.checked_sub(1) {
            Some(less) => Next::Becomes(less, ()),
            None => Next::Waits,
        })
    }

    /// Adds to the value; who waits looks again.
    pub fn release(self, memory: &impl Memory, who: Who, more: u32) -> Result<(), Refused> {
        self.run(memory, who, Wait::Forever, |value| match value + u64::from(more) {
            value if value > Kind::MOST_VALUE.into() => Next::Done(Err(Refused::Overflow)),
            value => Next::Changes(value, Ok(())),
        })?
    }
}
