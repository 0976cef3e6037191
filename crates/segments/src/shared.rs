//! The arena among threads (the paper's section 9 leaves multiprocessors out).
//!
//! One lock guards the whole arena, and no call holds it while pages are copied: a move is begun
//! under the lock, copied without it, and finished under it. What keeps the copy right is the
//! arena's own rule that a segment on its way is neither pinned nor mapped. A thread that wants to
//! pin it waits.

use crate::arena::{Arena, SegmentId};
use crate::compaction::Relocation;
use crate::error::Refused;
use crate::moves::Move;
use crate::placement::Placement;
use crate::run::Run;
use core::marker::PhantomData;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A value behind a lock, with a way to wait until another thread has changed it. A trait, so that
/// a model checker can put its own in.
pub trait Monitor<T> {
    /// Runs `step` under the lock until it returns something. Between two tries it waits for
    /// another thread's `step` to have returned something. None when patience ends.
    fn run<R>(&self, step: impl FnMut(&mut T) -> Option<R>) -> Option<R>;
}

/// The standard library's lock, and how long to wait at most.
#[derive(Debug)]
pub struct Lock<T> {
    value: Mutex<T>,
    changed: Condvar,
    patience: Duration,
}

impl<T> Lock<T> {
    /// A value that nobody waits for longer than `patience`.
    pub fn new(value: T, patience: Duration) -> Lock<T> {
        Lock { value: Mutex::new(value), changed: Condvar::new(), patience }
    }
}

impl<T> Monitor<T> for Lock<T> {
    fn run<R>(&self, mut step: impl FnMut(&mut T) -> Option<R>) -> Option<R> {
        let deadline = Instant::now() + self.patience;
        let mut value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = step(&mut value) {
                self.changed.notify_all();
                return Some(result);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            value = self.changed.wait_timeout(value, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// An arena that threads share.
#[derive(Debug)]
pub struct Shared<P, M = Lock<Arena<P>>> {
    monitor: M,
    placement: PhantomData<fn() -> P>,
}

impl<P: Placement, M: Monitor<Arena<P>>> Shared<P, M> {
    /// Shares what the monitor guards.
    pub fn new(monitor: M) -> Shared<P, M> {
        Shared { monitor, placement: PhantomData }
    }

    /// Runs one call of the arena under the lock.
    pub fn with<R>(&self, call: impl FnOnce(&mut Arena<P>) -> R) -> R {
        let mut call = Some(call);
        self.monitor
            .run(|arena| call.take().map(|call| call(arena)))
            .expect("the first try returns something")
    }

    /// Keeps a segment where it is until the result is dropped. Waits while it is being moved;
    /// refused as [`Refused::Leaving`] when patience ends.
    pub fn pin(&self, segment: SegmentId) -> Result<Pinned<'_, P, M>, Refused> {
        let run = self.settled(segment, |arena| arena.pin(segment))?;
        Ok(Pinned { shared: self, segment, run })
    }

    /// Frees a segment. Waits while it is being moved, as [`Shared::pin`] does.
    pub fn free(&self, segment: SegmentId) -> Result<(), Refused> {
        self.settled(segment, |arena| arena.free(segment))
    }

    /// Moves a segment; `copy` copies without the lock. If it unwinds, the segment stays where it
    /// was.
    pub fn relocate(&self, relocation: Relocation, copy: impl FnOnce(&Move)) -> Result<(), Refused> {
        let moved = self.with(|arena| arena.begin_move(relocation))?;
        let abandoned = Abandon { shared: self, moved };
        copy(&moved);
        core::mem::forget(abandoned);
        self.with(|arena| arena.finish_move(&moved))
    }

    /// One move of a compaction, of at most `at_most` pages. False if there is none to make now.
    pub fn compact(&self, at_most: u32, copy: impl FnOnce(&Move)) -> Result<bool, Refused> {
        let relocation = self.with(|arena| arena.compact(at_most));
        match relocation.map(|relocation| self.relocate(relocation, copy)) {
            None => Ok(false),
            // Another thread was quicker.
            Some(Err(Refused::NoSegment(_) | Refused::NoRoom { .. })) => Ok(true),
            Some(moved) => moved.map(|()| true),
        }
    }

    /// A call that waits for a move of the segment to end.
    fn settled<R>(
        &self,
        segment: SegmentId,
        mut call: impl FnMut(&mut Arena<P>) -> Result<R, Refused>,
    ) -> Result<R, Refused> {
        let result = self.monitor.run(|arena| match call(arena) {
            Err(Refused::Leaving(_)) => None,
            other => Some(other),
        });
        result.unwrap_or(Err(Refused::Leaving(segment)))
    }
}

/// A segment that stays where it is for as long as this lives.
pub struct Pinned<'a, P: Placement, M: Monitor<Arena<P>>> {
    shared: &'a Shared<P, M>,
    segment: SegmentId,
    run: Run,
}

impl<P: Placement, M: Monitor<Arena<P>>> Pinned<'_, P, M> {
    /// Where it lies.
    pub fn run(&self) -> Run {
        self.run
    }
}

impl<P: Placement, M: Monitor<Arena<P>>> Drop for Pinned<'_, P, M> {
    fn drop(&mut self) {
        let _ = self.shared.with(|arena| arena.unpin(self.segment)); // a pinned segment is there
    }
}

