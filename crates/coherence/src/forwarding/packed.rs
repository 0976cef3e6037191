//! A page at rest, in 16 bytes.

use super::page::{MOST_UPDATES, Page};
use super::table::Glance;
use crate::event::Access;
use crate::span::HostId;
use std::collections::{BTreeMap, BTreeSet};

/// Hosts, or sets of hosts, by small numbers, in the order in which pages came to speak of them.
#[derive(Clone, Debug)]
struct Numbered<T> {
    all: Vec<T>,
    numbers: BTreeMap<T, u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Numbered<T> {
        Numbered { all: Vec::new(), numbers: BTreeMap::new() }
    }
}

/// The hosts that pages at rest speak of. A loss makes a new table, without the dead.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    /// Those that may own pages.
    hints: Numbered<HostId>,
    /// Those that got copies from here; this host is none of them.
    readers: Numbered<HostId>,
    /// Those that keep versions, together: they are mostly the same.
    keepers: Numbered<BTreeSet<HostId>>,
}

impl<T: Clone + Ord> Numbered<T> {
    /// The number of one, below `most`. None: there are too many.
    fn of(&mut self, one: &T, most: u64) -> Option<u64> {
        if let Some(slot) = self.numbers.get(one) {
            return Some(u64::from(*slot));
        }
        let slot = self.all.len() as u32;
        if u64::from(slot) >= most {
            return None;
        }
        self.all.push(one.clone());
        self.numbers.insert(one.clone(), slot);
        Some(u64::from(slot))
    }

    fn get(&self, slot: u64) -> &T {
        &self.all[slot as usize]
    }
}

/// Bits of a slot; this one stands for no keepers.
const SLOT_BITS: u32 = 12;
const NO_SLOT: u64 = (1 << SLOT_BITS) - 1;
// Where things are in `Packed::what`. The hint's slot is in the lowest bits.
const KEEPERS: u32 = SLOT_BITS;
const ACCESS: u32 = 2 * SLOT_BITS;
const OWNED: u64 = 1 << 26;
const OFFERED: u64 = 1 << 27;
const KEPT: u64 = 1 << 28;
const LOST: u64 = 1 << 29;
const KNOWN: u64 = 1 << 30;
const OUT: u64 = 1 << 31;
const PUBLISHED: u64 = 1 << 32;
const SEEN: u64 = 1 << 33;
const NEAR: u64 = 1 << 34;
const UNWRITTEN: u64 = 1 << 35;
const UPDATES: u32 = 36;
const NUMBER: u32 = 38;
const MOST_NUMBER: u64 = u64::MAX >> NUMBER;

/// What is known of a page where nothing is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed {
    /// The hint's slot, that of the keepers, access, flags, and the number of a version: the one that is kept, or the owner's
    /// (nobody has both), or the last that was here. Of a version that is kept because it was sent, in place of the keepers,
    /// to whom; of any other that is kept, by how much less the number of the last that was here is, if that fits there.
    what: u64,
    /// To whom copies were given, by their slots. Of a lost page: at how many reverts. Of one of which a version is kept, and
    /// another was here last, much before or later: that one's number.
    supplied: u64,
}

impl Packed {
    /// Nothing is known of the page.
    pub const NOTHING: Packed = Packed { what: 0, supplied: 0 };
    /// The page is known, and too much is under way to stand here.
    pub const ELSEWHERE: Packed = Packed { what: KNOWN | OUT, supplied: 0 };

