//! Pages for blocks: spans of one size and type, and runs that are one block.

use crate::arena::Arena;
use crate::book::Place;
use crate::chunk::{Description, Kind, MOST_PAGES};
use crate::class::{self, CLASSES};
use crate::layout::{MAP_WORDS, PAGE};
use crate::refused::{Refused, Result, damaged};
use crate::words::Words;

impl Arena {
    /// Pages for more blocks of a size and type: the more there are, the more at once.
    pub(crate) fn new_span(&mut self, m: &impl Words, tag: u16, class: usize) -> Result<(u64, u64)> {
        let bin = self.bin_of(tag, class);
        let least = class::least_pages(class).min(self.layout.data_pages());
        let most = MOST_PAGES.min(self.layout.data_pages());
        let wanted = self.bins[bin].pages.next_power_of_two().clamp(least, most.max(least));
        // Less than it should be is a block, too.
        let one = class::BYTES[class].div_ceil(PAGE);
        for pages in [wanted, least, one] {
            let at = match self.pages(m, pages) {
                Err(Refused::NoSpace) => continue,
                found => found?,
            };
            self.begin_span(m, at, Description { class, tag, pages })?;
            self.bins[bin].pages += pages;
            return Ok(at);
        }
        Err(Refused::NoSpace)
    }

    /// Free pages in a row, in a chunk of its own, or in one that it takes now.
    fn pages(&mut self, m: &impl Words, pages: u64) -> Result<(u64, u64)> {
        if let Some(found) = self.own_pages(pages) {
            return Ok(found);
        }
        let refused = match self.open_chunk(m) {
            Ok(chunk) => return Ok((chunk, self.layout.header_pages())),
            Err(refused) => refused,
        };
        if refused != Refused::NoSpace {
            return Err(refused);
        }
        // What others freed, what is empty, and what the dead had.
        self.make_room(m)?;
        match self.own_pages(pages) {
            Some(found) => Ok(found),
            None => Ok((self.open_chunk(m)?, self.layout.header_pages())),
        }
    }

    fn own_pages(&mut self, pages: u64) -> Option<(u64, u64)> {
        let many = self.order.len();
        for step in 0..many {
            let turn = (self.roomy + step) % many;
            let index = self.order[turn];
            let found = self.chunks[index as usize].as_deref().and_then(|chunk| chunk.room_for(pages));
            if let Some(page) = found {
                self.roomy = turn;
                return Some((index, page));
            }
        }
        None
    }

    /// All that can be had without the memory of others who live.
    pub(crate) fn make_room(&mut self, m: &impl Words) -> Result<()> {
        self.collect(m, true)?;
        self.release_empty(m)?;
        self.adopt_the_dead(m)?;
        self.release_empty(m)
    }

    /// Writes a span of pages into header and book: one store.
    fn begin_span(&mut self, m: &impl Words, (index, page): (u64, u64), of: Description) -> Result<()> {
        let layout = self.layout;
        let chunk = self.chunks[index as usize].as_deref_mut().ok_or(Refused::NoSpace)?;
        let at = layout.description(index, page);
        if m.load(at) != 0 {
            return damaged(at, "a span of pages is where there was none");
        }
        for word in 0..of.all_words(&layout, page) {
            let at = layout.freed(index, MAP_WORDS * page + word);
            // Somebody freed what was free.
            if m.load(at) != 0 {
                m.store(at, 0);
            }
        }
        m.store(at, of.word());
        m.typed(layout.chunk(index) + page * PAGE, of.pages * PAGE, of.tag);
        chunk.enter(page, of);
        Ok(())
    }

    /// Gives the pages of an empty span back to its chunk: one store.
    pub(crate) fn release_span(&mut self, m: &impl Words, (index, page): (u64, u64)) -> Result<()> {
        let at = self.layout.description(index, page);
        let Some(chunk) = self.chunks[index as usize].as_deref_mut() else { return Ok(()) };
        let of = chunk.spans[page as usize].of();
        if m.load(at) != of.word() {
            return damaged(at, "the description of pages is not what their owner wrote");
        }
        m.store(at, 0);
        chunk.strike(page);
        let is_empty = chunk.free_pages == self.layout.data_pages();
        if of.class < CLASSES {
            let bin = self.bin_of(of.tag, of.class);
            self.bins[bin].pages -= of.pages;
        }
        // Each host or process keeps what it may need at once, so that chunks do not go to and fro.
        if is_empty && self.has_empty_chunks(self.order.len() / 4 + 1) {
            return self.release_chunk(m, index);
        }
        Ok(())
    }

    fn has_empty_chunks(&self, more_than: usize) -> bool {
        let pages = self.layout.data_pages();
        let empty = |index: &&u64| {
            self.chunks[**index as usize].as_deref().is_some_and(|chunk| chunk.free_pages == pages)
        };
        self.order.iter().filter(empty).count() > more_than
    }

    /// Pages that are one block, which is not in use yet.
    #[cold]
    pub(crate) fn pick_run(&mut self, m: &impl Words, tag: u16, bytes: u64) -> Result<Place> {
        if bytes > self.layout.most_bytes() {
            return Err(Refused::TooLarge);
        }
        if self.is_told_of_freed(m) {
            self.collect(m, false)?;
        }
        let pages = bytes.div_ceil(PAGE);
        let of = Description { class: CLASSES, tag, pages };
        let place = |(chunk, page)| Place { chunk, page, word: MAP_WORDS * page, bit: 0 };
        if pages <= self.layout.data_pages() {
            let at = self.pages(m, pages)?;
            self.begin_span(m, at, of)?;
            return Ok(place(at));
        }
        let chunks = (pages + self.layout.header_pages()).div_ceil(self.layout.chunk_pages);
        let chunk = match self.open_huge(m, chunks) {
            Err(Refused::NoSpace) => {
                self.make_room(m)?;
                self.release_chunks(m)?;
                self.open_huge(m, chunks)
            }
            opened => opened,
        }?;
        let at = (chunk, self.layout.header_pages());
        self.begin_span(m, at, of)?;
        Ok(place(at))
    }

    /// Gives back a run that is not in use any more.
    pub(crate) fn release_run(&mut self, m: &impl Words, at: (u64, u64)) -> Result<()> {
        self.release_span(m, at)?;
        match self.chunks[at.0 as usize].as_deref().map(|chunk| chunk.kind) {
            Some(Kind::Huge(_)) => self.release_chunk(m, at.0),
            _ => Ok(()),
        }
    }
}
