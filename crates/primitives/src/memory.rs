//! What a primitive needs of its memory.

use commonhold_futex::{LONGEST_SLEEP, Wait};
use std::time::{Duration, Instant};

/// Memory that others change at any time, seen by one process. A place is a number of bytes, a
/// multiple of 8; one that is outside is a panic, and no primitive gives one. All words are in one
/// order that everybody sees.
pub trait Memory {
    /// How often to look again before sleeping for a lock.
    const SPINS: u32;

    /// A word.
    fn load(&self, at: usize) -> u64;

    /// Replaces a word if it is `old`; else gives what it is.
    fn exchange(&self, at: usize, old: u64, new: u64) -> Result<(), u64>;

    /// Adds to a word, modulo 2^64; gives what it was.
    fn add(&self, at: usize, more: u64) -> u64;

    /// Sleeps while the lower half of the word is `value`, so long at most; it may also wake
    /// without a reason.
    fn sleep(&self, at: usize, value: u32, at_most: Duration);

    /// Wakes so many that sleep on a word; gives how many slept.
    fn wake(&self, at: usize, most: u32) -> u32;

    /// Whether somebody sleeps on a word. None is woken, if that can be.
    fn has_sleepers(&self, at: usize) -> bool {
        self.wake(at, 1) > 0
    }

    /// The time.
    fn now(&self) -> Instant;

    /// A thread here waits for a mutex that is at another host.
    fn wanted(&self, _at: usize) {}

    /// A mutex that another host waits for was let go.
    fn released(&self, _at: usize) {}

    /// Whether these words are nobody's any more, so that nobody will wake who sleeps on one. Asked after each sleep.
    fn are_gone(&self) -> bool {
        false
    }
}

/// A thread of a process, as its host knows the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// The process: given by its host, never 0.
    pub member: u32,
    /// The thread, among those of the process: from 1 to 2^29 - 1.
    pub thread: u32,
}

impl Who {
    /// The number of a process, never 0: no two that live at once have the same. Its host gives it.
    pub fn member_of(pid: u32, start_ticks: u64) -> u32 {
        pid & PID | (start_ticks as u32) << PID.count_ones()
    }

    /// The number of its process, as its host sees it.
    pub fn pid(self) -> u32 {
        self.member & PID
    }
}

/// Linux has no larger ones (`PID_MAX_LIMIT`).
const PID: u32 = (1 << 22) - 1;

/// Why a call came to nothing. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its time was over.
    TimedOut,
    /// This thread has it already.
    Deadlock,
    /// This thread does not have it.
    NotOwner,
    /// Who had it died, and nobody has said since that what it guards is whole.
    OwnerDied,
    /// More processes than the table has places for.
    TooManyMembers,
    /// A semaphore above its largest value.
    Overflow,
    /// Whoever could have completed the barrier has ended, or somebody gave it up.
    Broken,
    /// The words are nobody's any more: [`Memory::are_gone`].
    Gone,
}

/// How long to sleep now.
pub(crate) fn nap(wait: Wait, memory: &impl Memory) -> Result<Duration, Refused> {
    wait.left(|| memory.now(), LONGEST_SLEEP).ok_or(Refused::TimedOut)
}
