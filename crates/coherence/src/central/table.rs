//! Who has which page: 16 bytes for a page that anybody ever asked for, nothing for the others.

use crate::span::HostId;
use std::collections::{BTreeMap, BTreeSet};

/// Pages in one piece of the table.
const CHUNK_PAGES: u32 = 16;
const NOBODY: u32 = u32::MAX;
/// Readers that an entry has room for: 64 hosts, the home's own processes, and some to spare.
const SLOTS: usize = 80;

/// What is known of a page. The state of the paper's automaton follows from it and from who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    /// Hosts with a copy to read, by their slots; the first 64.
    readers: u64,
    /// The rest of the slots.
    more_readers: u16,
    /// Who may write; `NOBODY`: the home has the newest version.
    owner: u32,
    /// Its newest version was lost with its owner.
    lost: bool,
    /// More readers than the slots hold: the rest is in `PageTable::further`.
    crowded: bool,
}

const UNTOUCHED: Entry = Entry { readers: 0, more_readers: 0, owner: NOBODY, lost: false, crowded: false };

impl Entry {
    fn slots(&self) -> u128 {
        u128::from(self.more_readers) << 64 | u128::from(self.readers)
    }

    fn set_slots(&mut self, slots: u128) {
        self.readers = slots as u64;
        self.more_readers = (slots >> 64) as u16;
    }
}

/// The pages of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PageTable {
    chunks: BTreeMap<u32, Box<[Entry]>>,
    /// The hosts of the slots. A slot belongs to its host until that is lost, so that nothing is renumbered.
    slots: Vec<HostId>,
    /// Readers that have no slot.
    further: BTreeMap<u32, BTreeSet<HostId>>,
}

impl PageTable {
    fn entry(&self, page: u32) -> Entry {
        let chunk = self.chunks.get(&(page / CHUNK_PAGES));
        chunk.map_or(UNTOUCHED, |chunk| chunk[(page % CHUNK_PAGES) as usize])
    }

    fn entry_mut(&mut self, page: u32) -> &mut Entry {
        let new = || vec![UNTOUCHED; CHUNK_PAGES as usize].into_boxed_slice();
        let chunk = self.chunks.entry(page / CHUNK_PAGES).or_insert_with(new);
        &mut chunk[(page % CHUNK_PAGES) as usize]
    }

    /// Who may write the page.
    pub fn owner(&self, page: u32) -> Option<HostId> {
        Some(self.entry(page).owner).filter(|owner| *owner != NOBODY).map(HostId)
    }

    /// Says who may write the page.
    pub fn set_owner(&mut self, page: u32, owner: Option<HostId>) {
        self.entry_mut(page).owner = owner.map_or(NOBODY, |host| host.0);
    }

    /// Whether its newest version was lost.
    pub fn is_lost(&self, page: u32) -> bool {
        self.entry(page).lost
    }

    /// Pages whose newest version was lost.
    pub fn lost_pages(&self) -> Vec<u32> {
        let all = self.chunks.keys().flat_map(|chunk| chunk * CHUNK_PAGES..(chunk + 1) * CHUNK_PAGES);
        all.filter(|page| self.is_lost(*page)).collect()
    }

    /// Says whether its newest version was lost.
    pub fn set_lost(&mut self, page: u32, lost: bool) {
        self.entry_mut(page).lost = lost;
    }

    fn slot_of(&self, host: HostId) -> Option<usize> {
        self.slots.iter().position(|slot| *slot == host)
    }

    /// A host has a copy to read.
    pub fn add_reader(&mut self, page: u32, host: HostId) {
        let slot = self.slot_of(host).or_else(|| {
            self.slot_of(HostId(NOBODY)).or((self.slots.len() < SLOTS).then_some(self.slots.len())).inspect(
                |slot| {
                    self.slots.resize(self.slots.len().max(slot + 1), host);
                    self.slots[*slot] = host;
                },
            )
        });
        match slot {
            Some(slot) => {
                let entry = self.entry_mut(page);
                entry.set_slots(entry.slots() | 1 << slot);
            }
            None => {
                self.entry_mut(page).crowded = true;
                self.further.entry(page).or_default().insert(host);
            }
        }
    }