    /// None: there is more to say than fits. (Keepers say nothing without ownership.)
    pub fn of(page: &Page, slots: &mut Slots) -> Option<Packed> {
        if !page.is_at_rest() || page.owned && page.kept.is_some() || page.lost.is_some() && page.has_given()
        {
            return None;
        }
        let number = page.kept.unwrap_or(page.number);
        // What was here last, beside what is kept.
        let says_seen = page.kept.is_some() && page.number != page.sent_to.map_or(0, |_| number);
        let before = number.checked_sub(page.number).filter(|less| *less < NO_SLOT);
        let near = before.filter(|_| says_seen && page.sent_to.is_none());
        let says_seen = says_seen && near.is_none();
        if number > MOST_NUMBER || says_seen && (page.has_given() || page.lost.is_some()) {
            return None;
        }
        let says_keepers = page.owned && !page.keepers.is_empty();
        let keepers = match page.sent_to.filter(|_| page.kept.is_some()) {
            Some(to) => slots.hints.of(&to, NO_SLOT)?,
            None if says_keepers => slots.keepers.of(&page.keepers, NO_SLOT)?,
            None => near.unwrap_or(NO_SLOT),
        };
        let flag = |is: bool, bit| if is { bit } else { 0 };
        let flags = flag(page.owned, OWNED)
            | flag(page.is_offered, OFFERED)
            | flag(page.owned && page.published, PUBLISHED)
            | flag(page.kept.is_some(), KEPT)
            | flag(says_seen, SEEN)
            | flag(near.is_some(), NEAR)
            | flag(page.is_unwritten, UNWRITTEN)
            | u64::from(page.updates.min(MOST_UPDATES)) << UPDATES
            | flag(page.lost.is_some(), LOST);
        let mut supplied = if says_seen { page.number } else { u64::from(page.lost.unwrap_or(0)) };
        for host in &page.supplied {
            supplied |= 1 << slots.readers.of(host, u64::from(u64::BITS))?;
        }
        let hint = slots.hints.of(&page.hint, NO_SLOT)?;
        let what =
            hint | keepers << KEEPERS | (page.access as u64) << ACCESS | flags | KNOWN | number << NUMBER;
        Some(Packed { what, supplied })
    }

    /// Whether anything is known of the page.
    pub fn is_known(self) -> bool {
        self.has(KNOWN)
    }

    /// Whether it is not here that it stands.
    pub fn is_elsewhere(self) -> bool {
        self.has(OUT)
    }

    fn keepers_slot(self) -> u64 {
        self.what >> KEEPERS & NO_SLOT
    }

    fn has(self, bit: u64) -> bool {
        self.what & bit != 0
    }

    /// A page that stands here.
    pub fn glance(self, slots: &Slots) -> Glance {
        let access = match self.what >> ACCESS & 3 {
            0 => Access::None,
            1 => Access::Read,
            _ => Access::Write,
        };
        let number = self.what >> NUMBER;
        let is_to = |slot: &u64| self.has(KEPT) && !self.has(NEAR) && *slot != NO_SLOT;
        let to = Some(self.keepers_slot()).filter(is_to);
        Glance {
            access,
            owned: self.has(OWNED),
            hint: *slots.hints.get(self.what & NO_SLOT),
            number: match to {
                _ if self.has(SEEN) => self.supplied,
                _ if self.has(NEAR) => number - self.keepers_slot(),
                None if self.has(KEPT) => 0,
                _ => number,
            },
            kept: self.has(KEPT).then_some(number),
            sent_to: to.map(|slot| *slots.hints.get(slot)),
            lost: self.has(LOST).then_some(self.supplied as u32),
        }
    }

