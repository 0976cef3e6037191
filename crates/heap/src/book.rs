//! A chunk as its owner knows it. The owner works by this book, which nobody else can write, and
//! writes each change through to the header; so what a broken program writes there cannot lead it
//! astray, and is found when the two differ.

use crate::chunk::{Description, Kind, is_live};
use crate::class::{self, CLASSES};
use crate::layout::{Layout, MAP_WORDS, MOST_CHUNK_PAGES, PAGE};
use crate::refused::{Problem, Refused, Result, damaged};
use crate::remote;
use crate::words::Words;

/// A page: where the span that it is in begins, and, if that is here, the span. Of no pages: none
/// begins here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub pages: u32,
    head: u16,
    pub tag: u16,
    pub used: u16,
    pub blocks: u16,
    class: u8,
    /// It is in its bin's list, or where the bin takes blocks from now.
    pub listed: bool,
}

impl Span {
    #[inline]
    pub(crate) fn class(&self) -> usize {
        usize::from(self.class)
    }

    /// Whether one begins here, with blocks of that size and type.
    pub(crate) fn is(&self, tag: u16, class: usize) -> bool {
        self.pages > 0 && (self.tag, self.class()) == (tag, class)
    }

    pub(crate) fn is_run(&self) -> bool {
        self.pages > 0 && self.class() == CLASSES
    }

    pub(crate) fn of(&self) -> Description {
        Description { class: self.class(), tag: self.tag, pages: u64::from(self.pages) }
    }
}

/// A block's place in the book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub chunk: u64,
    /// The first page of its span.
    pub page: u64,
    pub word: u64,
    pub bit: u64,
}

/// Pages of a chunk, at most.
const PAGES: usize = MOST_CHUNK_PAGES as usize;
const WORDS: usize = PAGES * MAP_WORDS as usize;

#[derive(Debug)]
pub(crate) struct Chunk {
    pub index: u64,
    pub slot: u64,
    pub kind: Kind,
    start: u64,
    /// Where its first word of blocks in use is, and the word that tells its arena of freed ones.
    used_from: u64,
    pub told_at: u64,
    pub free_pages: u64,
    /// Pages of a huge block that are in its first chunk.
    huge_pages: u64,
    pub spans: Box<[Span; PAGES]>,
    pub used: Box<[u64; WORDS]>,
    is_free: [u64; PAGES / 64],
}

/// Not on the stack, of which a thread may have little.
fn made<T: std::fmt::Debug, const N: usize>(each: impl FnMut(usize) -> T) -> Box<[T; N]> {
    let all: Box<[T]> = (0..N).map(each).collect();
    all.try_into().unwrap_or_else(|_| unreachable!("so many were made"))
}

