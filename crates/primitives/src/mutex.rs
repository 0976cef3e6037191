//! A mutex: one word, which holds its owner.
//!
//! 0 is free. The upper half is the owner's process, the lowest 29 bits are its thread. `SLEEPERS`
//! is set by whoever is about to sleep until it is free. `DIED` is set by the host when the owner's
//! process has ended, and stays until an owner says that what the mutex guards is whole.
//!
//! Of a mutex that several hosts share (`shared`), the owner is `AWAY` while another host has it,
//! and `WANTED` says that another host waits for it: whoever lets it go gives it to its own host.
//!
//! Another process may write anything there: then two threads have it, or nobody gets it. That is
//! the affair of all who may write it.

use crate::memory::{Memory, Refused, Who, nap};
use commonhold_futex::Wait;

const THREAD: u64 = 0x1fff_ffff;
pub(crate) const WANTED: u64 = 0x2000_0000;
pub(crate) const DIED: u64 = 0x4000_0000;
pub(crate) const SLEEPERS: u64 = 0x8000_0000;
pub(crate) const OWNER: u64 = !(WANTED | DIED | SLEEPERS);
/// In the place of an owner: the mutex is at another host. No process has the number 0.
pub(crate) const AWAY: u64 = 1;

/// A mutex at a place of some memory.
#[derive(Clone, Copy, Debug)]
pub struct Mutex(pub usize);

/// A thread as an owner's word.
pub(crate) fn word(who: Who) -> u64 {
    u64::from(who.member) << 32 | u64::from(who.thread) & THREAD
}

/// What a word becomes whose owner lets it go. Who sleeps goes on sleeping if another host gets it.
fn let_go(seen: u64, died: u64) -> u64 {
    if seen & WANTED != 0 { AWAY | died | seen & SLEEPERS } else { died }
}

/// Whether it has an owner, in a process here.
pub(crate) fn is_owned(word: u64) -> bool {
    word & OWNER != 0 && word & OWNER != AWAY
}

/// The process of an owner's word; 0: nobody's.
pub(crate) fn member(word: u64) -> u32 {
    if is_owned(word) { (word >> 32) as u32 } else { 0 }
}

/// The thread of an owner's word.
fn owner(word: u64) -> Option<Who> {
    is_owned(word).then(|| Who { member: member(word), thread: (word & THREAD) as u32 })
}

impl Mutex {
    /// Takes it if it is free and nothing is to be said of it; gives whether it did.
    #[inline]
    pub fn lock_free(self, memory: &impl Memory, who: Who) -> bool {
        memory.exchange(self.0, 0, word(who)).is_ok()
    }

    /// Lets it go if this thread has it and nobody sleeps for it; gives whether it did.
    #[inline]
    pub fn unlock_unwanted(self, memory: &impl Memory, who: Who) -> bool {
        memory.exchange(self.0, word(who), 0).is_ok()
    }

    /// Takes it for a thread; gives whether its last owner died with it.
    #[inline]
    pub fn lock(self, memory: &impl Memory, who: Who, wait: Wait) -> Result<bool, Refused> {
        match memory.exchange(self.0, 0, word(who)) {
            Ok(()) => Ok(false),
            Err(seen) => self.lock_slowly(memory, word(who), wait, seen),
        }
    }

    #[cold]
    fn lock_slowly<M: Memory>(self, memory: &M, me: u64, wait: Wait, mut seen: u64) -> Result<bool, Refused> {
        let mut spins = if wait == Wait::No { 0 } else { M::SPINS };
        // Others may sleep, too: once this thread slept, the word says so.
        let mut sleepers = 0;
        loop {
            if seen & OWNER == 0 {
                match memory.exchange(self.0, seen, me | seen & !OWNER | sleepers) {
                    Ok(()) => return Ok(seen & DIED != 0),
                    Err(now) => seen = now,
                }
                continue;
            }
            if seen & OWNER == me {
                return Err(Refused::Deadlock);
            }
            if spins > 0 && seen & OWNER != AWAY {
                spins -= 1;
                std::hint::spin_loop();
                seen = memory.load(self.0);
                continue;
            }
            let nap = nap(wait, memory);
            // Whoever slept and gives up may have been woken in the place of another, which sleeps on.
            if seen & SLEEPERS == 0
                && (nap.is_ok() || sleepers != 0)
                && let Err(now) = memory.exchange(self.0, seen, seen | SLEEPERS)
            {
                seen = now;
                continue;
            }
            if seen & OWNER == AWAY {
                // Said anew after each sleep: what was said may be lost. Who does not wait finds it here later.
                memory.wanted(self.0);
            }
            let nap = nap?;
            memory.sleep(self.0, (seen | SLEEPERS) as u32, nap);
            sleepers = SLEEPERS;
            if memory.are_gone() {
                return Err(Refused::Gone);
            }
            seen = memory.load(self.0);
        }
    }

    /// Lets it go.
    #[inline]
    pub fn unlock(self, memory: &impl Memory, who: Who) -> Result<(), Refused> {
        match memory.exchange(self.0, word(who), 0) {
            Ok(()) => Ok(()),
            Err(seen) => self.unlock_slowly(memory, word(who), seen, 1),
        }
    }

    /// Lets it go, and wakes so many of those who sleep for it.
    #[cold]
    pub(crate) fn unlock_slowly(
        self,
        memory: &impl Memory,
        me: u64,
        mut seen: u64,
        wakes: u32,
    ) -> Result<(), Refused> {
        loop {
            if seen & OWNER != me {
                return Err(Refused::NotOwner);
            }
            match memory.exchange(self.0, seen, let_go(seen, seen & DIED)) {
                Ok(()) => break,
                Err(now) => seen = now,
            }
        }
        if seen & WANTED != 0 {
            memory.released(self.0);
        } else if seen & SLEEPERS != 0 {
            memory.wake(self.0, wakes);
        }
        Ok(())
    }

    /// Its owner says that what it guards is whole, after another died with it.
    pub fn mend(self, memory: &impl Memory, who: Who) -> Result<(), Refused> {
        let mut seen = memory.load(self.0);
        loop {
            if seen & OWNER != word(who) {
                return Err(Refused::NotOwner);
            }
            match memory.exchange(self.0, seen, seen & !DIED) {
                Ok(()) => return Ok(()),
                Err(now) => seen = now,
            }
        }
    }

    /// Who has it, by the word.
    pub fn owner(self, memory: &impl Memory) -> Option<Who> {
        owner(memory.load(self.0))
    }

    /// Frees it of an owner whose process is none of the living, unless the word is another's by now.
    pub(crate) fn free_of(self, memory: &impl Memory, owned: u64, wakes: u32) {
        let mut seen = owned;
        while let Err(now) = memory.exchange(self.0, seen, let_go(seen, DIED)) {
            // Meanwhile somebody else may have said that he sleeps, and the host that it is wanted: each once.
            if now & OWNER != seen & OWNER || now & seen != seen || now == seen {
                return;
            }
            seen = now;
        }
        // One that another host waits for is its host's now, which looks when this is done.
        if seen & WANTED == 0 {
            memory.wake(self.0, wakes);
        }
    }
}