    /// A page that stands here, in full.
    pub fn page(self, slots: &Slots) -> Page {
        let Glance { access, owned, hint, number, kept, sent_to, lost } = self.glance(slots);
        let mut page = Page { access, owned, number, kept, sent_to, lost, ..Page::unknown(hint) };
        page.is_offered = self.has(OFFERED);
        page.is_unwritten = self.has(UNWRITTEN);
        page.updates = (self.what >> UPDATES) as u8 & MOST_UPDATES;
        page.published = self.has(PUBLISHED);
        let keepers = self.keepers_slot();
        if keepers != NO_SLOT && !self.has(KEPT) {
            page.keepers = slots.keepers.get(keepers).clone();
        }
        if lost.is_none() && !self.has(SEEN) {
            let given = (0..64).filter(|slot| self.supplied >> slot & 1 != 0);
            page.supplied = given.map(|slot| *slots.readers.get(slot)).collect();
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goes_in_and_out(page: &Page, slots: &mut Slots) {
        let packed = Packed::of(page, slots).unwrap();
        assert!(packed.is_known() && !packed.is_elsewhere());
        assert_eq!(packed.page(slots), *page);
        assert_eq!(packed.glance(slots), page.glance());
    }

    #[test]
    fn what_goes_in_comes_out() {
        assert_eq!(size_of::<Packed>(), 16);
        let slots = &mut Slots::default();
        let hosts = |numbers: std::ops::Range<u32>| numbers.map(HostId).collect();
        goes_in_and_out(&Page::unknown(HostId(5)), slots);
        let owner = Page { number: 7, keepers: hosts(5..8), ..Page::origin(HostId(0)) };
        goes_in_and_out(&owner, slots);
        goes_in_and_out(
            &Page { access: Access::Read, updates: 2, is_unwritten: true, ..owner.clone() },
            slots,
        );
        goes_in_and_out(&Page { access: Access::Read, supplied: hosts(100..164), ..owner.clone() }, slots);
        goes_in_and_out(&Page { is_offered: true, published: true, number: MOST_NUMBER, ..owner }, slots);
        goes_in_and_out(&Page { supplied: hosts(110..120), ..Page::unknown(HostId(3)) }, slots);
        goes_in_and_out(&Page { kept: Some(0), ..Page::lost(HostId(3), u32::MAX) }, slots);
        goes_in_and_out(&Page { kept: Some(9), updates: MOST_UPDATES, ..Page::unknown(HostId(3)) }, slots);
        goes_in_and_out(&Page { number: 9, ..Page::unknown(HostId(3)) }, slots);
        let sent = Page { kept: Some(9), number: 9, sent_to: Some(HostId(4)), ..Page::unknown(HostId(3)) };
        goes_in_and_out(&Page { supplied: hosts(110..120), ..sent.clone() }, slots);
        goes_in_and_out(&sent, slots);
        goes_in_and_out(&Page { number: u64::MAX, sent_to: None, ..sent.clone() }, slots);
        // A keeper that reads what it keeps, or what it sent once, and gave copies of it.
        for number in [9, 8, 0] {
            let keeper = Page { number, sent_to: None, supplied: hosts(110..120), ..sent.clone() };
            goes_in_and_out(&Page { access: Access::Read, ..keeper }, slots);
        }
        let long_ago = Page { kept: Some(NO_SLOT), number: 1, ..Page::unknown(HostId(3)) };
        goes_in_and_out(&Page { supplied: hosts(110..120), ..long_ago.clone() }, slots);
        goes_in_and_out(&Page { kept: Some(2 * NO_SLOT), ..long_ago }, slots);
    }

    #[test]
    fn what_does_not_fit_does_not_go_in() {
        let slots = &mut Slots::default();
        let unknown = Page::unknown(HostId(0));
        let many = Page { supplied: (1..66).map(HostId).collect(), ..unknown.clone() };
        let asks = Page { asked: Access::Read, ..unknown.clone() };
        let follows = Page { next: Some(HostId(1)), ..unknown.clone() };
        let long_ago = Page { number: 1 << 32, ..Page::origin(HostId(0)) };
        let kept = Page { kept: Some(NO_SLOT + 1), number: 1, ..unknown.clone() };
        let keeps = Page { supplied: [HostId(1)].into(), ..kept };
        for page in [many, asks, follows, long_ago, keeps] {
            assert_eq!(Packed::of(&page, slots), None);
        }
        (0..u32::from(u16::MAX)).for_each(|host| {
            let hint = Packed::of(&Page::unknown(HostId(host)), slots);
            assert_eq!(hint.is_some(), u64::from(host) < NO_SLOT);
        });
    }
}