/// Abandons a move whose copy unwinds.
struct Abandon<'a, P: Placement, M: Monitor<Arena<P>>> {
    shared: &'a Shared<P, M>,
    moved: Move,
}

impl<P: Placement, M: Monitor<Arena<P>>> Drop for Abandon<'_, P, M> {
    fn drop(&mut self) {
        let _ = self.shared.with(|arena| arena.abandon_move(&self.moved)); // nobody else ends it
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Tlsf;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    fn shared(patience: Duration) -> (Shared<Tlsf>, SegmentId, Relocation) {
        let mut arena: Arena = Arena::new(10);
        let segment = arena.alloc(2, 1, 0).unwrap();
        let relocation = Relocation { segment, to: Run::new(5, 2) };
        (Shared::new(Lock::new(arena, patience)), segment, relocation)
    }

    #[test]
    fn patience_ends() {
        let (shared, segment, relocation) = shared(Duration::from_millis(1));
        let copy = |_: &Move| {
            let pinned = shared.pin(segment).map(|pinned| pinned.run());
            assert_eq!(pinned, Err(Refused::Leaving(segment)));
        };
        shared.relocate(relocation, copy).unwrap();
    }

    #[test]
    fn a_pin_waits_for_the_end_of_a_move() {
        let (shared, segment, relocation) = shared(Duration::from_secs(10));
        let begun = std::sync::Barrier::new(2);
        thread::scope(|scope| {
            let pin = scope.spawn(|| {
                begun.wait();
                shared.pin(segment).unwrap().run()
            });
            let copy = |_: &Move| {
                begun.wait();
                thread::sleep(Duration::from_millis(20)); // the pin is asked for meanwhile
            };
            shared.relocate(relocation, copy).unwrap();
            assert_eq!(pin.join().unwrap(), relocation.to);
        });
        assert_eq!(shared.with(|arena| arena.is_movable(segment)), Ok(true), "the pin was taken back");
    }

    #[test]
    fn a_copy_that_unwinds_leaves_the_segment_where_it_was() {
        let (shared, segment, relocation) = shared(Duration::from_secs(10));
        let copy = |_: &Move| panic!("the copy fails");
        assert!(catch_unwind(AssertUnwindSafe(|| shared.relocate(relocation, copy))).is_err());
        assert_eq!(shared.pin(segment).unwrap().run(), Run::new(0, 2));
        assert_eq!(shared.with(|arena| arena.free_pages()), 8);
    }
}
