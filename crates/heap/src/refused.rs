//! Why a call came to nothing.

use std::fmt;

/// Something in the heap's memory that no program of ours wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Problem {
    /// Where.
    pub at: u64,
    /// What is wrong there.
    pub what: &'static str,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.what, self.at)
    }
}

/// Why a call came to nothing. The heap is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// More than a heap of that size could hold when it is empty.
    TooLarge,
    /// There is no room for it now.
    NoSpace,
    /// No block begins there.
    Foreign,
    /// The block there is free already.
    NotAllocated,
    /// The word into which to allocate is not 0.
    NotEmpty,
    /// No word of a program's: in the heap's own pages, outside, or not at a multiple of 8.
    NoWord,
    /// A name that is empty, or longer than a heap keeps.
    BadName,
    /// All places for names, arenas or hosts are taken.
    TooMany,
    /// Somebody kept the lock of names.
    TimedOut,
    /// A broken program wrote into the heap's own words.
    Damaged(Problem),
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Refused {
        Refused::Damaged(problem)
    }
}

/// Shorthand.
pub(crate) type Result<T, E = Refused> = std::result::Result<T, E>;

/// A problem, as a refusal.
pub(crate) fn damaged<T>(at: u64, what: &'static str) -> Result<T> {
    Err(Refused::Damaged(Problem { at, what }))
}
