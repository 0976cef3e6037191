//! Allocate into a word, and free from it: a death leaves the block in the word, or no block.
//!
//! The arena notes what it is about to do, with the block and the word, before the first step and
//! until after the last one. Who mends it reads the note:
//!
//! | about to | steps | if it died |
//! |---|---|---|
//! | allocate | block in use; word = block | the word is the block: it stays. Else it is free |
//! | free | block free; word = 0 | the word is the block: both are done. Else they were |
//!
//! A block that is another arena's, and that a note says is about to be freed, is not collected by its
//! owner: else it might be another's by the time that the note is read.

use crate::arena::Arena;
use crate::chunk::Kind;
use crate::layout::{Layout, PAGE, ROOTS_AT};
use crate::names::ROOT_BYTES;
use crate::refused::{Refused, Result};
use crate::remote;
use crate::words::Words;

/// In an arena's place: what it is about to do, and to which word.
fn note_at(slot: u64) -> u64 {
    Layout::arena(slot) + 16
}
fn word_at(slot: u64) -> u64 {
    Layout::arena(slot) + 24
}

const ALLOCATE: u64 = 1 << 62;
const FREE: u64 = 2 << 62;
const BLOCK: u64 = !(3 << 62);

/// Whether a program may keep a block in that word: a root's, or one in a chunk's pages.
pub(crate) fn is_word(m: &impl Words, layout: &Layout, at: u64) -> bool {
    if !at.is_multiple_of(8) {
        return false;
    }
    if (ROOTS_AT..ROOTS_AT + PAGE).contains(&at) {
        return at % ROOT_BYTES == 8;
    }
    let Ok((chunk, entry)) = remote::entry_of(m, layout, at) else { return false };
    entry.kind == Kind::Part || at - layout.chunk(chunk) >= layout.header_pages() * PAGE
}

/// The blocks, of 64 of so many bytes, that some arena is about to free.
pub(crate) fn about_to_free(m: &impl Words, first: u64, bytes: u64) -> u64 {
    let places = remote::places(m).unwrap_or_default();
    let notes = places.iter().map(|(slot, ..)| m.load(note_at(*slot)));
    let frees = notes.filter(|note| note & !BLOCK == FREE).map(|note| note & BLOCK);
    let inside = frees.filter(|block| (first..first + 64 * bytes).contains(block));
    inside.fold(0, |all, block| all | 1 << ((block - first) / bytes))
}

/// Does, or undoes, what the arena of a place was about to do. Nobody else has the place now.
pub(crate) fn mend(arena: &mut Arena, m: &impl Words, slot: u64) -> Result<()> {
    let (note, word) = (m.load(note_at(slot)), m.load(word_at(slot)));
    let block = note & BLOCK;
    let mut freed = None;
    if note != 0 && is_word(m, &arena.layout, word) {
        let kept = m.load(word) == block;
        let is_over = match note & !BLOCK {
            ALLOCATE => kept,
            FREE => !kept,
            _ => true, // none of ours
        };
        if !is_over {
            // It may be free already.
            freed = match arena.find(m, block) {
                Ok(Some(place)) => arena.unuse(m, place).map(|()| Some(place))?,
                Ok(None) => match remote::free(m, &arena.layout, block) {
                    Ok(()) | Err(Refused::NotAllocated | Refused::Foreign) => None,
                    Err(refused) => return Err(refused),
                },
                Err(Refused::NotAllocated | Refused::Foreign) => None,
                Err(refused) => return Err(refused),
            };
            if kept {
                m.store(word, 0);
            }
        }
    }
    m.store(note_at(slot), 0);
    // Its pages go when no note speaks of them: else they might be another's when it is read again.
    freed.map_or(Ok(()), |place| arena.has_fewer(m, (place.chunk, place.page), 1))
}

impl Arena {
    /// Allocates, and stores in that word of the heap where; the word is 0 before. Who reads the
    /// word sees all that this thread stored before.
    pub fn allocate_into(&mut self, m: &impl Words, tag: u16, bytes: u64, word: u64) -> Result<u64> {
        if !is_word(m, &self.layout, word) {
            return Err(Refused::NoWord);
        }
        if m.load(word) != 0 {
            return Err(Refused::NotEmpty);
        }
        let place = self.pick(m, tag, bytes)?;
        let Some(chunk) = self.chunks[place.chunk as usize].as_deref() else {
            return Err(Refused::NoSpace);
        };
        let (slot, block) = (chunk.slot, chunk.address(place));
        m.store(word_at(slot), word);
        m.store(note_at(slot), ALLOCATE | block);
        let done = self.commit(m, place);
        if done.is_ok() {
            m.store(word, block);
        }
        m.store(note_at(slot), 0);
        done
    }

    /// Frees the block whose place that word of the heap holds, and makes the word 0.
    pub fn free_from(&mut self, m: &impl Words, word: u64) -> Result<()> {
        if !is_word(m, &self.layout, word) {
            return Err(Refused::NoWord);
        }
        let block = m.load(word);
        // A block of its own is noted with the arena that it belongs to.
        let own = self.find(m, block)?;
        let other = match own {
            None => Some(remote::find_used(m, &self.layout, block)?),
            Some(_) => None,
        };
        let slot = own.and_then(|place| self.chunks[place.chunk as usize].as_deref());
        let slot = slot.map_or(self.slots[0], |chunk| chunk.slot);
        m.store(word_at(slot), word);
        m.store(note_at(slot), FREE | block);
        let done = match (own, other) {
            (Some(place), _) => self.unuse(m, place),
            (None, Some(found)) => remote::set(m, &self.layout, &found),
            (None, None) => Err(Refused::Foreign),
        };
        if done.is_ok() {
            m.store(word, 0);
        }
        m.store(note_at(slot), 0);
        // Its pages go when no note speaks of them.
        match own.filter(|_| done.is_ok()) {
            Some(place) => self.has_fewer(m, (place.chunk, place.page), 1),
            None => done,
        }
    }
}
