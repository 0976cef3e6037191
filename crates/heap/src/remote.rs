//! Blocks of others: whoever frees one sets a bit beside it, and its owner collects those bits when
//! it needs room. A bit whose block is in use is a block that is free, whoever dies.

use crate::arena::Arena;
use crate::chunk::{Description, Entry, Kind, MOST_PAGES, is_live};
use crate::layout::{HOSTS, Layout, MAP_WORDS, PAGE, PLACES};
use crate::publish;
use crate::refused::{Problem, Refused, Result};
use crate::words::Words;

/// In an arena's place: others freed something.
pub(crate) fn told_at(slot: u64) -> u64 {
    Layout::arena(slot) + 8
}

/// A block, as the heap's words say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub slot: u64,
    pub chunk: u64,
    pub page: u64,
    pub used_at: u64,
    pub freed_at: u64,
    pub bit: u64,
}

/// The chunk, and its entry, that a byte is in: of a huge block its first.
pub(crate) fn entry_of(m: &impl Words, layout: &Layout, at: u64) -> Result<(u64, Entry)> {
    let chunk = layout.chunk_of(at).ok_or(Refused::Foreign)?;
    let entry = Entry::read(m, layout, chunk)?.ok_or(Refused::Foreign)?;
    Ok((chunk, entry))
}

/// The block that begins there, in use or not.
pub(crate) fn find(m: &impl Words, layout: &Layout, at: u64) -> Result<Found> {
    let (chunk, entry) = entry_of(m, layout, at)?;
    let slot = entry.slot;
    let (begin, first_page) = (layout.chunk(chunk), layout.header_pages());
    let touched = (at - begin) / PAGE;
    if entry.kind == Kind::Part || touched < first_page || !is_live(m, layout, chunk, slot)? {
        return Err(Refused::Foreign);
    }
    // A run's block begins in its first page, which has the description.
    for page in (first_page.max((touched + 1).saturating_sub(MOST_PAGES))..=touched).rev() {
        let Some(of) = Description::read(m, layout, (chunk, page), entry.kind)? else { continue };
        let index = of.index(at - begin - page * PAGE).ok_or(Refused::Foreign)?;
        let (word, bit) = (MAP_WORDS * page + index / 64, 1 << (index % 64));
        let (used_at, freed_at) = (layout.used(chunk, word), layout.freed(chunk, word));
        return Ok(Found { slot, chunk, page, used_at, freed_at, bit });
    }
    Err(Refused::Foreign)
}

/// A block that is in use.
pub(crate) fn find_used(m: &impl Words, layout: &Layout, at: u64) -> Result<Found> {
    let found = find(m, layout, at)?;
    let is_used = m.load(found.used_at) & !m.load(found.freed_at) & found.bit != 0;
    if is_used { Ok(found) } else { Err(Refused::NotAllocated) }
}

/// Frees a block of another arena.
pub(crate) fn free(m: &impl Words, layout: &Layout, at: u64) -> Result<()> {
    set(m, layout, &find_used(m, layout, at)?)
}

/// Sets a block's bit, and tells its owner.
pub(crate) fn set(m: &impl Words, layout: &Layout, found: &Found) -> Result<()> {
    let before = m.set(found.freed_at, found.bit);
    // Told in each case: who set it may have died before it told.
    m.set(layout.freed(found.chunk, found.page / 64), 1 << (found.page % 64));
    if m.load(told_at(found.slot)) == 0 {
        m.store(told_at(found.slot), 1);
    }
    if before & found.bit == 0 { Ok(()) } else { Err(Refused::NotAllocated) }
}

impl Arena {
    /// Whether others said that they freed something of it.
    pub(crate) fn is_told_of_freed(&self, m: &impl Words) -> bool {
        self.slots.iter().any(|slot| m.load(told_at(*slot)) != 0)
    }

    /// Takes back what others freed; `all`: looks at every page, and not where they said.
    #[cold]
    pub(crate) fn collect(&mut self, m: &impl Words, all: bool) -> Result<()> {
        self.slots.iter().for_each(|slot| m.store(told_at(*slot), 0));
        // Blocks may take pages and chunks with them when they go.
        for index in self.order.clone() {
            for word in 0..self.layout.chunk_pages.div_ceil(64) {
                let at = self.layout.freed(index, word);
                let told = if m.load(at) == 0 { 0 } else { m.clear(at, u64::MAX) };
                for bit in (0..64).filter(|bit| all || told >> bit & 1 == 1) {
                    let page = 64 * word + bit;
                    if (self.layout.header_pages()..self.layout.chunk_pages).contains(&page) {
                        self.collect_page(m, index, page)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The same for the span that begins in a page.
    fn collect_page(&mut self, m: &impl Words, index: u64, page: u64) -> Result<()> {
        let layout = self.layout;
        let Some(chunk) = self.chunks[index as usize].as_deref() else { return Ok(()) };
        let of = chunk.spans[page as usize].of();
        if of.pages == 0 {
            return Ok(());
        }
        for word in (0..of.words()).map(|word| MAP_WORDS * page + word) {
            let at = layout.freed(index, word);
            let freed = m.load(at);
            let Some(chunk) = self.chunks[index as usize].as_deref_mut().filter(|_| freed != 0) else {
                continue;
            };
            // Who frees from a word of its own may die before that is 0: until then it is not free.
            let first = layout.chunk(index) + page * PAGE + 64 * (word - MAP_WORDS * page) * of.bytes();
            let kept = publish::about_to_free(m, first, of.bytes()) & freed;
            let now = freed & !kept;
            let known = chunk.used[word as usize];
            chunk.put(m, word, known & !now)?;
            m.clear(at, now);
            if kept != 0 {
                m.set(layout.freed(index, page / 64), 1 << (page % 64));
                m.store(chunk.told_at, 1);
            }
            let fewer = u64::from((known & now).count_ones());
            if fewer > 0 {
                self.has_fewer(m, (index, page), fewer)?;
            }
        }
        Ok(())
    }
}

/// All places of arenas that were ever taken, with the host's key and the owner.
pub(crate) fn places(m: &impl Words) -> Result<Vec<(u64, u64, u64)>, Problem> {
    let mut all = Vec::new();
    for host in 0..HOSTS {
        let at = Layout::host(host);
        let (key, taken) = (m.load(at), m.load(at + 8));
        if taken > PLACES {
            return Err(Problem { at: at + 8, what: "a host has more arenas than there are places" });
        }
        let slots = (1..taken).map(|index| host * PLACES + index);
        all.extend(slots.map(|slot| (slot, key, m.load(Layout::arena(slot)))));
    }
    Ok(all)
}
