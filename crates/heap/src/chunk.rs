//! A chunk's word in the table, and the descriptions in its header. Whoever may write the heap may
//! have written them: each is checked when it is read.

use crate::class::{self, CLASSES};
use crate::layout::{HOSTS, Layout, MAP_WORDS, PAGE, PLACES};
use crate::names::MOST_TAGS;
use crate::refused::Problem;
use crate::words::Words;

/// What a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It has spans of pages.
    Spans,
    /// With so many chunks that follow, it is one block.
    Huge(u64),
    /// It is one of those that follow.
    Part,
}

/// A word of the table: whose a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub slot: u64,
    pub kind: Kind,
}

impl Entry {
    pub(crate) fn word(self) -> u64 {
        let (kind, chunks) = match self.kind {
            Kind::Spans => (1, 0),
            Kind::Huge(chunks) => (2, chunks),
            Kind::Part => (3, 0),
        };
        chunks << 32 | kind << 16 | self.slot
    }

    /// The word of a chunk; `None`: it is nobody's.
    pub(crate) fn read(m: &impl Words, layout: &Layout, chunk: u64) -> Result<Option<Entry>, Problem> {
        let at = layout.entry(chunk);
        let word = m.load(at);
        if word == 0 {
            return Ok(None);
        }
        let kind = match (word >> 16 & 0xffff, word >> 32) {
            (1, 0) => Some(Kind::Spans),
            (2, chunks) if chunks > 1 && chunks <= layout.chunks - chunk => Some(Kind::Huge(chunks)),
            (3, 0) => Some(Kind::Part),
            _ => None,
        };
        let slot = word & 0xffff;
        let is_arena = slot < HOSTS * PLACES && !slot.is_multiple_of(PLACES);
        let entry = kind.filter(|_| is_arena).map(|kind| Entry { slot, kind });
        entry.map(Some).ok_or(Problem { at, what: "an entry of the table of chunks is none" })
    }
}

/// What the description of page 0 says when the chunk is in use.
pub(crate) fn life(slot: u64, chunk: u64) -> u64 {
    0xc4 << 56 | slot << 40 | chunk
}

/// Whether a chunk is in use. One that is nobody's, or that was taken and not begun, says 0.
pub(crate) fn is_live(m: &impl Words, layout: &Layout, chunk: u64, slot: u64) -> Result<bool, Problem> {
    let at = layout.description(chunk, 0);
    match m.load(at) {
        0 => Ok(false),
        word if word == life(slot, chunk) => Ok(true),
        _ => Err(Problem { at, what: "the description of a chunk is none" }),
    }
}

/// What a span of pages holds: blocks of one size and one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Description {
    /// [`CLASSES`]: one block of all its pages.
    pub class: usize,
    pub tag: u16,
    pub pages: u64,
}

const MARK: u64 = 0xa5 << 56;
/// Pages of a span with several blocks, at most.
pub(crate) const MOST_PAGES: u64 = 16;

impl Description {
    pub(crate) fn word(self) -> u64 {
        MARK | self.pages << 24 | u64::from(self.tag) << 8 | (self.class as u64 + 1)
    }

    /// That of a page of a chunk of that kind; `None`: no span begins there. A huge block is one span, and in its first
    /// chunk there is no other.
    pub(crate) fn read(
        m: &impl Words,
        layout: &Layout,
        (chunk, page): (u64, u64),
        kind: Kind,
    ) -> Result<Option<Description>, Problem> {
        let at = layout.description(chunk, page);
        let room = match kind {
            Kind::Spans => layout.chunk_pages - page,
            Kind::Huge(chunks) if page == layout.header_pages() => chunks * layout.chunk_pages - page,
            Kind::Huge(_) | Kind::Part => 0,
        };
        let word = m.load(at);
        if word == 0 {
            return Ok(None);
        }
        let class = (word & 0xff).wrapping_sub(1) as usize;
        let (tag, pages) = ((word >> 8) as u16, word >> 24 & 0xffff_ffff);
        let is_one = word & 0xff << 56 == MARK && class <= CLASSES && usize::from(tag) < MOST_TAGS;
        let has_room = (1..=room).contains(&pages);
        let fits = has_room && (class == CLASSES || kind == Kind::Spans && pages <= MOST_PAGES);
        let what = "the description of a page is none";
        if is_one && fits { Ok(Some(Description { class, tag, pages })) } else { Err(Problem { at, what }) }
    }

    /// How many blocks it has.
    pub(crate) fn blocks(self) -> u64 {
        if self.class == CLASSES { 1 } else { self.pages * PAGE / class::BYTES[self.class] }
    }

    /// Bytes of one.
    pub(crate) fn bytes(self) -> u64 {
        if self.class == CLASSES { self.pages * PAGE } else { class::BYTES[self.class] }
    }

    /// The number of the block that begins so many bytes from the first one.
    #[inline]
    pub(crate) fn index(self, from_first: u64) -> Option<u64> {
        if self.class == CLASSES {
            return (from_first == 0).then_some(0);
        }
        class::index(self.class, from_first).filter(|index| *index < self.blocks())
    }

    /// Words of its bitmaps.
    pub(crate) fn words(self) -> u64 {
        self.blocks().div_ceil(64)
    }

    /// Words that belong to its pages, as far as the header has them.
    pub(crate) fn all_words(self, layout: &Layout, page: u64) -> u64 {
        self.pages.min(layout.chunk_pages - page) * MAP_WORDS
    }

    /// The bits of a word that stand for blocks.
    pub(crate) fn bits(self, word: u64) -> u64 {
        match self.blocks().saturating_sub(64 * word) {
            0 => 0,
            bits if bits >= 64 => u64::MAX,
            bits => (1 << bits) - 1,
        }
    }
}
