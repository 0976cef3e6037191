//! An arena of one thread.

use super::{Heap, HeapType, explain};
use crate::{Error, ErrorKind, Result};
use commonhold_futex::{Mapped, forks};
use commonhold_heap::{Arena, Refused};

/// A part of a heap from which one thread at a time allocates, without a lock. Dropped, it leaves
/// what is in use as it is. Its blocks may be freed by any other, and by the heap itself.
#[derive(Debug)]
pub struct HeapArena {
    /// `None`: it was left.
    arena: Option<Arena>,
    heap: Heap,
    forks: u32,
}

impl HeapArena {
    pub(super) fn join(heap: &Heap) -> Result<HeapArena> {
        Ok(HeapArena { arena: Some(heap.joined()?), heap: heap.clone(), forks: forks() })
    }

    /// As [`Heap::allocate`].
    #[inline]
    pub fn allocate(&mut self, of: HeapType, count: u64) -> Result<u64> {
        let bytes = self.heap.bytes_of(of, count)?;
        self.with(|arena, memory| arena.allocate(memory, of.tag, bytes))
    }

    /// As [`Heap::allocate_into`].
    pub fn allocate_into(&mut self, of: HeapType, count: u64, word: u64) -> Result<u64> {
        let bytes = self.heap.bytes_of(of, count)?;
        self.with(|arena, memory| arena.allocate_into(memory, of.tag, bytes, word))
    }

    /// As [`Heap::free`].
    #[inline]
    pub fn free(&mut self, at: u64) -> Result<()> {
        self.with(|arena, memory| arena.free(memory, at))
    }

    /// As [`Heap::free_from`].
    pub fn free_from(&mut self, word: u64) -> Result<()> {
        self.with(|arena, memory| arena.free_from(memory, word))
    }

    #[inline]
    fn with<T>(
        &mut self,
        job: impl FnOnce(&mut Arena, &Mapped) -> std::result::Result<T, Refused>,
    ) -> Result<T> {
        match &mut self.arena {
            Some(arena) if self.forks == forks() => {
                job(arena, &self.heap.inner.memory).map_err(|refused| explain::error(&self.heap, refused))
            }
            _ => Err(of_parent()),
        }
    }
}

#[cold]
fn of_parent() -> Error {
    Error::new(
        ErrorKind::NotOwner,
        "this arena is the parent's: a fork child makes one of its own with Heap::arena",
    )
}

impl Drop for HeapArena {
    fn drop(&mut self) {
        match self.arena.take() {
            // Damaged: what is left is for the next to say, who meets it.
            Some(arena) if self.forks == forks() => _ = arena.leave(&self.heap.inner.memory),
            // The parent's.
            arena => std::mem::forget(arena),
        }
    }
}
