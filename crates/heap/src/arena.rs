//! An arena: what one thread allocates from. Its chunks are its own, so it takes no lock and meets
//! nobody; to allocate, and to free what it allocated, is one store.

use crate::adopt;
use crate::book::{Chunk, Place};
use crate::class::{self, CLASSES};
use crate::layout::{Layout, MAP_WORDS};
use crate::people::People;
use crate::refused::{Refused, Result};
use crate::words::Words;
use crate::{names, remote};
use std::collections::VecDeque;
use std::sync::Arc;

/// Blocks of one size and type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bin {
    /// Free blocks of the word from which it takes them now.
    mask: u64,
    /// That word in the header, and in the book.
    used_at: u64,
    word: u64,
    /// The block of its first bit.
    first: u64,
    bytes: u64,
    chunk: u32,
    page: u32,
    /// Their span; `None`: none.
    now: Option<(u64, u64)>,
    /// Spans with free blocks, the one that had some first in front: it has most by now. One that is not so any more is passed over.
    listed: VecDeque<(u64, u64)>,
    /// One of them that is empty, and kept.
    spare: Option<(u64, u64)>,
    /// Pages of all its spans.
    pub(crate) pages: u64,
}

impl Bin {
    pub(crate) fn put(&mut self, chunk: u64, page: u64) {
        self.listed.push_back((chunk, page));
    }

    /// Takes no blocks any more from chunks that are gone.
    pub(crate) fn forget(&mut self, is_gone: impl Fn(u64) -> bool) {
        self.listed.retain(|(chunk, _)| !is_gone(*chunk));
        self.spare = self.spare.filter(|(chunk, _)| !is_gone(*chunk));
        if self.now.is_some_and(|(chunk, _)| is_gone(chunk)) {
            (self.now, self.mask) = (None, 0);
        }
    }
}

/// Memory of one heap, for one thread at a time.
#[derive(Debug)]
pub struct Arena {
    pub(crate) layout: Layout,
    pub(crate) people: Arc<dyn People>,
    /// Its places among the arenas, the first one its own, the others of processes that ended.
    pub(crate) slots: Vec<u64>,
    pub(crate) chunks: Box<[Option<Box<Chunk>>]>,
    /// Which of them there are, and where room was found last.
    pub(crate) order: Vec<u64>,
    pub(crate) roomy: usize,
    /// Chunks that were taken and are not in use yet.
    pub(crate) reserved: Vec<u64>,
    pub(crate) bins: Vec<Bin>,
}

impl Arena {
    /// Joins a heap: takes a place among the arenas, and mends what was left there.
    pub fn join(m: &impl Words, layout: Layout, people: Arc<dyn People>) -> Result<Arena> {
        names::begin(m)?;
        let chunks = (0..layout.chunks).map(|_| None).collect();
        let (slots, order, reserved, bins) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut arena = Arena { layout, people, slots, chunks, order, roomy: 0, reserved, bins };
        adopt::take_place(&mut arena, m)?;
        Ok(arena)
    }

    /// Allocates so many bytes for data of a type; gives where. What is there is what was there.
    #[inline]
    pub fn allocate(&mut self, m: &impl Words, tag: u16, bytes: u64) -> Result<u64> {
        if bytes <= class::LARGEST
            && let Some(bin) = self.bins.get_mut(usize::from(tag) * CLASSES + class::of(bytes))
            && bin.mask != 0
            && let Some(Some(chunk)) = self.chunks.get_mut(bin.chunk as usize)
        {
            let bit = bin.mask.trailing_zeros();
            let used = chunk.used(bin.word);
            if m.load(bin.used_at) == *used {
                *used |= 1 << bit;
                m.store(bin.used_at, *used);
                chunk.has_one_more(bin.page);
                bin.mask &= bin.mask - 1;
                return Ok(bin.first + u64::from(bit) * bin.bytes);
            }
        }
        self.allocate_slowly(m, tag, bytes)
    }

    #[cold]
    fn allocate_slowly(&mut self, m: &impl Words, tag: u16, bytes: u64) -> Result<u64> {
        let place = self.pick(m, tag, bytes)?;
        self.commit(m, place)
    }

    /// Frees a block, whoever allocated it.
    #[inline]
    pub fn free(&mut self, m: &impl Words, at: u64) -> Result<()> {
        if let Some(index) = self.layout.chunk_of(at)
            && let Some(Some(chunk)) = self.chunks.get_mut(index as usize)
            && m.load(chunk.told_at) == 0
            && let Some((page, span)) = chunk.free_plainly(m, at)
        {
            return if span.listed && span.used > 0 { Ok(()) } else { self.list(m, (index, page)) };
        }
        self.free_slowly(m, at)
    }

