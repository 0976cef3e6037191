//! Which primitive an object holds. An object's description says it, with the numbers that it begins with:
//! they are there as soon as the object is.

use crate::members;
use std::fmt;

const PREFIX: &str = "sync:";

/// How many primitives an object holds at most.
pub const MOST: u64 = 1 << 16;

/// A kind of primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One thread has it.
    Mutex,
    /// One thread has it to write, or several have it to read.
    RwLock,
    /// Threads wait for it to be signalled.
    Condition,
    /// A number that is never below zero.
    Semaphore {
        /// The number that it begins with.
        value: u32,
    },
    /// Threads wait in it until so many are there.
    Barrier {
        /// How many.
        parties: u32,
    },
    /// A number.
    Counter,
}

impl Kind {
    /// The largest value of a semaphore.
    pub const MOST_VALUE: u32 = i32::MAX as u32;
    /// The most parties of a barrier.
    pub const MOST_PARTIES: u32 = 1 << 20;

    /// What an object's description says; `None`: it is no primitive.
    pub fn of_description(description: &str) -> Option<Kind> {
        let (word, number) = match description.strip_prefix(PREFIX)?.split_once(':') {
            Some((word, number)) => (word, Some(number.parse::<u32>().ok()?)),
            None => (description.strip_prefix(PREFIX)?, None),
        };
        let kind = match (word, number) {
            ("mutex", None) => Kind::Mutex,
            ("rwlock", None) => Kind::RwLock,
            ("condition", None) => Kind::Condition,
            ("counter", None) => Kind::Counter,
            ("semaphore", Some(value)) => Kind::Semaphore { value },
            ("barrier", Some(parties)) => Kind::Barrier { parties },
            _ => return None,
        };
        kind.is_valid().then_some(kind)
    }

    /// What an object of that description and size holds: so many of a kind, and no part of one. `None`: no
    /// primitives, whatever its description says. (One that is larger than they become would be looked through
    /// as often as somebody closes it.)
    pub fn of_object(description: &str, size_bytes: u64) -> Option<Kind> {
        let fits = |kind: &Kind| {
            (1..=kind.most_bytes()).contains(&size_bytes) && size_bytes.is_multiple_of(kind.bytes() as u64)
        };
        Kind::of_description(description).filter(fits)
    }

    /// Whether its number can be.
    pub fn is_valid(self) -> bool {
        match self {
            Kind::Semaphore { value } => value <= Kind::MOST_VALUE,
            Kind::Barrier { parties } => (1..=Kind::MOST_PARTIES).contains(&parties),
            _ => true,
        }
    }

    /// A semaphore's first value, or a barrier's parties; 0 of others.
    pub const fn number(self) -> u32 {
        match self {
            Kind::Semaphore { value } => value,
            Kind::Barrier { parties } => parties,
            _ => 0,
        }
    }

    /// The description of its objects.
    pub fn description(self) -> String {
        match self {
            Kind::Semaphore { value } => format!("{PREFIX}semaphore:{value}"),
            Kind::Barrier { parties } => format!("{PREFIX}barrier:{parties}"),
            _ => format!("{PREFIX}{}", self.word()),
        }
    }

    /// Bytes of one.
    pub const fn bytes(self) -> usize {
        match self {
            Kind::Mutex | Kind::Condition | Kind::Semaphore { .. } | Kind::Counter => 64,
            Kind::RwLock | Kind::Barrier { .. } => members::AT + 8 * members::MEMBERS,
        }
    }

    /// Whether it has a table of processes.
    pub(crate) const fn has_members(self) -> bool {
        matches!(self, Kind::RwLock | Kind::Barrier { .. })
    }

    /// Bytes of the largest object of them.
    pub const fn most_bytes(self) -> u64 {
        MOST * self.bytes() as u64
    }

    /// Its name.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Mutex => "mutex",
            Kind::RwLock => "rwlock",
            Kind::Condition => "condition",
            Kind::Semaphore { .. } => "semaphore",
            Kind::Barrier { .. } => "barrier",
            Kind::Counter => "counter",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Semaphore { value } => write!(f, "semaphore that begins with {value}"),
            Kind::Barrier { parties } => write!(f, "barrier of {parties}"),
            _ => f.write_str(self.word()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_as_they_are_written_and_nothing_else_is() {
        let all = [
            Kind::Mutex,
            Kind::RwLock,
            Kind::Condition,
            Kind::Semaphore { value: 0 },
            Kind::Semaphore { value: Kind::MOST_VALUE },
            Kind::Barrier { parties: 1 },
            Kind::Counter,
        ];
        for kind in all {
            assert_eq!(Kind::of_description(&kind.description()), Some(kind));
            assert!(kind.bytes() % 64 == 0);
        }
        let others =
            ["", "mutex", "sync:", "sync:mutex:1", "sync:semaphore", "sync:semaphore:-1", "sync:barrier:0"];
        assert!(others.into_iter().all(|description| Kind::of_description(description).is_none()));
        assert_eq!(Kind::of_description("sync:semaphore:4294967295"), None);
        assert_eq!(Kind::of_description("sync:barrier:99999999"), None);
    }
}
