//! A condition that hosts share: each signal is a change.

use super::monitor::Inside;
use crate::memory::{Memory, Refused, Who};
use crate::mutex::Mutex;
use commonhold_futex::Wait;

/// A condition at a place of some memory.
#[derive(Clone, Copy, Debug)]
pub struct Condition(pub usize);

impl Condition {
    /// As [`crate::Condition::wait`]. [`Refused::Gone`]: the caller has the mutex, or the host that gave it is another.
    pub fn wait(
        self,
        memory: &impl Memory,
        mutex: (Mutex, &impl Memory),
        who: Who,
        wait: Wait,
    ) -> Result<bool, Refused> {
        let (inside, (mutex, its)) = (Inside(self.0), mutex);
        if mutex.owner(its) != Some(who) {
            return Err(Refused::NotOwner);
        }
        // Whoever signals has the mutex, or does not care whether this thread waits yet.
        inside.enter(memory, who, wait)?;
        let number = inside.watch(memory);
        inside.leave(memory, who)?;
        mutex.unlock(its, who)?;
        let result = inside.sleep(memory, number, wait);
        let died = mutex.lock(its, who, Wait::Forever)?;
        result.map(|()| died)
    }

    /// What each signal changes, as far as this host knows.
    pub fn number(self, memory: &impl Memory) -> u64 {
        Inside(self.0).changes(memory)
    }

    /// All who wait look again.
    pub fn signal(self, memory: &impl Memory, who: Who) -> Result<(), Refused> {
        let inside = Inside(self.0);
        inside.enter(memory, who, Wait::Forever)?;
        inside.change(memory, who);
        inside.leave(memory, who)
    }
}
