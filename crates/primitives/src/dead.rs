//! What the host does when a process has ended that had primitives open: nobody else pays for it.

use crate::barrier::Barrier;
use crate::kind::Kind;
use crate::memory::Memory;
use crate::mutex::Mutex;
use crate::rwlock::RwLock;
use std::sync::atomic::{Ordering, fence};

/// Frees all primitives in so many bytes of memory from processes that are none of the living.
/// `ended`: they did not leave by themselves. It takes as long as there is memory, and waits for
/// nobody. Words that no program of ours wrote are freed, or left: who wrote them harmed those who
/// may write there.
pub fn free_of_the_dead(
    memory: &impl Memory,
    bytes: usize,
    kind: Kind,
    lives: impl Fn(u32) -> bool,
    ended: bool,
) {
    // What a process did before it ended is seen.
    fence(Ordering::SeqCst);
    for at in (0..bytes / kind.bytes()).map(|index| index * kind.bytes()) {
        match kind {
            Kind::Mutex => {
                Mutex(at).free_of_the_dead(memory, &lives, 1);
            }
            Kind::RwLock => RwLock(at).free_of_the_dead(memory, &lives),
            Kind::Barrier { parties } => Barrier { at, parties }.free_of_the_dead(memory, &lives, ended),
            // These belong to nobody.
            Kind::Condition | Kind::Semaphore { .. } | Kind::Counter => return,
        }
    }
}