    #[cold]
    fn free_slowly(&mut self, m: &impl Words, at: u64) -> Result<()> {
        match self.find(m, at)? {
            Some(place) => self.give_back(m, place),
            None => remote::free(m, &self.layout, at),
        }
    }

    /// A block of its own that is in use; `None`: it would be another's.
    pub(crate) fn find(&self, m: &impl Words, at: u64) -> Result<Option<Place>> {
        let index = self.layout.chunk_of(at).ok_or(Refused::Foreign)?;
        let Some(chunk) = &self.chunks[index as usize] else { return Ok(None) };
        let place = chunk.find(at)?;
        let known = chunk.known(m, place.word)?;
        // Whoever frees another's block tells its owner, so that he looks at his own words alone.
        let freed =
            m.load(chunk.told_at) != 0 && m.load(self.layout.freed(index, place.word)) >> place.bit & 1 == 1;
        let is_used = known >> place.bit & 1 == 1 && !freed;
        if is_used { Ok(Some(place)) } else { Err(Refused::NotAllocated) }
    }

    /// A free block. Nothing that others see has changed but, maybe, pages without blocks.
    pub(crate) fn pick(&mut self, m: &impl Words, tag: u16, bytes: u64) -> Result<Place> {
        if bytes > class::LARGEST {
            return self.pick_run(m, tag, bytes);
        }
        let number = usize::from(tag) * CLASSES + class::of(bytes);
        match self.bins.get(number) {
            Some(bin) if bin.mask != 0 => {}
            _ => self.refill(m, number)?,
        }
        let bin = &mut self.bins[number];
        let bit = u64::from(bin.mask.trailing_zeros());
        bin.mask &= bin.mask - 1;
        let (chunk, page) = bin.now.ok_or(Refused::NoSpace)?;
        Ok(Place { chunk, page, word: bin.word, bit })
    }

    pub(crate) fn commit(&mut self, m: &impl Words, place: Place) -> Result<u64> {
        let chunk = self.chunks[place.chunk as usize].as_deref_mut().ok_or(Refused::NoSpace)?;
        chunk.put(m, place.word, chunk.used[place.word as usize] | 1 << place.bit)?;
        chunk.spans[place.page as usize].used += 1;
        Ok(chunk.address(place))
    }

    pub(crate) fn give_back(&mut self, m: &impl Words, place: Place) -> Result<()> {
        self.unuse(m, place)?;
        self.has_fewer(m, (place.chunk, place.page), 1)
    }

    /// Makes a block free, and leaves its span as it is: `has_fewer` is called then.
    pub(crate) fn unuse(&mut self, m: &impl Words, place: Place) -> Result<()> {
        let chunk = self.chunks[place.chunk as usize].as_deref_mut().ok_or(Refused::Foreign)?;
        chunk.put(m, place.word, chunk.used[place.word as usize] & !(1 << place.bit))
    }

    /// So many blocks of a span are free that were not: it is listed, or its pages are given back.
    pub(crate) fn has_fewer(&mut self, m: &impl Words, at: (u64, u64), fewer: u64) -> Result<()> {
        let Some(chunk) = self.chunks[at.0 as usize].as_deref_mut() else { return Ok(()) };
        let span = &mut chunk.spans[at.1 as usize];
        span.used -= fewer as u16;
        if span.listed && span.used > 0 {
            return Ok(());
        }
        self.list(m, at)
    }

    /// A span has room.
    #[cold]
    fn list(&mut self, m: &impl Words, at: (u64, u64)) -> Result<()> {
        let Some(span) = self.span(at) else { return Ok(()) };
        let (of, is_empty, is_listed) = (span.of(), span.used == 0, span.listed);
        if of.class == CLASSES {
            return self.release_run(m, at);
        }
        let number = self.bin_of(of.tag, of.class);
        if !is_listed {
            self.set_listed(at, true);
            self.bins[number].listed.push_back(at);
        }
        let bin = &self.bins[number];
        if !is_empty || bin.now == Some(at) || bin.spare == Some(at) {
            return Ok(());
        }
        // One empty span is kept, so that a block that comes and goes costs no pages.
        match bin.spare.filter(|spare| self.is_spare(*spare, of.tag, of.class)) {
            None => self.bins[number].spare = Some(at),
            Some(_) => self.release_span(m, at)?,
        }
        Ok(())
    }

    fn is_spare(&self, at: (u64, u64), tag: u16, class: usize) -> bool {
        self.span(at).is_some_and(|span| span.used == 0 && span.is(tag, class))
    }

