//! A table of processes: each of its words holds a process, in the upper half, and a number of its.

use crate::memory::{Memory, Refused};

/// How many processes have a place in a table.
pub const MEMBERS: usize = 60;
/// Where the table begins.
pub(crate) const AT: usize = 32;

fn word(member: u32, number: u32) -> u64 {
    u64::from(member) << 32 | u64::from(number)
}

pub(crate) fn member(word: u64) -> u32 {
    (word >> 32) as u32
}

pub(crate) fn number(word: u64) -> u32 {
    word as u32
}

/// The table of the primitive at that place.
#[derive(Clone, Copy)]
pub(crate) struct Members(pub usize);

impl Members {
    /// Where its words are.
    pub(crate) fn places(self) -> impl Iterator<Item = usize> {
        (0..MEMBERS).map(move |index| self.0 + AT + 8 * index)
    }

    /// Adds one to a process's number.
    pub(crate) fn add(self, memory: &impl Memory, me: u32) -> Result<(), Refused> {
        self.change(memory, me, |number| number.checked_add(1))
    }

    /// Gives a process a place, if it has none, and the number 1.
    pub(crate) fn enter(self, memory: &impl Memory, me: u32) -> Result<(), Refused> {
        self.change(memory, me, |number| Some(number.max(1)))
    }

    fn change(self, memory: &impl Memory, me: u32, more: impl Fn(u32) -> Option<u32>) -> Result<(), Refused> {
        loop {
            // Its own; else one that nobody has; else one whose process does not need it now.
            let (mut free, mut idle) = (None, None);
            let mut own = None;
            for at in self.places() {
                let seen = memory.load(at);
                if member(seen) == me && more(number(seen)).is_some() {
                    own = Some((at, seen));
                    break;
                }
                if seen == 0 && free.is_none() {
                    free = Some((at, seen));
                } else if number(seen) == 0 && idle.is_none() {
                    idle = Some((at, seen));
                }
            }
            let Some((at, seen)) = own.or(free).or(idle) else { return Err(Refused::TooManyMembers) };
            let had = if member(seen) == me { number(seen) } else { 0 };
            let next = more(had).ok_or(Refused::TooManyMembers)?;
            if memory.exchange(at, seen, word(me, next)).is_ok() {
                return Ok(());
            }
        }
    }

    /// Takes one from a process's number.
    pub(crate) fn subtract(self, memory: &impl Memory, me: u32) -> Result<(), Refused> {
        loop {
            let found = self
                .places()
                .map(|at| (at, memory.load(at)))
                .find(|(_, seen)| member(*seen) == me && number(*seen) > 0);
            let Some((at, seen)) = found else { return Err(Refused::NotOwner) };
            if memory.exchange(at, seen, word(me, number(seen) - 1)).is_ok() {
                return Ok(());
            }
        }
    }
}