impl Chunk {
    /// An empty one.
    pub(crate) fn new(layout: &Layout, index: u64, slot: u64, kind: Kind) -> Chunk {
        let none =
            Span { pages: 0, head: 0, tag: 0, used: 0, blocks: 0, class: CLASSES as u8, listed: false };
        let mut chunk = Chunk {
            index,
            slot,
            kind,
            start: layout.chunk(index),
            used_from: layout.used(index, 0),
            told_at: remote::told_at(slot),
            free_pages: 0,
            huge_pages: layout.data_pages(),
            spans: made(|page| Span { head: page as u16, ..none }),
            used: made(|_| 0),
            is_free: [0; PAGES / 64],
        };
        chunk.set_free(layout.header_pages()..layout.chunk_pages, true);
        chunk
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
            let Some(of) = Description::read(m, layout, (index, page), kind)? else {
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
            let mut used_blocks = 0;
            for word in 0..of.words() {
                let at = layout.used(index, MAP_WORDS * page + word);
                let used = m.load(at);
                if used & !of.bits(word) != 0 {
                    return Err(Problem { at, what: "a block is in use that there is not" });
                }
                chunk.used[(MAP_WORDS * page + word) as usize] = used;
                used_blocks += used.count_ones();
            }
            chunk.spans[page as usize].used = used_blocks as u16;
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

    fn set_free(&mut self, pages: std::ops::Range<u64>, is_free: bool) {
        let many = pages.end - pages.start;
        self.free_pages = if is_free { self.free_pages + many } else { self.free_pages - many };
        for page in pages {
            let (word, bit) = (&mut self.is_free[page as usize / 64], 1 << (page % 64));
            if is_free { *word |= bit } else { *word &= !bit }
        }
    }

    /// Pages of a span that are in this chunk.
    fn inside(&self, page: u64, pages: u64) -> std::ops::Range<u64> {
        match self.kind {
            Kind::Huge(_) => page..page + self.huge_pages.min(pages),
            _ => page..page + pages,
        }
    }

    /// Writes a span of pages into the book.
    pub(crate) fn enter(&mut self, page: u64, of: Description) {
        let pages = self.inside(page, of.pages);
        for inner in pages.clone() {
            self.spans[inner as usize].head = page as u16;
        }
        self.set_free(pages, false);
        let span = &mut self.spans[page as usize];
        (span.pages, span.tag, span.class) = (of.pages as u32, of.tag, of.class as u8);
        (span.used, span.blocks, span.listed) = (0, of.blocks() as u16, false);
    }

    /// Strikes it out.
    pub(crate) fn strike(&mut self, page: u64) {
        let span = &mut self.spans[page as usize];
        let pages = u64::from(std::mem::take(&mut span.pages));
        span.listed = false;
        let pages = self.inside(page, pages);
        for inner in pages.clone() {
            self.spans[inner as usize].head = inner as u16;
        }
        self.set_free(pages, true);
    }

    /// So many free pages in a row.
    pub(crate) fn room_for(&self, pages: u64) -> Option<u64> {
        if self.free_pages < pages || self.kind != Kind::Spans {
            return None;
        }
        let mut row = 0;
        for page in 0..PAGES as u64 {
            let is_free = self.is_free[page as usize / 64] >> (page % 64) & 1 == 1;
            row = if is_free { row + 1 } else { 0 };
            if row == pages {
                return Some(page + 1 - pages);
            }
        }
        None
    }

    /// The first byte of a block.
    #[inline]
    pub(crate) fn address(&self, place: Place) -> u64 {
        let index = 64 * (place.word - MAP_WORDS * place.page) + place.bit;
        let span = &self.spans[place.page as usize % PAGES];
        let bytes = if span.class() < CLASSES { class::BYTES[span.class()] } else { 0 }; // of a run there is one
        self.start + place.page * PAGE + index * bytes
    }

    /// The block that begins at a byte of the chunk, in use or not.
    #[inline]
    pub(crate) fn find(&self, at: u64) -> Result<Place> {
        let from_start = at - self.start;
        let page = self.spans[(from_start / PAGE) as usize % PAGES].head;
        let (span, page) = (&self.spans[usize::from(page) % PAGES], u64::from(page));
        if span.pages == 0 {
            return Err(Refused::Foreign);
        }
        let from_first = from_start - page * PAGE;
        let index = match span.class() {
            CLASSES => (from_first == 0).then_some(0),
            class => class::index(class, from_first).filter(|index| *index < u64::from(span.blocks)),
        };
        let index = index.ok_or(Refused::Foreign)?;
        Ok(Place { chunk: self.index, page, word: MAP_WORDS * page + index / 64, bit: index % 64 })
    }

    /// A word of blocks in use.
    #[inline]
    pub(crate) fn used(&mut self, word: u64) -> &mut u64 {
        &mut self.used[word as usize % WORDS]
    }

    /// Frees a block that begins there, if nothing is to be found out or said about it: gives its
    /// span, and how many blocks of it are in use now. One store.
    #[inline]
    pub(crate) fn free_plainly(&mut self, m: &impl Words, at: u64) -> Option<(u64, &Span)> {
        let place = self.find(at).ok()?;
        let (used_at, used) = (self.used_from + 8 * place.word, self.used(place.word));
        let is_plain = *used >> place.bit & 1 == 1 && m.load(used_at) == *used;
        *used &= !(u64::from(is_plain) << place.bit);
        let now = *used;
        if !is_plain {
            return None;
        }
        m.store(used_at, now);
        let span = &mut self.spans[place.page as usize % PAGES];
        span.used -= 1;
        Some((place.page, span))
    }

    /// One more block of a span is in use.
    #[inline]
    pub(crate) fn has_one_more(&mut self, page: u32) {
        self.spans[page as usize % PAGES].used += 1;
    }

    /// A word of blocks in use, which the header has, too.
    pub(crate) fn known(&self, m: &impl Words, word: u64) -> Result<u64> {
        let (at, known) = (self.used_from + 8 * word, self.used[word as usize % WORDS]);
        if m.load(at) == known {
            return Ok(known);
        }
        damaged(at, "blocks are in use, or free, that their owner did not make so")
    }

    /// Changes one, in the header and here: one store.
    pub(crate) fn put(&mut self, m: &impl Words, word: u64, used: u64) -> Result<()> {
        self.known(m, word)?;
        m.store(self.used_from + 8 * word, used);
        self.used[word as usize % WORDS] = used;
        Ok(())
    }
}
