//! Where everything lies, by the object's size alone: nothing that others write says so.
//!
//! | pages | what |
//! |---|---|
//! | 0 | the heap's mark, and the lock of names |
//! | 1 | roots |
//! | 2–5 | types |
//! | 6–21 | arenas: a page for each host |
//! | then | the table of chunks, 8 bytes for each |
//! | then | chunks of 16 to 256 pages, each with its header |
//!
//! A chunk's header is in two parts, each of whole pages. Its owner writes the first: for each page
//! a description (that of page 0 says that the chunk is in use) and 256 bits of blocks in use. Who
//! frees a block of another's writes the second: 256 bits for each page (those of page 0 say which
//! pages have some).

/// Bytes of a page.
pub const PAGE: u64 = 4096;

pub(crate) const MARK_AT: u64 = 0;
pub(crate) const LOCK_AT: u64 = 64;
pub(crate) const ROOTS_AT: u64 = PAGE;
pub(crate) const TAGS_AT: u64 = 2 * PAGE;
pub(crate) const ARENAS_AT: u64 = 6 * PAGE;
/// Hosts that may use one heap.
pub(crate) const HOSTS: u64 = 16;
/// Places of a host's page; the first is the host's own.
pub(crate) const PLACES: u64 = 64;
/// Bytes of a place.
const PLACE: u64 = PAGE / PLACES;
const TABLE_AT: u64 = ARENAS_AT + HOSTS * PAGE;
/// Pages of a chunk, at most.
pub(crate) const MOST_CHUNK_PAGES: u64 = 256;
/// Words of a bitmap of a page.
pub(crate) const MAP_WORDS: u64 = 4;
/// The largest heap.
const MOST_BYTES: u64 = 1 << 44;

/// Where everything lies in a heap of some size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub(crate) chunks: u64,
    pub(crate) chunk_pages: u64,
    first_chunk: u64,
    chunk_shift: u32,
}

impl Layout {
    /// A heap in so many bytes; `None`: no heap fits, or it is larger than one may be.
    pub fn of(bytes: u64) -> Option<Layout> {
        let pages = bytes / PAGE;
        let chunk_pages = (pages / 256).next_power_of_two().clamp(16, MOST_CHUNK_PAGES);
        let fixed = TABLE_AT / PAGE;
        let room = pages.checked_sub(fixed).filter(|_| bytes <= MOST_BYTES)?;
        let mut chunks = room / chunk_pages;
        while chunks > 0 && (chunks * 8).div_ceil(PAGE) + chunks * chunk_pages > room {
            chunks -= 1;
        }
        let first_chunk = TABLE_AT + (chunks * 8).div_ceil(PAGE) * PAGE;
        (chunks > 0).then_some(Layout {
            chunks,
            chunk_pages,
            first_chunk,
            chunk_shift: (chunk_pages * PAGE).trailing_zeros(),
        })
    }

    /// The largest block that an empty heap has room for.
    pub fn most_bytes(&self) -> u64 {
        (self.chunks * self.chunk_pages - self.header_pages()) * PAGE
    }

    /// The host's own place in its page.
    pub(crate) fn host(host: u64) -> u64 {
        ARENAS_AT + host * PAGE
    }

    /// The place of an arena: `host * PLACES + index`, and index is never 0.
    pub(crate) fn arena(slot: u64) -> u64 {
        ARENAS_AT + slot * PLACE
    }

    /// A chunk's word in the table.
    pub(crate) fn entry(&self, chunk: u64) -> u64 {
        TABLE_AT + 8 * chunk
    }

    /// A chunk's first byte.
    #[inline]
    pub(crate) fn chunk(&self, chunk: u64) -> u64 {
        self.first_chunk + chunk * self.chunk_pages * PAGE
    }

    /// The chunk in which a byte lies.
    #[inline]
    pub(crate) fn chunk_of(&self, at: u64) -> Option<u64> {
        let chunk = at.checked_sub(self.first_chunk)? >> self.chunk_shift;
        (chunk < self.chunks).then_some(chunk)
    }

    /// Pages of the part of a header that the owner writes.
    pub(crate) fn own_pages(&self) -> u64 {
        (self.chunk_pages * 8 * (1 + MAP_WORDS)).div_ceil(PAGE)
    }

    /// Pages of a header.
    pub(crate) fn header_pages(&self) -> u64 {
        self.own_pages() + (self.chunk_pages * 8 * MAP_WORDS).div_ceil(PAGE)
    }

    /// Pages of a chunk that blocks may lie in.
    pub(crate) fn data_pages(&self) -> u64 {
        self.chunk_pages - self.header_pages()
    }

    /// The description of a page; of page 0: that of the chunk.
    pub(crate) fn description(&self, chunk: u64, page: u64) -> u64 {
        self.chunk(chunk) + 8 * page
    }

    /// A word of the blocks in use; of a page the words from `MAP_WORDS * page` on.
    #[inline]
    pub(crate) fn used(&self, chunk: u64, word: u64) -> u64 {
        self.chunk(chunk) + 8 * (self.chunk_pages + word)
    }

    /// A word of the blocks that others freed; the first ones are of pages.
    #[inline]
    pub(crate) fn freed(&self, chunk: u64, word: u64) -> u64 {
        self.chunk(chunk) + self.own_pages() * PAGE + 8 * word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_inside_and_none_over_another() {
        for bytes in (0..400).map(|n| n * PAGE).chain([1 << 21, 1 << 30, 1 << 37, MOST_BYTES, MOST_BYTES + 1])
        {
            let Some(layout) = Layout::of(bytes) else {
                assert!(!(39 * PAGE..=MOST_BYTES).contains(&bytes), "{bytes}");
                continue;
            };
            assert!(layout.entry(layout.chunks) <= layout.chunk(0));
            assert!(layout.chunk(layout.chunks) <= bytes);
            assert!(layout.used(0, MAP_WORDS * layout.chunk_pages) <= layout.freed(0, 0));
            let header = layout.chunk(0) + layout.header_pages() * PAGE;
            assert!(layout.freed(0, MAP_WORDS * layout.chunk_pages) <= header && layout.data_pages() > 0);
            let last = layout.chunk(layout.chunks) - 1;
            assert_eq!(layout.chunk_of(last), Some(layout.chunks - 1));
            assert_eq!((layout.chunk_of(last + 1), layout.chunk_of(layout.chunk(0) - 1)), (None, None));
        }
    }
}