    fn span(&self, (chunk, page): (u64, u64)) -> Option<&crate::book::Span> {
        let span = &self.chunks[chunk as usize].as_deref()?.spans[page as usize];
        (span.pages > 0).then_some(span)
    }

    pub(crate) fn set_listed(&mut self, (chunk, page): (u64, u64), listed: bool) {
        if let Some(chunk) = self.chunks[chunk as usize].as_deref_mut() {
            chunk.spans[page as usize].listed = listed;
        }
    }

    /// The number of a bin, which is there from now on.
    pub(crate) fn bin_of(&mut self, tag: u16, class: usize) -> usize {
        let first = usize::from(tag) * CLASSES;
        if self.bins.len() < first + CLASSES {
            self.bins.resize(first + CLASSES, Bin::default());
        }
        first + class
    }

    /// Finds free blocks for a bin.
    #[cold]
    fn refill(&mut self, m: &impl Words, number: usize) -> Result<()> {
        let (tag, class) = ((number / CLASSES) as u16, number % CLASSES);
        self.bin_of(tag, class);
        if self.next_word(number) {
            return Ok(());
        }
        if self.is_told_of_freed(m) {
            self.collect(m, false)?;
            if self.next_word(number) {
                return Ok(());
            }
        }
        let at = self.new_span(m, tag, class)?;
        self.set_listed(at, true);
        self.bins[number].listed.push_back(at);
        if self.next_word(number) { Ok(()) } else { Err(Refused::NoSpace) }
    }

    /// The next word with free blocks: of the span from which it takes them, or of one in the list.
    fn next_word(&mut self, number: usize) -> bool {
        loop {
            let bin = &mut self.bins[number];
            let Some(at) = bin.now else {
                let Some(next) = bin.listed.pop_front() else { return false };
                let (tag, class) = ((number / CLASSES) as u16, number % CLASSES);
                let is_one = self.span(next).is_some_and(|span| span.listed && span.is(tag, class));
                if is_one {
                    self.bins[number].now = Some(next);
                    self.bins[number].word = MAP_WORDS * next.1;
                }
                continue;
            };
            if let Some((word, mask)) = self.room_in(at, self.bins[number].word) {
                let first = self.chunks[at.0 as usize]
                    .as_deref()
                    .map_or(0, |chunk| chunk.address(Place { chunk: at.0, page: at.1, word, bit: 0 }));
                let (used_at, bytes) = (self.layout.used(at.0, word), class::BYTES[number % CLASSES]);
                let (chunk, page) = (at.0 as u32, at.1 as u32);
                let bin = &mut self.bins[number];
                (bin.mask, bin.word, bin.used_at) = (mask, word, used_at);
                (bin.first, bin.bytes, bin.chunk, bin.page) = (first, bytes, chunk, page);
                return true;
            }
            self.set_listed(at, false);
            self.bins[number].now = None;
        }
    }

    /// A word of a span with free blocks, after that one if there is any.
    fn room_in(&self, at: (u64, u64), after: u64) -> Option<(u64, u64)> {
        let chunk = self.chunks[at.0 as usize].as_deref()?;
        let span = &chunk.spans[at.1 as usize];
        if span.used == span.blocks {
            return None;
        }
        let (of, first) = (span.of(), MAP_WORDS * at.1);
        let words = of.words();
        (0..words).find_map(|step| {
            let word = (after - first + step) % words;
            let free = !chunk.used[(first + word) as usize] & of.bits(word);
            (free != 0).then_some((first + word, free))
        })
    }

    /// Forgets from where its bins take blocks, and gives back all spans that are empty.
    pub(crate) fn release_empty(&mut self, m: &impl Words) -> Result<()> {
        for bin in &mut self.bins {
            if let Some(at) = bin.now.take() {
                bin.listed.push_back(at);
            }
            (bin.mask, bin.spare) = (0, None);
        }
        for number in 0..self.bins.len() {
            let listed = std::mem::take(&mut self.bins[number].listed);
            for at in listed {
                let (tag, class) = ((number / CLASSES) as u16, number % CLASSES);
                match self.span(at) {
                    Some(span) if !span.listed || !span.is(tag, class) => {}
                    Some(span) if span.used == 0 => self.release_span(m, at)?,
                    Some(_) => self.bins[number].listed.push_back(at),
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// Leaves the heap. What is in use stays so; the next who joins goes on with these pages.
    pub fn leave(mut self, m: &impl Words) -> Result<()> {
        let emptied = self.collect(m, true).and_then(|()| self.release_empty(m));
        let released = self.release_chunks(m);
        for slot in std::mem::take(&mut self.slots) {
            m.store(Layout::arena(slot), 0);
        }
        emptied.and(released)
    }
}
