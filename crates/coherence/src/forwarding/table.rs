//! The pages of an object at one host: 16 bytes for one of which anything is known, all of [`Page`] only while something
//! is under way there, nothing for the others.

use super::packed::{Packed, Slots};
use super::page::Page;
use crate::event::Access;
use crate::span::HostId;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// Pages in one piece of the table.
const CHUNK_PAGES: u32 = 16;
type Chunk = [Packed; CHUNK_PAGES as usize];

/// What is asked of a page most often, whether it is at rest or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Glance {
    pub access: Access,
    pub owned: bool,
    pub hint: HostId,
    pub number: u64,
    pub kept: Option<u64>,
    pub sent_to: Option<HostId>,
    pub lost: Option<u32>,
}

/// The pages that a host knows anything of.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    chunks: BTreeMap<u32, Box<Chunk>>,
    slots: Slots,
    /// Pages that are not at rest, or do not fit into the chunks.
    busy: BTreeMap<u32, Page>,
    /// Pages that may have come to rest: until the end of an event all that it touched are taken out of the chunks.
    touched: Vec<u32>,
}

impl Table {
    fn packed(&self, number: u32) -> Packed {
        let chunk = self.chunks.get(&(number / CHUNK_PAGES));
        chunk.map_or(Packed::NOTHING, |chunk| chunk[(number % CHUNK_PAGES) as usize])
    }

    fn packed_mut(&mut self, number: u32) -> &mut Packed {
        let new = || Box::new([Packed::NOTHING; CHUNK_PAGES as usize]);
        let chunk = self.chunks.entry(number / CHUNK_PAGES).or_insert_with(new);
        &mut chunk[(number % CHUNK_PAGES) as usize]
    }

    /// Whether anything is known of a page.
    pub fn contains(&self, number: u32) -> bool {
        self.packed(number).is_known()
    }

    /// A short look at a page of which something is known.
    pub fn glance(&self, number: u32) -> Option<Glance> {
        let packed = self.packed(number);
        packed.is_known().then(|| self.look(number, packed))
    }

    fn look(&self, number: u32, packed: Packed) -> Glance {
        if packed.is_elsewhere() { self.busy[&number].glance() } else { packed.glance(&self.slots) }
    }

    /// Short looks at all pages of which something is known, in their order.
    pub fn glances(&self) -> impl Iterator<Item = (u32, Glance)> {
        self.known().map(|(number, packed)| (number, self.look(number, packed)))
    }

    fn known(&self) -> impl Iterator<Item = (u32, Packed)> {
        let all = self.chunks.iter().flat_map(|(chunk, pages)| (chunk * CHUNK_PAGES..).zip(pages.iter()));
        all.filter(|(_, packed)| packed.is_known()).map(|(number, packed)| (number, *packed))
    }

    /// The pages of which something is known.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.known().map(|(number, _)| number)
    }

    /// Pages where something is under way, and maybe others.
    pub fn busy(&self) -> impl Iterator<Item = (u32, &Page)> {
        self.busy.iter().map(|(number, page)| (*number, page))
    }

    /// A page where something is under way.
    pub fn busy_one(&self, number: u32) -> Option<&Page> {
        self.busy.get(&number)
    }

    /// A page, to be changed; `new` if nothing is known of it.
    pub fn entry(&mut self, number: u32, new: impl FnOnce() -> Page) -> &mut Page {
        self.touched.push(number);
        let packed = self.packed(number);
        if !packed.is_elsewhere() {
            let page = if packed.is_known() { packed.page(&self.slots) } else { new() };
            *self.packed_mut(number) = Packed::ELSEWHERE;
            self.busy.insert(number, page);
        }
        self.busy.get_mut(&number).expect("it is there now")
    }

    /// A page of which something is known, to be changed.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Page> {
        self.contains(number).then(|| self.entry(number, || unreachable!("it is known")))
    }

    /// Says how a page is from now on.
    pub fn insert(&mut self, number: u32, page: Page) {
        self.busy.remove(&number);
        *self.packed_mut(number) = match Packed::of(&page, &mut self.slots) {
            Some(packed) => packed,
            None => {
                self.busy.insert(number, page);
                Packed::ELSEWHERE
            }
        };
    }

    /// Takes a page out. Its piece of the table stays.
    pub fn remove(&mut self, number: u32) -> Option<Page> {
        let packed = self.packed(number);
        if !packed.is_known() {
            return None;
        }
        *self.packed_mut(number) = Packed::NOTHING;
        if packed.is_elsewhere() { self.busy.remove(&number) } else { Some(packed.page(&self.slots)) }
    }

    /// The end of an event: what it touched and is at rest takes little room again.
    pub fn tidy(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for number in touched.drain(..) {
            let Some(page) = self.busy.get(&number) else { continue };
            if let Some(packed) = Packed::of(page, &mut self.slots) {
                self.busy.remove(&number);
                *self.packed_mut(number) = packed;
            }
        }
        touched.shrink_to(CHUNK_PAGES as usize);
        self.touched = touched;
    }

    fn pages(&self) -> impl Iterator<Item = (u32, Page)> {
        self.known().map(|(number, packed)| {
            let page = || packed.page(&self.slots);
            (number, if packed.is_elsewhere() { self.busy[&number].clone() } else { page() })
        })
    }
}

/// How pages are stored, and in which order hosts were first heard of, makes no difference.
impl PartialEq for Table {
    fn eq(&self, other: &Table) -> bool {
        self.pages().eq(other.pages())
    }
}

impl Eq for Table {}

impl Hash for Table {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.pages().for_each(|page| page.hash(state));
        state.write_u8(0xff);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_at_rest_takes_few_bytes_and_one_that_is_not_is_whole() {
        let mut table = Table::default();
        let me = HostId(1);
        let page = table.entry(7, || Page::origin(me));
        page.supplied.extend((2..66).map(HostId));
        page.readers.push(HostId(70));
        let busy = page.clone();
        table.tidy();
        assert_eq!(
            table.busy().map(|(number, page)| (number, page.clone())).collect::<Vec<_>>(),
            [(7, busy)]
        );
        table.entry(7, || unreachable!()).readers.clear();
        table.tidy();
        assert_eq!(table.busy().count(), 0);
        assert_eq!(table.pages().next().unwrap().1.supplied.len(), 64);
        assert_eq!(table.numbers().collect::<Vec<_>>(), [7]);
        assert_eq!(table.get_mut(8), None);
        assert_eq!(table.remove(7).map(|page| page.supplied.len()), Some(64));
        assert!(!table.contains(7) && table.remove(7).is_none());
    }

    #[test]
    fn tables_are_equal_whatever_happened_before() {
        let (mut one, mut other) = (Table::default(), Table::default());
        for number in [3, 40] {
            one.insert(number, Page::unknown(HostId(number)));
        }
        for number in [40, 3] {
            other.entry(number, || Page::unknown(HostId(9))).holds = 1;
            *other.entry(number, || unreachable!()) = Page::unknown(HostId(number));
        }
        assert_eq!(one, other);
        other.tidy();
        assert_eq!(one, other);
        other.insert(3, Page::unknown(HostId(4)));
        assert_ne!(one, other);
    }
}
