//! The pager's ends of both queues. It trusts the host.

use crate::asking::Place;
use crate::layout::{
    COMPLETED, DATA, LONGEST_NAME, PAGE, PAGER_SLEEPS, QUESTION_BYTES, SUBMITTED, completion, number,
    submission,
};
use crate::memory::Memory;
use crate::sleeper;
use std::time::Duration;

/// A question that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The number of the call.
    pub call: u64,
    /// The object's name.
    pub object: String,
    /// First byte.
    pub offset: u64,
    /// Where the bytes are to be put, and how many.
    pub place: Place,
    slot: u32,
}

/// Takes questions, and completes them.
#[derive(Debug)]
pub struct Answering<M> {
    memory: M,
    taken: u32,
    completed: u32,
}

impl<M: Memory> Answering<M> {
    /// Of memory that a host gave, of which nobody has taken anything yet.
    pub fn new(memory: M) -> Answering<M> {
        Answering { memory, taken: 0, completed: 0 }
    }

    pub(crate) fn memory(&self) -> &M {
        &self.memory
    }

    /// The next question, if there is one.
    pub fn take(&mut self) -> Option<Given> {
        if !self.is_there() {
            return None;
        }
        let at = submission(self.taken);
        let mut bytes = [0; QUESTION_BYTES];
        self.memory.read(at, &mut bytes);
        let [length, slot, first_page, name_bytes] =
            [16, 20, 24, 28].map(|at| u32::from_le_bytes(number(&bytes, at)));
        let mut name = vec![0; (name_bytes as usize).min(LONGEST_NAME)];
        self.memory.read(at + QUESTION_BYTES, &mut name);
        self.taken = self.taken.wrapping_add(1);
        Some(Given {
            call: u64::from_le_bytes(number(&bytes, 0)),
            object: String::from_utf8_lossy(&name).into_owned(),
            offset: u64::from_le_bytes(number(&bytes, 8)),
            place: Place { at: DATA + first_page as usize * PAGE, length: length as usize },
            slot,
        })
    }

    /// Says that a question's bytes are in their place; or that they will not be, which the host
    /// has been told why. Wakes it if it sleeps.
    pub fn complete(&mut self, question: &Given, is_filled: bool) {
        let at = completion(self.completed);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&question.call.to_le_bytes());
        bytes[8..12].copy_from_slice(&question.slot.to_le_bytes());
        bytes[12..].copy_from_slice(&u32::from(!is_filled).to_le_bytes());
        self.memory.write(at, &bytes);
        self.completed = self.completed.wrapping_add(1);
        self.memory.store(COMPLETED, self.completed);
        sleeper::wake_for_answers(&self.memory);
    }

    /// Whether there is one.
    pub fn is_there(&self) -> bool {
        self.memory.load(SUBMITTED) != self.taken
    }

    /// Sleeps until there is a question, unless something else `is_there` by now: who puts it there
    /// calls [`wake_pager`](crate::wake_pager) then. It may also wake without a reason.
    pub fn sleep(&self, is_there: impl FnOnce() -> bool) {
        sleeper::sleep(&self.memory, PAGER_SLEEPS, Duration::MAX, || self.is_there() || is_there());
    }
}
