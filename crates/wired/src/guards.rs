//! Guards of an object that may move, in one word that the threads of a process share: how many there are, and whether the
//! host has revoked the place.
//!
//! Each step is one atomic change of the word, so that what can happen is what their orders can be; a test goes through all of
//! them. Of the two who may see that the place is free, who revokes and who leaves last, exactly one does. Then, and not before,
//! the host is told, and copies: what was written under a guard is written before that.

use std::sync::atomic::{AtomicU64, Ordering};

const REVOKED: u64 = 1 << 63;

/// The word.
#[derive(Debug)]
pub struct Guards(AtomicU64);

fn entered(word: u64) -> Option<u64> {
    (word & REVOKED == 0).then_some(word + 1)
}

/// The word without that guard, and whether it was the last one of a place that is revoked.
fn left(word: u64) -> (u64, bool) {
    (word - 1, word == REVOKED + 1)
}

/// The word of a place that is revoked, and whether it has no guard.
fn revoked(word: u64) -> (u64, bool) {
    (word | REVOKED, word & !REVOKED == 0)
}

impl Default for Guards {
    /// Nobody knows yet where the object lies.
    fn default() -> Self {
        Guards(AtomicU64::new(REVOKED))
    }
}

impl Guards {
    /// Takes a guard. Not while the place is revoked: then it has to be asked for.
    pub fn enter(&self) -> bool {
        self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, entered).is_ok()
    }

    /// Takes a guard beside others, whatever is revoked: as long as one is there, the place is.
    pub fn enter_beside(&self) -> bool {
        let step = |word: u64| (word & !REVOKED > 0).then_some(word + 1);
        self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, step).is_ok()
    }

    /// Gives a guard up; whether the host is to be told now.
    pub fn leave(&self) -> bool {
        left(self.0.fetch_sub(1, Ordering::AcqRel)).1
    }

    /// The same for who may have none: then nothing changes.
    pub fn leave_if_inside(&self) -> Option<bool> {
        let step = |word: u64| (word & !REVOKED > 0).then(|| left(word).0);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, step).ok().map(|word| left(word).1)
    }

    /// No further guard is taken; whether there is none, so that the host can be told now. Else the last one tells.
    pub fn revoke(&self) -> bool {
        revoked(self.0.fetch_or(REVOKED, Ordering::AcqRel)).1
    }

    /// The place is known again.
    pub fn settle(&self) {
        self.0.fetch_and(!REVOKED, Ordering::Release);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire) & !REVOKED
    }

    /// Whether the place is revoked.
    pub fn are_revoked(&self) -> bool {
        self.0.load(Ordering::Acquire) & REVOKED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads that each take a guard and leave, twice; the watcher, which revokes, and, once the host was told, settles.
    #[derive(Clone)]
    struct World {
        word: u64,
        inside: [bool; 2],
        left: [u32; 2],
        revokes: u32,
        told: u32,
        moved: u32,
    }

    fn explore(world: &World, seen: &mut u64) {
        *seen += 1;
        assert_eq!(world.word & !REVOKED, world.inside.iter().filter(|inside| **inside).count() as u64);
        assert!(world.told <= 1, "told twice");
        if world.told == 1 {
            assert!(world.inside == [false; 2], "the host moves what is in use");
        }
        let mut steps = 0;
        for thread in 0..2 {
            let mut next = world.clone();
            if world.inside[thread] {
                let (word, tells) = left(world.word);
                next.word = word;
                next.inside[thread] = false;
                next.told += u32::from(tells);
            } else if world.left[thread] > 0 {
                next.left[thread] -= 1;
                // Else it would ask for the place.
                if let Some(word) = entered(world.word) {
                    (next.word, next.inside[thread]) = (word, true);
                }
            } else {
                continue;
            }
            steps += 1;
            explore(&next, seen);
        }
        if world.revokes > 0 && world.word & REVOKED == 0 {
            let (word, tells) = revoked(world.word);
            let told = world.told + u32::from(tells);
            steps += 1;
            explore(&World { word, told, revokes: world.revokes - 1, ..world.clone() }, seen);
        }
        if world.told == 1 {
            let next =
                World { word: world.word & !REVOKED, told: 0, moved: world.moved + 1, ..world.clone() };
            steps += 1;
            explore(&next, seen);
        }
        if steps == 0 {
            assert!(world.word == 0, "a revoke without an answer");
            assert!(world.moved == 2 - world.revokes);
        }
    }

    #[test]
    fn in_every_order_the_host_is_told_once_and_only_of_what_nobody_uses() {
        let begin = World { word: 0, inside: [false; 2], left: [2; 2], revokes: 2, told: 0, moved: 0 };
        let mut seen = 0;
        explore(&begin, &mut seen);
        assert!(seen > 1000, "{seen}");
    }

    #[test]
    fn threads_that_run_at_once_are_never_inside_while_it_moves() {
        let guards = Guards::default();
        let (bytes, moves) = (AtomicU64::new(0), 2000);
        let told = std::sync::atomic::AtomicBool::new(true);
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    while bytes.load(Ordering::Relaxed) < moves * 2 {
                        if guards.enter() {
                            assert!(
                                bytes.load(Ordering::Relaxed).is_multiple_of(2),
                                "in the midst of a move"
                            );
                            if guards.leave() {
                                told.store(true, Ordering::Release);
                            }
                        } else {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            while bytes.load(Ordering::Relaxed) < moves * 2 {
                while !told.swap(false, Ordering::Acquire) {
                    std::thread::yield_now();
                }
                bytes.fetch_add(1, Ordering::Relaxed);
                bytes.fetch_add(1, Ordering::Relaxed);
                guards.settle();
                if guards.revoke() {
                    told.store(true, Ordering::Release);
                }
            }
        });
    }
}
