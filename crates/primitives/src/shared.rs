//! A mutex that several hosts share, as its host sees it: the word is of the threads here, or it is
//! away. Which of the two is `commonhold-tokens`' affair.

use crate::memory::Memory;
use crate::mutex::{self, AWAY, DIED, Mutex, OWNER, SLEEPERS, WANTED};

/// What came of taking a word from the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Nobody has it here any more.
    Yes {
        /// An owner died.
        died: bool,
        /// Threads here sleep for it.
        sleepers: bool,
    },
    /// A thread has it: it gives it to its host when it lets it go.
    Owned,
    /// A thread was woken for it, and has not taken it yet.
    Reserved,
}

/// What a word says to a host that follows another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// It is of the threads here.
    pub here: bool,
    /// Threads here sleep for it.
    pub sleepers: bool,
}

impl Mutex {
    /// A mutex that is at another host, in memory that nobody has seen yet.
    pub(crate) fn begin_away(self, memory: &impl Memory) {
        // It was 0: nobody else has the memory.
        let _ = memory.exchange(self.0, 0, AWAY);
    }

    /// What the word says.
    pub(crate) fn seen(self, memory: &impl Memory) -> Seen {
        let word = memory.load(self.0);
        Seen { here: word & OWNER != AWAY, sleepers: word & SLEEPERS != 0 }
    }

    /// Takes it from the threads here. One that was woken for it is waited for, unless `firmly`.
    pub(crate) fn take_away(self, memory: &impl Memory, firmly: bool) -> Taken {
        let mut seen = memory.load(self.0);
        loop {
            let next = match seen & OWNER {
                AWAY => return self.taken(memory, seen),
                0 if firmly || seen & SLEEPERS == 0 => AWAY | seen & (DIED | SLEEPERS),
                _ => seen | WANTED,
            };
            match memory.exchange(self.0, seen, next) {
                Ok(()) if next & OWNER == AWAY => return self.taken(memory, next),
                Ok(()) if mutex::is_owned(seen) => return Taken::Owned,
                Ok(()) => return Taken::Reserved,
                Err(now) => seen = now,
            }
        }
    }

    /// It is taken. Whoever slept once says that others may, so it is looked whether one does. None is
    /// woken: it would sleep again after those who came later, and wait for ever.
    fn taken(self, memory: &impl Memory, seen: u64) -> Taken {
        let sleepers = seen & SLEEPERS != 0 && memory.has_sleepers(self.0);
        if seen & SLEEPERS != 0 && !sleepers {
            // Changed meanwhile: somebody else says so anew.
            let _ = memory.exchange(self.0, seen, seen & !SLEEPERS);
        }
        Taken::Yes { died: seen & DIED != 0, sleepers }
    }

    /// Gives it to the threads here, and wakes one. `wanted`: whoever takes it gives it on. Gives whether
    /// one slept.
    pub(crate) fn give(self, memory: &impl Memory, died: bool, wanted: bool) -> bool {
        let flags = if died { DIED } else { 0 } | if wanted { WANTED } else { 0 };
        let mut seen = memory.load(self.0);
        // Whatever is there: a program that wrote it harmed those who may write there.
        while let Err(now) = memory.exchange(self.0, seen, seen & SLEEPERS | flags) {
            seen = now;
        }
        if seen & SLEEPERS == 0 || memory.wake(self.0, 1) > 0 {
            return seen & SLEEPERS != 0;
        }
        // Who said that he sleeps is gone, or looks again before he does. Else another has it already.
        let _ = memory.exchange(self.0, SLEEPERS | flags, flags);
        false
    }

    /// It is away, whoever has it here. Gives whether threads here sleep for it.
    pub(crate) fn void(self, memory: &impl Memory) -> bool {
        let mut seen = memory.load(self.0);
        while let Err(now) = memory.exchange(self.0, seen, AWAY | seen & SLEEPERS) {
            seen = now;
        }
        seen & SLEEPERS != 0
    }
}
