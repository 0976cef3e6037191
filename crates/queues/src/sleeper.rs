//! How an end sleeps. Its word says whether it does, and it says so before it looks once more. Who
//! has something for it takes that word away: after the thing is there. Both do so by a swap, so
//! that one of them comes first. Comes the sleeper first, it is woken. Comes the other first, the
//! sleeper sees the thing when it looks.

use crate::layout::{HOST_SLEEPS, PAGER_SLEEPS};
use crate::memory::Memory;
use std::time::Duration;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// Sleeps unless there is something by now. It may also wake without a reason.
pub(crate) fn sleep(memory: &impl Memory, word: usize, at_most: Duration, is_there: impl FnOnce() -> bool) {
    memory.swap(word, ASLEEP);
    if !is_there() {
        memory.sleep(word, ASLEEP, at_most);
    }
    // By a swap: a mere store would hide the swap of who woke it, and so what that had put there.
    memory.swap(word, AWAKE);
}

fn wake(memory: &impl Memory, word: usize) {
    if memory.swap(word, AWAKE) != AWAKE {
        memory.wake(word);
    }
}

/// Wakes the pager if it sleeps: there is something for it.
pub fn wake_pager(memory: &impl Memory) {
    wake(memory, PAGER_SLEEPS);
}

/// Wakes the host's thread, whatever the pager has written of whether it sleeps.
pub fn wake_host(memory: &impl Memory) {
    memory.swap(HOST_SLEEPS, AWAKE);
    memory.wake(HOST_SLEEPS);
}

/// As the pager does it, which says that there are answers.
pub(crate) fn wake_for_answers(memory: &impl Memory) {
    wake(memory, HOST_SLEEPS);
}