    /// A host has no copy any more.
    pub fn remove_reader(&mut self, page: u32, host: HostId) {
        if !self.is_reader(page, host) {
            return;
        }
        match self.slot_of(host) {
            Some(slot) => {
                let entry = self.entry_mut(page);
                entry.set_slots(entry.slots() & !(1 << slot));
            }
            None => {
                let rest = self.further.get_mut(&page).is_some_and(|further| {
                    further.remove(&host);
                    !further.is_empty()
                });
                if !rest {
                    self.further.remove(&page);
                    self.entry_mut(page).crowded = false;
                }
            }
        }
    }

    /// Whether a host has a copy to read.
    pub fn is_reader(&self, page: u32, host: HostId) -> bool {
        let entry = self.entry(page);
        match self.slot_of(host) {
            Some(slot) => entry.slots() & (1 << slot) != 0,
            None => entry.crowded && self.further.get(&page).is_some_and(|further| further.contains(&host)),
        }
    }

    /// Hosts with a copy to read.
    pub fn readers(&self, page: u32) -> Vec<HostId> {
        let entry = self.entry(page);
        let slots = self.slots.iter().enumerate().filter(|(slot, _)| entry.slots() & (1 << slot) != 0);
        let further = if entry.crowded { self.further.get(&page) } else { None };
        slots.map(|(_, host)| *host).chain(further.into_iter().flatten().copied()).collect()
    }

    /// Pages that a host has a copy of, or may write.
    pub fn pages_of(&self, host: HostId) -> Vec<u32> {
        let all = self.chunks.keys().flat_map(|chunk| chunk * CHUNK_PAGES..(chunk + 1) * CHUNK_PAGES);
        all.filter(|page| self.owner(*page) == Some(host) || self.is_reader(*page, host)).collect()
    }

    /// Pages that a host may write.
    pub fn owned_by(&self, host: HostId) -> Vec<u32> {
        let all = self.chunks.keys().flat_map(|chunk| chunk * CHUNK_PAGES..(chunk + 1) * CHUNK_PAGES);
        all.filter(|page| self.owner(*page) == Some(host)).collect()
    }

    /// A host is lost, and has nothing any more: its slot is another's.
    pub fn forget_host(&mut self, host: HostId) {
        if let Some(slot) = self.slot_of(host) {
            self.slots[slot] = HostId(NOBODY);
        }
    }

    /// Memory that the table takes, bytes.
    pub fn memory_bytes(&self) -> u64 {
        let chunk = CHUNK_PAGES as usize * size_of::<Entry>() + size_of::<(u32, Box<[Entry]>)>();
        let further: usize = self.further.values().map(|hosts| 32 + hosts.len() * size_of::<HostId>()).sum();
        (self.chunks.len() * chunk + further + self.slots.len() * size_of::<HostId>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_beyond_the_slots_are_known_too() {
        let mut table = PageTable::default();
        let hosts: Vec<HostId> = (0..100).map(HostId).collect();
        hosts.iter().for_each(|host| table.add_reader(7, *host));
        assert_eq!(table.readers(7), hosts);
        assert!(table.readers(8).is_empty());
        hosts.iter().step_by(2).for_each(|host| table.remove_reader(7, *host));
        assert_eq!(table.readers(7), hosts.iter().copied().filter(|h| h.0 % 2 == 1).collect::<Vec<_>>());
        hosts.iter().for_each(|host| table.remove_reader(7, *host));
        assert!(table.readers(7).is_empty() && !table.is_reader(7, HostId(99)));
    }

    #[test]
    fn the_slot_of_a_lost_host_is_anothers() {
        let mut table = PageTable::default();
        for host in 0..1000 {
            table.add_reader(7, HostId(host));
            assert_eq!(table.readers(7), [HostId(host)]);
            table.remove_reader(7, HostId(host));
            table.forget_host(HostId(host));
        }
        assert_eq!(table.slots.len(), 1);
    }

    #[test]
    fn a_page_takes_few_bytes_and_an_untouched_one_none() {
        let mut table = PageTable::default();
        assert_eq!(size_of::<Entry>(), 16);
        assert_eq!(table.memory_bytes(), 0);
        for page in 0..100_000 {
            (0..=64).for_each(|host| table.add_reader(page, HostId(host)));
        }
        assert!(table.memory_bytes() <= 100_000 * 18, "{}", table.memory_bytes());
    }
}
