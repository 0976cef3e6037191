//! One task's address space: map entries, and the virtual segments that they need (section 5.2).

use crate::hardware::{Protection, Rules};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Names an object: the contents of one physical segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u64);

/// What a child gets of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inheritance {
    /// The object itself.
    Share,
    /// A copy, made at once: nothing notices later writes (section 5.1).
    Copy,
    /// Nothing.
    None,
}

/// A map entry: pages of an object at addresses of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Page number of its first address.
    pub start: u64,
    /// How many pages.
    pub pages: u32,
    /// Of which object.
    pub object: ObjectId,
    /// The first page, counted from the object's.
    pub offset: u32,
    /// What the task asked for, whatever the hardware makes of it.
    pub protection: Protection,
    /// What a child gets.
    pub inheritance: Inheritance,
}

impl Entry {
    /// Page number of the first address after it.
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.pages)
    }

    /// Where the object's first page would be: entries of one segment agree on it.
    fn base(&self) -> i128 {
        i128::from(self.start) - i128::from(self.offset)
    }

    fn end_offset(&self) -> u32 {
        self.offset + self.pages
    }

    /// Whether `next` goes on where this ends, so that the two may be one entry.
    fn goes_on_as(&self, next: &Entry) -> bool {
        self.end() == next.start
            && self.end_offset() == next.offset
            && (self.object, self.protection, self.inheritance)
                == (next.object, next.protection, next.inheritance)
    }

    /// The part of the entry between two addresses.
    fn part(&self, start: u64, end: u64) -> Option<Entry> {
        let (start, end) = (start.max(self.start), end.min(self.end()));
        (start < end).then(|| Entry {
            start,
            pages: (end - start) as u32,
            offset: self.offset + (start - self.start) as u32,
            ..*self
        })
    }
}

/// A virtual segment: a part of an object at addresses of a task, with one protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtualSegment {
    /// Page number of its first address.
    pub start: u64,
    /// How many pages, gaps between entries included.
    pub pages: u32,
    /// Of which object.
    pub object: ObjectId,
    /// The first page, counted from the object's.
    pub offset: u32,
    /// What the hardware allows.
    pub protection: Protection,
}

impl VirtualSegment {
    /// Page number of the first address after it.
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.pages)
    }

    /// Where the object's first page would be.
    fn base(&self) -> i128 {
        i128::from(self.start) - i128::from(self.offset)
    }

    /// Whether both map a page of one object at one address.
    fn has_part_of(&self, other: &VirtualSegment) -> bool {
        (self.object, self.base()) == (other.object, other.base())
            && self.start < other.end()
            && other.start < self.end()
    }

    pub(crate) fn contains(&self, other: &VirtualSegment) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }
}

/// The map entries of a task, merged wherever two go on as one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries(BTreeMap<u64, Entry>);

impl Entries {
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.0.values()
    }

    /// Entries with an address from `start` to before `end`.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = &Entry> {
        let before = self.0.range(..start).next_back().map(|(_, entry)| entry);
        let from = self.0.range(start..end.max(start)).map(|(_, entry)| entry);
        before.filter(move |entry| entry.end() > start).into_iter().chain(from)
    }

    /// Adds an entry where there is none.
    pub fn add(&mut self, mut entry: Entry) {
        if let Some((_, before)) = self.0.range(..entry.start).next_back()
            && before.goes_on_as(&entry)
        {
            let before = *before;
            entry = Entry { pages: before.pages + entry.pages, ..before };
        }
        if let Some(after) = self.0.get(&entry.end())
            && entry.goes_on_as(after)
        {
            let after = *after;
            self.0.remove(&after.start);
            entry.pages += after.pages;
        }
        self.0.insert(entry.start, entry);
    }

    /// Takes away what lies between two addresses, and returns it.
    pub fn cut(&mut self, start: u64, end: u64) -> Vec<Entry> {
        let hit: Vec<Entry> = self.within(start, end).copied().collect();
        for entry in &hit {
            self.0.remove(&entry.start);
            for rest in [entry.part(0, start), entry.part(end, u64::MAX)].into_iter().flatten() {
                self.0.insert(rest.start, rest);
            }
        }
        hit.iter().filter_map(|entry| entry.part(start, end)).collect()
    }

    /// The virtual segments that the entries need, in order of address.
    ///
    /// Neighbours share one if they map one object in line and the hardware takes their protections
    /// for one. What lies between the two becomes accessible with them (section 5.3); no other
    /// object is there, or it would be the neighbour.
    pub fn segments(&self, rules: &Rules) -> Vec<VirtualSegment> {
        let mut segments: Vec<VirtualSegment> = Vec::new();
        for entry in self.iter() {
            match segments.last_mut() {
                Some(last)
                    if (last.object, last.base()) == (entry.object, entry.base())
                        && rules.equal(last.protection, entry.protection) =>
                {
                    last.pages = (entry.end() - last.start) as u32;
                }
                _ => segments.push(VirtualSegment {
                    start: entry.start,
                    pages: entry.pages,
                    object: entry.object,
                    offset: entry.offset,
                    protection: rules.effective(entry.protection),
                }),
            }
        }
        segments
    }

    /// Whether an entry of the object has one of its pages from `offset` to before `end`.
    pub fn covers(&self, object: ObjectId, offset: u32, end: u32) -> bool {
        self.iter().any(|entry| entry.object == object && entry.offset < end && offset < entry.end_offset())
    }

    /// The first page of an object behind all that entries map.
    pub fn used_pages(&self, object: ObjectId) -> u32 {
        let ends = self.iter().filter(|entry| entry.object == object).map(Entry::end_offset);
        ends.max().unwrap_or(0)
    }
}

/// A task's entries, and the virtual segments that the hardware has for them, by slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    pub entries: Entries,
    pub slots: Vec<Option<VirtualSegment>>,
}

impl Space {
    pub fn segments(&self) -> impl Iterator<Item = &VirtualSegment> {
        self.slots.iter().flatten()
    }

    /// Whether nothing is mapped between two addresses, and no gap of a segment is there.
    pub fn is_free(&self, start: u64, end: u64) -> bool {
        self.entries.within(start, end).next().is_none()
            && self.segments().all(|segment| end <= segment.start || segment.end() <= start)
    }

    /// The wanted segments by slot. Each keeps the slot of one that has a part of it now, with its
    /// protection if there is one; the others get free slots.
    pub fn assign(&self, wanted: &[VirtualSegment]) -> Vec<Option<VirtualSegment>> {
        let mut slots: Vec<Option<VirtualSegment>> = self.slots.iter().map(|_| None).collect();
        let mut left = wanted.to_vec();
        for alike in [true, false] {
            left.retain(|segment| {
                let is_its = |held: &VirtualSegment| {
                    held.has_part_of(segment) && (!alike || held.protection == segment.protection)
                };
                let its =
                    |slot: &usize| slots[*slot].is_none() && self.slots[*slot].as_ref().is_some_and(is_its);
                let found = (0..self.slots.len()).find(its);
                found.into_iter().for_each(|slot| slots[slot] = Some(*segment));
                found.is_none()
            });
        }
        for segment in left {
            match slots.iter_mut().find(|slot| slot.is_none()) {
                Some(slot) => *slot = Some(segment),
                None => slots.push(Some(segment)),
            }
        }
        slots
    }
}
