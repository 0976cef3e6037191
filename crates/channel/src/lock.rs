//! The lock: one word, which holds its owner's thread number.
//!
//! 0 is free. `SLEEPERS` is set by whoever is about to sleep until it is free. `DIED`, without a
//! number, is what the kernel leaves there when an owner dies; then it wakes one sleeper. The bits
//! are the kernel's own (robust futexes).
//!
//! Another process may write anything there. That costs a waiter its time, and may let two into the
//! queue at once: `queue` believes nothing that it finds, so no harm comes of it past the channel.

use crate::layout::{HEAD, LOCK, POSTS, TAIL};
use crate::memory::Memory;
use crate::queue::Refused;
use commonhold_futex::{LONGEST_SLEEP, Wait};
use std::time::Duration;

const NUMBER: u32 = 0x3fff_ffff;
const DIED: u32 = 0x4000_0000;
const SLEEPERS: u32 = 0x8000_0000;

/// How long an owner is waited for at most: it copies one message.
const PATIENCE: Duration = Duration::from_secs(10);

/// The lock, which is this thread's until this is dropped.
pub(crate) struct Held<'a, M: Memory> {
    memory: &'a M,
    number: u32,
    before: usize,
    /// The owner before died: whoever it was about to wake is woken by this one.
    took_over: bool,
}

impl<'a, M: Memory> Held<'a, M> {
    pub(crate) fn take(memory: &'a M, wait: Wait) -> Result<Self, Refused> {
        let number = memory.thread();
        let before = memory.about_to_lock(LOCK);
        match acquire(memory, number, wait) {
            Ok(took_over) => Ok(Held { memory, number, before, took_over }),
            Err(refused) => {
                memory.done(before);
                Err(refused)
            }
        }
    }
}

/// Puts the number into the word; gives whether the owner before died.
fn acquire(memory: &impl Memory, number: u32, wait: Wait) -> Result<bool, Refused> {
    let Err(mut seen) = memory.exchange(LOCK, 0, number) else { return Ok(false) };
    let mut spins = spins_of(memory);
    // Others may sleep, too: once this thread slept, the word says so.
    let mut sleepers = 0;
    let mut end = None;
    loop {
        if seen & NUMBER == 0 {
            match memory.exchange(LOCK, seen, number | seen & SLEEPERS | sleepers) {
                Ok(()) => return Ok(seen & DIED != 0),
                Err(now) => seen = now,
            }
        }
        if spins > 0 {
            spins -= 1;
            std::hint::spin_loop();
            seen = memory.load(LOCK);
            continue;
        }
        let now = memory.now();
        let end = *end.get_or_insert_with(|| now + wait.left(|| now, PATIENCE).unwrap_or_default());
        let Some(left) = Wait::Until(end).left(|| now, PATIENCE) else {
            return Err(Refused::Locked { thread: seen & NUMBER });
        };
        if seen & NUMBER == 0 {
            continue;
        }
        if seen & SLEEPERS == 0
            && let Err(now) = memory.exchange(LOCK, seen, seen | SLEEPERS)
        {
            seen = now;
            continue;
        }
        // Whoever may read the channel can sleep here, too, and be woken in this thread's place.
        memory.sleep(LOCK, seen | SLEEPERS, left.min(LONGEST_SLEEP));
        sleepers = SLEEPERS;
        seen = memory.load(LOCK);
    }
}

fn spins_of<M: Memory>(_: &M) -> u32 {
    M::SPINS
}

impl<M: Memory> Drop for Held<'_, M> {
    fn drop(&mut self) {
        let memory = self.memory;
        if self.took_over {
            [TAIL, HEAD, POSTS].into_iter().for_each(|word| memory.wake(word, u32::MAX));
        }
        // Twice, as somebody may begin to sleep. Whatever else it is by then is not this thread's.
        if let Err(seen) = memory.exchange(LOCK, self.number, 0)
            && seen == self.number | SLEEPERS
            && memory.exchange(LOCK, seen, 0).is_ok()
        {
            memory.wake(LOCK, 1);
        }
        memory.done(self.before);
    }
}
