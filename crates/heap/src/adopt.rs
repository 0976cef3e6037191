//! A place among the arenas is taken by one exchange: one that is free, or whose process has ended.
//! With it go the chunks that it has. What is mended in them is what a header says, and a note of what
//! the dead one was about to do; whoever dies while he mends leaves the same to the next.

use crate::arena::Arena;
use crate::book::{Chunk, Span};
use crate::chunk::{Entry, Kind};
use crate::layout::{HOSTS, LOCK_AT, Layout, PLACES};
use crate::publish;
use crate::refused::{Refused, Result, damaged};
use crate::remote;
use crate::words::Words;

/// Takes a place in a page of this host, or in one that is nobody's.
pub(crate) fn take_place(arena: &mut Arena, m: &impl Words) -> Result<()> {
    let own = arena.people.host();
    let mut refused = Refused::TooMany;
    for is_own in [true, false] {
        for host in 0..HOSTS {
            let at = Layout::host(host);
            let key = m.load(at);
            if (key == own) != is_own || !is_own && !is_to_be_had(arena, m, at, key) {
                continue;
            }
            for slot in host * PLACES + 1..(host + 1) * PLACES {
                match arena.take(m, slot) {
                    Ok(true) => return Ok(()),
                    Ok(false) => {}
                    // Another place will do.
                    Err(damaged @ Refused::Damaged(_)) => refused = damaged,
                    Err(other) => return Err(other),
                }
            }
        }
    }
    Err(refused)
}

/// Makes a host's page this host's, if it is nobody's any more.
fn is_to_be_had(arena: &Arena, m: &impl Words, at: u64, key: u64) -> bool {
    let own = arena.people.host();
    (key == 0 || arena.people.host_has_ended(key)) && (m.exchange(at, key, own).is_ok() || m.load(at) == own)
}

impl Arena {
    /// Takes a place of this host if its owner has ended or left; gives whether it did.
    pub(crate) fn take(&mut self, m: &impl Words, slot: u64) -> Result<bool> {
        let at = Layout::arena(slot);
        let owner = m.load(at);
        if owner != 0 && !self.people.has_ended(owner) || m.exchange(at, owner, self.people.me()).is_err() {
            return Ok(false);
        }
        let (host, index) = (Layout::host(slot / PLACES) + 8, slot % PLACES);
        let mut taken = m.load(host);
        while taken <= index
            && let Err(now) = m.exchange(host, taken, index + 1)
        {
            taken = now;
        }
        self.slots.push(slot);
        match self.mend(m, slot) {
            Ok(()) => Ok(true),
            Err(refused) => {
                self.disown(slot);
                m.store(at, owner);
                Err(refused)
            }
        }
    }

    /// All places of this host whose owners have ended, or left with blocks in use.
    pub(crate) fn adopt_the_dead(&mut self, m: &impl Words) -> Result<()> {
        let chunks = 0..self.layout.chunks;
        let slots = chunks.filter_map(|chunk| Entry::read(m, &self.layout, chunk).ok()?);
        let have: std::collections::HashSet<u64> = slots.map(|entry| entry.slot).collect();
        for (slot, key, _) in remote::places(m)? {
            let at = Layout::host(slot / PLACES);
            let is_here = key == self.people.host() || is_to_be_had(self, m, at, key);
            if is_here && have.contains(&slot) && !self.slots.contains(&slot) {
                self.take(m, slot)?;
            }
        }
        Ok(())
    }

    /// Goes on where the last owner of a place was.
    fn mend(&mut self, m: &impl Words, slot: u64) -> Result<()> {
        if m.load(LOCK_AT) == slot {
            m.store(LOCK_AT, 0);
        }
        let (mut covered, mut unused) = (0, Vec::new());
        for index in 0..self.layout.chunks {
            // Another's entry that is damaged is found by whoever meets it.
            let entry = Entry::read(m, &self.layout, index).ok().flatten();
            let Some(entry) = entry.filter(|entry| entry.slot == slot) else { continue };
            if self.chunks[index as usize].is_some() {
                return damaged(self.layout.entry(index), "the table says that a chunk is another's");
            }
            let read = match entry.kind {
                Kind::Part if index < covered => continue,
                Kind::Part => None,
                kind => Chunk::read(m, &self.layout, index, slot, kind)?,
            };
            // Nothing is given back before the note was read, which may speak of it.
            match (entry.kind, read) {
                (Kind::Huge(chunks), Some(chunk)) => {
                    covered = index + chunks;
                    self.enter(chunk);
                }
                (_, Some(chunk)) => self.enter(chunk),
                (_, None) => unused.push(index),
            }
        }
        publish::mend(self, m, slot)?;
        unused.into_iter().for_each(|index| self.release_part(m, index));
        self.release_unused_runs(m, slot)?;
        self.collect(m, true)?;
        self.release_empty(m)
    }

    /// Pages that were about to be a block.
    fn release_unused_runs(&mut self, m: &impl Words, slot: u64) -> Result<()> {
        for index in self.order.clone() {
            for page in 0..self.layout.chunk_pages {
                let chunk = self.chunks[index as usize].as_deref().filter(|chunk| chunk.slot == slot);
                let span = chunk.map(|chunk| chunk.spans[page as usize]);
                if span.filter(Span::is_run).is_some_and(|span| span.used == 0) {
                    self.release_run(m, (index, page))?;
                }
            }
            // A huge one that was about to be, or is none any more.
            let chunk = self.chunks[index as usize].as_deref().filter(|chunk| chunk.slot == slot);
            let is_huge = chunk.is_some_and(|chunk| matches!(chunk.kind, Kind::Huge(_)));
            if is_huge && chunk.is_some_and(|chunk| chunk.used.iter().all(|word| *word == 0)) {
                self.release_chunk(m, index)?;
            }
        }
        Ok(())
    }

    /// Takes a chunk as it is into the book.
    fn enter(&mut self, mut chunk: Chunk) {
        for page in 0..chunk.spans.len() {
            let span = chunk.spans[page];
            if span.pages == 0 || span.is_run() {
                continue;
            }
            let bin = self.bin_of(span.tag, span.class());
            self.bins[bin].pages += u64::from(span.pages);
            if span.used < span.blocks {
                chunk.spans[page].listed = true;
                self.bins[bin].put(chunk.index, page as u64);
            }
        }
        self.order.push(chunk.index);
        let index = chunk.index as usize;
        self.chunks[index] = Some(Box::new(chunk));
    }

    /// Forgets a place, and its chunks.
    fn disown(&mut self, slot: u64) {
        self.slots.retain(|kept| *kept != slot);
        for chunk in self.chunks.iter_mut() {
            if chunk.as_ref().is_some_and(|chunk| chunk.slot == slot) {
                *chunk = None;
            }
        }
        self.order.retain(|index| self.chunks[*index as usize].is_some());
        self.roomy = 0;
        let (bins, chunks) = (&mut self.bins, &self.chunks);
        bins.iter_mut().for_each(|bin| bin.forget(|chunk| chunks[chunk as usize].is_none()));
    }
}
