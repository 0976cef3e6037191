//! A chunk as its owner knows it. The owner works by this book, which nobody else can write, and
//! writes each change through to the header; so what a broken program writes there cannot lead it
//! astray, and is found when the two differ.

use crate::chunk::{Description, Kind, is_live};
use crate::class::CLASSES;
use crate::layout::{Layout, MAP_WORDS, PAGE};
use crate::refused::{Problem, Refused, Result, damaged};
use crate::words::Words;

/// Some pages with blocks of one size and type; of no pages: none begins here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub of: Description,
    pub used: u64,
    /// It is in its bin's list, or where the bin takes blocks from now.
    pub listed: bool,
}

const NONE: Span = Span { of: Description { class: CLASSES, tag: 0, pages: 0 }, used: 0, listed: false };

/// A block's place in the book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub chunk: u64,
    /// The first page of its span.
    pub page: u64,
    pub word: u64,
    pub bit: u64,
}

#[derive(Debug)]
pub(crate) struct Chunk {
    pub index: u64,
    pub slot: u64,
    pub kind: Kind,
    start: u64,
    pub spans: Box<[Span]>,
    /// The first page of the span in which a page is.
    head: Box<[u16]>,
    pub used: Box<[u64]>,
    is_free: Box<[bool]>,
    pub free_pages: u64,
}

impl Chunk {
    /// An empty one.
    pub(crate) fn new(layout: &Layout, index: u64, slot: u64, kind: Kind) -> Chunk {
        let pages = layout.chunk_pages as usize;
        let header = layout.header_pages() as usize;
        Chunk {
            index,
            slot,
            kind,
            start: layout.chunk(index),
            spans: vec![NONE; pages].into(),
            head: (0..pages as u16).collect(),
            used: vec![0; pages * MAP_WORDS as usize].into(),
            is_free: (0..pages).map(|page| page >= header).collect(),
            free_pages: layout.data_pages(),
        }
    }

    /// One as its header says; `None`: it is not in use.
    pub(crate) fn read(
        m: &impl Words,
        layout: &Layout,
        index: u64,
        slot: u64,
        kind: Kind,
    ) -> Result<Option<Chunk>, Problem> {
        if !is_live(m, layout, index, slot)? {
            return Ok(None);
        }
        let mut chunk = Chunk::new(layout, index, slot, kind);
        let mut page = layout.header_pages();
        while page < layout.chunk_pages {
            let room = match kind {
                Kind::Huge(chunks) => chunks * layout.chunk_pages - page,
                _ => layout.chunk_pages - page,
            };
            let Some(of) = Description::read(m, layout, (index, page), room)? else {
                chunk.expect_no_bits(m, layout, MAP_WORDS * page..MAP_WORDS * (page + 1))?;
                page += 1;
                continue;
            };
            let last = page + of.pages.min(layout.chunk_pages - page);
            for inner in page + 1..last {
                let at = layout.description(index, inner);
                if m.load(at) != 0 {
                    return Err(Problem { at, what: "a span of pages begins within another" });
                }
            }
            chunk.enter(page, of);
            for word in 0..of.words() {
                let at = layout.used(index, MAP_WORDS * page + word);
                let used = m.load(at);
                if used & !of.bits(word) != 0 {
                    return Err(Problem { at, what: "a block is in use that there is not" });
                }
                chunk.used[(MAP_WORDS * page + word) as usize] = used;
                chunk.spans[page as usize].used += u64::from(used.count_ones());
            }
            let all = MAP_WORDS * page..MAP_WORDS * page + of.all_words(layout, page);
            chunk.expect_no_bits(m, layout, all.start + of.words()..all.end)?;
            page = last;
        }
        Ok(Some(chunk))
    }

    fn expect_no_bits(
        &self,
        m: &impl Words,
        layout: &Layout,
        words: std::ops::Range<u64>,
    ) -> Result<(), Problem> {
        let set = words.map(|word| layout.used(self.index, word)).find(|at| m.load(*at) != 0);
        set.map_or(Ok(()), |at| Err(Problem { at, what: "a block is in use that there is not" }))
    }

    /// Writes a span of pages into the book.
    pub(crate) fn enter(&mut self, page: u64, of: Description) {
        let last = (page + of.pages).min(self.spans.len() as u64);
        self.spans[page as usize] = Span { of, ..NONE };
        (page..last).for_each(|inner| self.head[inner as usize] = page as u16);
        (page..last).for_each(|inner| self.is_free[inner as usize] = false);
        self.free_pages -= last - page;
    }

    /// Strikes it out.
    pub(crate) fn strike(&mut self, page: u64) {
        let last = (page + self.spans[page as usize].of.pages).min(self.spans.len() as u64);
        self.spans[page as usize] = NONE;
        (page..last).for_each(|inner| self.head[inner as usize] = inner as u16);
        (page..last).for_each(|inner| self.is_free[inner as usize] = true);
        self.free_pages += last - page;
    }

    /// So many free pages in a row.
    pub(crate) fn room_for(&self, pages: u64) -> Option<u64> {
        if self.free_pages < pages || self.kind != Kind::Spans {
            return None;
        }
        let mut row = 0;
        for (page, is_free) in self.is_free.iter().enumerate() {
            row = if *is_free { row + 1 } else { 0 };
            if row == pages {
                return Some(page as u64 + 1 - pages);
            }
        }
        None
    }

    /// The first byte of a block.
    #[inline]
    pub(crate) fn address(&self, place: Place) -> u64 {
        let index = 64 * (place.word - MAP_WORDS * place.page) + place.bit;
        self.start + place.page * PAGE + index * self.spans[place.page as usize].of.bytes()
    }

    /// The block that begins at a byte of the chunk, in use or not.
    #[inline]
    pub(crate) fn find(&self, at: u64) -> Result<Place> {
        let page = *self.head.get(((at - self.start) / PAGE) as usize).ok_or(Refused::Foreign)?;
        let (span, page) = (&self.spans[usize::from(page)], u64::from(page));
        if span.of.pages == 0 {
            return Err(Refused::Foreign);
        }
        let index = span.of.index(at - self.start - page * PAGE).ok_or(Refused::Foreign)?;
        Ok(Place { chunk: self.index, page, word: MAP_WORDS * page + index / 64, bit: index % 64 })
    }

    #[inline]
    pub(crate) fn is_used(&self, place: Place) -> bool {
        self.used[place.word as usize] >> place.bit & 1 == 1
    }

    /// Changes a word of blocks in use, in the header and here: one store.
    #[inline]
    pub(crate) fn put(&mut self, m: &impl Words, layout: &Layout, word: u64, used: u64) -> Result<()> {
        let at = layout.used(self.index, word);
        let known = &mut self.used[word as usize];
        if m.load(at) != *known {
            return damaged(at, "blocks are in use, or free, that their owner did not make so");
        }
        m.store(at, used);
        *known = used;
        Ok(())
    }
}
