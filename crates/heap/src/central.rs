//! Chunks are taken from the table in batches, and given back. This is where arenas meet: one
//! exchange of a word for each chunk.

use crate::arena::Arena;
use crate::book::Chunk;
use crate::chunk::{Entry, Kind, life};
use crate::refused::{Refused, Result, damaged};
use crate::words::Words;

/// Chunks that an arena takes at once, at most: as many as it has.
const BATCH: u64 = 8;

impl Arena {
    /// An empty chunk of its own.
    pub(crate) fn open_chunk(&mut self, m: &impl Words) -> Result<u64> {
        if self.reserved.is_empty() {
            let batch = BATCH.min(self.layout.chunks / 16).min(self.order.len() as u64).max(1);
            self.take_chunks(m, batch);
        }
        let index = self.reserved.pop().ok_or(Refused::NoSpace)?;
        self.begin_chunk(m, index, Kind::Spans)?;
        Ok(index)
    }

    /// Takes chunks that are nobody's, so many at most.
    fn take_chunks(&mut self, m: &impl Words, most: u64) {
        let word = Entry { slot: self.slots[0], kind: Kind::Spans }.word();
        for index in 0..self.layout.chunks {
            let at = self.layout.entry(index);
            if m.load(at) == 0 && m.exchange(at, 0, word).is_ok() {
                self.reserved.push(index);
            }
            if self.reserved.len() as u64 >= most {
                break;
            }
        }
        self.reserved.reverse();
    }

    /// So many chunks in a row, for one block.
    pub(crate) fn open_huge(&mut self, m: &impl Words, chunks: u64) -> Result<u64> {
        let slot = self.slots[0];
        let (first, part) =
            (Entry { slot, kind: Kind::Spans }.word(), Entry { slot, kind: Kind::Part }.word());
        let mut begin = 0;
        while begin + chunks <= self.layout.chunks {
            let take = |step: &u64| {
                let (at, word) = (self.layout.entry(begin + step), if *step == 0 { first } else { part });
                m.load(at) == 0 && m.exchange(at, 0, word).is_ok()
            };
            let taken = (0..chunks).take_while(take).count() as u64;
            if taken == chunks {
                self.begin_chunk(m, begin, Kind::Huge(chunks))?;
                return Ok(begin);
            }
            (0..taken).for_each(|step| m.store(self.layout.entry(begin + step), 0));
            begin += taken + 1;
        }
        Err(Refused::NoSpace)
    }

    /// Makes the header of a chunk that was taken. Whatever is in it is of another life.
    fn begin_chunk(&mut self, m: &impl Words, index: u64, kind: Kind) -> Result<()> {
        let (layout, slot) = (self.layout, self.slots[0]);
        let taken = Entry { slot, kind: Kind::Spans }.word();
        if m.load(layout.entry(index)) != taken {
            return damaged(layout.entry(index), "the table says that a chunk is another's");
        }
        let start = layout.chunk(index);
        let bytes = layout.header_pages() * crate::layout::PAGE;
        (start..start + bytes).step_by(8).for_each(|at| m.store(at, 0));
        m.store(layout.description(index, 0), life(slot, index));
        if kind != Kind::Spans {
            m.store(layout.entry(index), Entry { slot, kind }.word());
        }
        self.chunks[index as usize] = Some(Box::new(Chunk::new(&layout, index, slot, kind)));
        self.order.push(index);
        Ok(())
    }

    /// Gives a chunk without blocks back, with those that belong to it.
    pub(crate) fn release_chunk(&mut self, m: &impl Words, index: u64) -> Result<()> {
        let Some(chunk) = self.chunks[index as usize].as_deref() else { return Ok(()) };
        let (slot, kind) = (chunk.slot, chunk.kind);
        let at = self.layout.entry(index);
        if m.load(at) != (Entry { slot, kind }.word()) {
            return damaged(at, "the table says that a chunk is another's");
        }
        if let Kind::Huge(chunks) = kind {
            m.store(at, Entry { slot, kind: Kind::Spans }.word());
            (1..chunks).for_each(|step| self.release_part(m, index + step));
        }
        m.store(self.layout.description(index, 0), 0);
        m.store(at, 0);
        self.chunks[index as usize] = None;
        self.order.retain(|kept| *kept != index);
        self.roomy = 0;
        Ok(())
    }

    /// Gives a part of a huge block back. In it is what a program wrote, and its next owner reads the
    /// first word.
    pub(crate) fn release_part(&self, m: &impl Words, index: u64) {
        m.store(self.layout.description(index, 0), 0);
        m.store(self.layout.entry(index), 0);
    }

    /// Gives all chunks back that have no blocks.
    pub(crate) fn release_chunks(&mut self, m: &impl Words) -> Result<()> {
        for index in std::mem::take(&mut self.reserved) {
            m.store(self.layout.entry(index), 0);
        }
        let pages = self.layout.data_pages();
        for index in self.order.clone() {
            if self.chunks[index as usize].as_deref().is_some_and(|chunk| chunk.free_pages == pages) {
                self.release_chunk(m, index)?;
            }
        }
        Ok(())
    }
}
