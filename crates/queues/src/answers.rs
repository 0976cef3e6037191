//! The host's end of the completion queue.

use crate::layout::{COMPLETED, COMPLETION_BYTES, ENTRIES, HOST_SLEEPS, completion, number};
use crate::memory::Memory;
use crate::sleeper;
use std::time::Duration;

/// What the pager says of a call. All of it may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The call's number.
    pub call: u64,
    /// Its slot.
    pub slot: u32,
    /// The bytes are there. Else the pager has said by the socket why not.
    pub is_filled: bool,
}

/// Takes completions.
#[derive(Debug)]
pub struct Answers<M> {
    memory: M,
    taken: u32,
}

impl<M: Memory> Answers<M> {
    /// Of memory as for [`Asking`](crate::Asking).
    pub fn new(memory: M) -> Answers<M> {
        Answers { memory, taken: 0 }
    }

    /// The next completion, if there is one.
    ///
    /// More than there can be is passed over: what was lost by that, the pager has not answered.
    pub fn take(&mut self) -> Option<Completion> {
        let there = self.memory.load(COMPLETED).wrapping_sub(self.taken);
        if there == 0 {
            return None;
        }
        if there > ENTRIES {
            self.taken = self.taken.wrapping_add(there - 1);
        }
        let mut bytes = [0; COMPLETION_BYTES];
        self.memory.read(completion(self.taken), &mut bytes);
        self.taken = self.taken.wrapping_add(1);
        Some(Completion {
            call: u64::from_le_bytes(number(&bytes, 0)),
            slot: u32::from_le_bytes(number(&bytes, 8)),
            is_filled: u32::from_le_bytes(number(&bytes, 12)) == 0,
        })
    }

    /// Whether there is one.
    pub fn is_there(&self) -> bool {
        self.memory.load(COMPLETED) != self.taken
    }

    /// Sleeps until there is a completion, so long at most, unless `is_over` by now. It may also
    /// wake without a reason. Who ends it says so first, and then calls
    /// [`wake_host`](crate::wake_host).
    pub fn sleep(&self, at_most: Duration, is_over: impl FnOnce() -> bool) {
        sleeper::sleep(&self.memory, HOST_SLEEPS, at_most, || self.is_there() || is_over());
    }
}
