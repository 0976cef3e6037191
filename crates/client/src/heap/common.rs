//! The arena that the threads of a process share.

use super::{Heap, Inner};
use crate::Result;
use crate::link::lock;
use commonhold_futex::forks;
use commonhold_heap::Arena;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard};

/// An arena, and how many forks made the process that it is of.
#[derive(Debug)]
struct Own {
    arena: Mutex<Arena>,
    forks: u32,
}

/// Whichever there is. A fork child has an arena of its own: that of its parent, and the lock of it,
/// which a thread that the child does not have may hold, stay as they are, in memory that is given up.
#[derive(Debug, Default)]
pub(super) struct Common(AtomicPtr<Own>);

impl Common {
    /// For one thread, in turn.
    pub(super) fn arena(&self, heap: &Heap) -> Result<MutexGuard<'_, Arena>> {
        loop {
            let seen = self.0.load(Ordering::Acquire);
            // SAFETY: null, or a box that is freed with `self` alone.
            if let Some(own) = unsafe { seen.as_ref() }.filter(|own| own.forks == forks()) {
                return Ok(lock(&own.arena));
            }
            let arena = heap.joined()?;
            let made = Box::into_raw(Box::new(Own { arena: Mutex::new(arena), forks: forks() }));
            let put = self.0.compare_exchange(seen, made, Ordering::AcqRel, Ordering::Acquire);
            if put.is_err() {
                leave(&heap.inner, made);
            }
        }
    }

    /// Leaves the heap.
    pub(super) fn leave(&self, inner: &Inner) {
        let own = self.0.swap(null_mut(), Ordering::AcqRel);
        if !own.is_null() {
            leave(inner, own);
        }
    }
}

/// Leaves the heap with an arena that nobody else has, unless it is the parent's.
fn leave(inner: &Inner, own: *mut Own) {
    // SAFETY: it comes from a box, and whoever calls this took it from where others find it.
    let own = unsafe { Box::from_raw(own) };
    if own.forks != forks() {
        std::mem::forget(own);
        return;
    }
    let arena = own.arena.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    // Damaged: what is left is for the next to say, who meets it.
    let _ = arena.leave(&inner.memory);
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.common.leave(self);
    }
}
