//! Addresses that an object has in every process: from where they are taken, and which are free (`docs/FIXED.md`). Pure.
//!
//! The region lies beside that of images (`commonhold_images::ranges`). It was tried with programs of every kind: it is free in
//! position-independent, fixed and static ones and under AddressSanitizer, and blocked under ThreadSanitizer.

use crate::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// What is given out, and where it begins: a multiple of what one entry of the second level of page tables spans.
pub const UNIT_BYTES: u64 = 2 << 20;

const TIB: u64 = 1 << 40;

/// For whose objects addresses are. The two never overlap, so that a process maps objects of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Of one host alone: another host gives the same addresses to others.
    Local,
    /// Of all hosts of a cluster: its registry gives them.
    Shared,
}

impl Part {
    /// Its addresses.
    pub fn addresses(self) -> Range<u64> {
        let first = match self {
            Part::Local => 32 * TIB,
            Part::Shared => 40 * TIB,
        };
        first..first + 8 * TIB
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Part::Local => "local objects",
            Part::Shared => "objects that hosts share",
        }
    }
}

/// The addresses of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fixed {
    /// The first; zero: it is to be given one.
    pub address: u64,
    /// How many bytes are its own: it may grow so far. Zero: as many as its size takes.
    pub room_bytes: u64,
}

/// In whole units.
fn whole_units(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(UNIT_BYTES).unwrap_or(u64::MAX)
}

impl Fixed {
    /// Asks for an address, with room for so many bytes; zero: as many as the size takes.
    pub fn asked(room_bytes: u64) -> Fixed {
        Fixed { address: 0, room_bytes }
    }

    /// The same with its room in whole units.
    pub fn of_size(self, size_bytes: u64) -> Fixed {
        let room_bytes = if self.room_bytes == 0 { size_bytes.max(1) } else { self.room_bytes };
        Fixed { room_bytes: whole_units(room_bytes), ..self }
    }

    /// The first address behind it.
    pub fn end(self) -> u64 {
        self.address.saturating_add(self.room_bytes)
    }

    /// Refuses a size that its addresses have no room for, and room that the region has not.
    pub fn check_room(self, size_bytes: u64) -> Result<()> {
        let most = 8 * TIB;
        let wanted = self.room_bytes.max(size_bytes);
        if wanted > most {
            return Err(Error::invalid(format!(
                "{wanted} bytes do not fit the region of fixed addresses, which has {most}: make it smaller, or leave fixed out"
            )));
        }
        if self.room_bytes > 0 && size_bytes > self.room_bytes {
            return Err(Error::invalid(format!(
                "the object has addresses for {} bytes, and {size_bytes} do not fit: give it more room when it is created \
                 (--room), for what lies behind them may be another's",
                self.room_bytes
            )));
        }
        Ok(())
    }

    /// Whether these are addresses of that part, as they are given out.
    pub fn is_of(self, part: Part) -> bool {
        let all = part.addresses();
        let whole = self.address.is_multiple_of(UNIT_BYTES) && self.room_bytes.is_multiple_of(UNIT_BYTES);
        whole && self.room_bytes > 0 && all.start <= self.address && self.end() <= all.end
    }

    /// Refuses addresses that no host gives out. What another process says is not believed.
    pub fn check_given(self, part: Part, size_bytes: u64) -> Result<()> {
        if self.is_of(part) && size_bytes <= self.room_bytes {
            return Ok(());
        }
        let Fixed { address, room_bytes } = self;
        Err(Error::new(
            ErrorKind::Protocol,
            format!(
                "{room_bytes} bytes at {address:#x} are no addresses for {size_bytes} bytes of {}",
                part.name()
            ),
        ))
    }
}

/// Which addresses of a part are given out. What was given back is given out again as late as can be: whoever has the former
/// object mapped still cannot map the next one there.
#[derive(Clone, Debug)]
pub struct Places {
    part: Part,
    /// First address and bytes.
    taken: BTreeMap<u64, u64>,
    /// Where is looked first.
    next: u64,
}

impl Places {
    /// Nothing is given out; that address is the first to be.
    pub fn new(part: Part, next: u64) -> Places {
        let mut places = Places { part, taken: BTreeMap::new(), next: 0 };
        places.looks_from(next);
        places
    }

    /// From where on is looked next.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The same, as it was before; it is brought into the part.
    pub fn looks_from(&mut self, next: u64) {
        let all = self.part.addresses();
        let next = next.checked_next_multiple_of(UNIT_BYTES).filter(|next| all.contains(next));
        self.next = next.unwrap_or(all.start);
    }

    /// Gives out so many bytes, whole units. None: there is no gap so large.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let all = self.part.addresses();
        let first = self.gap(self.next..all.end, bytes).or_else(|| self.gap(all, bytes))?;
        self.taken.insert(first, bytes);
        self.next = first + bytes;
        Some(first)
    }

    /// These addresses are somebody's, as they were given out before. Whether nobody else has any of them.
    pub fn note(&mut self, fixed: Fixed) -> bool {
        if !fixed.is_of(self.part) {
            return false;
        }
        let below = self.taken.range(..fixed.end()).next_back();
        if let Some((first, bytes)) = below.filter(|(first, bytes)| *first + **bytes > fixed.address) {
            return (*first, *bytes) == (fixed.address, fixed.room_bytes);
        }
        self.taken.insert(fixed.address, fixed.room_bytes);
        true
    }

    /// Whether somebody's addresses begin there.
    pub fn begins_at(&self, address: u64) -> bool {
        self.taken.contains_key(&address)
    }

    /// They are nobody's any more.
    pub fn give_back(&mut self, fixed: Fixed) {
        if self.taken.get(&fixed.address) == Some(&fixed.room_bytes) {
            self.taken.remove(&fixed.address);
        }
    }

    /// The first gap of so many bytes in a run of addresses.
    fn gap(&self, within: Range<u64>, bytes: u64) -> Option<u64> {
        let before = self.taken.range(..=within.start).next_back();
        let mut at = before.map_or(within.start, |(first, bytes)| (first + bytes).max(within.start));
        for (first, taken) in self.taken.range(within.start..within.end) {
            if first.checked_sub(at).is_some_and(|gap| gap >= bytes) {
                return Some(at);
            }
            at = at.max(first + taken);
        }
        within.end.checked_sub(at).filter(|gap| *gap >= bytes).map(|_| at)
    }
}

/// What is said of a region in which there is no gap.
pub fn is_full(part: Part, bytes: u64) -> Error {
    Error::new(
        ErrorKind::NoSpace,
        format!(
            "there are no {bytes} free addresses in a row for {}: remove some that have fixed addresses, give less room, or \
             leave fixed out",
            part.name()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 32 * TIB;

    fn fixed(address: u64, units: u64) -> Fixed {
        Fixed { address, room_bytes: units * UNIT_BYTES }
    }

    #[test]
    fn nobody_gets_what_somebody_has_and_what_is_free_again_comes_late() {
        let mut places = Places::new(Part::Local, 0);
        let one = places.take(UNIT_BYTES).unwrap();
        let two = places.take(3 * UNIT_BYTES).unwrap();
        assert_eq!((one, two), (START, START + UNIT_BYTES));
        places.give_back(fixed(one, 1));
        assert_eq!(places.take(UNIT_BYTES).unwrap(), START + 4 * UNIT_BYTES, "not what is free since now");
        places.looks_from(Part::Local.addresses().end - UNIT_BYTES);
        let last = places.take(UNIT_BYTES).unwrap();
        assert_eq!(last, Part::Local.addresses().end - UNIT_BYTES);
        // At the end it begins anew: the gap in front is too small for two.
        assert_eq!(places.take(2 * UNIT_BYTES).unwrap(), START + 5 * UNIT_BYTES);
        places.looks_from(START);
        assert_eq!(places.take(UNIT_BYTES).unwrap(), START);
    }

    #[test]
    fn a_region_is_full_when_no_gap_is_large_enough() {
        let mut places = Places::new(Part::Shared, 40 * TIB);
        assert_eq!(places.take(8 * TIB), Some(40 * TIB));
        assert_eq!(places.take(UNIT_BYTES), None);
        places.give_back(Fixed { address: 40 * TIB, room_bytes: 8 * TIB });
        assert!(places.note(fixed(44 * TIB, 1)));
        assert_eq!(places.take(5 * TIB), None, "what is free is in two pieces");
        assert_eq!(places.take(4 * TIB), Some(40 * TIB));
        assert_eq!(is_full(Part::Shared, 5).kind, ErrorKind::NoSpace);
    }

    #[test]
    fn what_was_given_before_is_noted_once() {
        let mut places = Places::new(Part::Local, 0);
        assert!(places.note(fixed(START + UNIT_BYTES, 2)) && places.note(fixed(START + UNIT_BYTES, 2)));
        for other in [fixed(START, 2), fixed(START + UNIT_BYTES, 1), fixed(START + 2 * UNIT_BYTES, 4)] {
            assert!(!places.note(other), "{other:?} overlaps");
        }
        for bad in [fixed(0, 1), fixed(START + 1, 1), fixed(40 * TIB, 1), fixed(40 * TIB - UNIT_BYTES, 2)] {
            assert!(!places.note(bad), "{bad:?} is not of the part");
        }
        assert_eq!(places.take(2 * UNIT_BYTES), Some(START + 3 * UNIT_BYTES));
        places.give_back(fixed(START + UNIT_BYTES, 1));
        assert!(!places.note(fixed(START + UNIT_BYTES, 1)), "only the same is given back");
    }

    #[test]
    fn room_is_checked_before_and_after() {
        let asked = Fixed::asked(0).of_size(5 << 20);
        assert_eq!(asked, Fixed { address: 0, room_bytes: 6 << 20 });
        assert_eq!(Fixed::asked(0).of_size(0).room_bytes, UNIT_BYTES);
        asked.check_room(6 << 20).unwrap();
        assert!(asked.check_room((6 << 20) + 1).unwrap_err().message.contains("--room"));
        assert!(
            Fixed::asked(0).check_room(8 * TIB + 1).unwrap_err().message.contains("do not fit the region")
        );
        assert!(Fixed::asked(u64::MAX).check_room(1).is_err());
        let given = Fixed { address: START, room_bytes: 6 << 20 };
        given.check_given(Part::Local, 6 << 20).unwrap();
        for (bad, part, size) in [
            (given, Part::Shared, 1),
            (given, Part::Local, 7 << 20),
            (Fixed { address: 0x7fff_0000_0000, ..given }, Part::Local, 1),
            (Fixed { room_bytes: u64::MAX - 1, ..given }, Part::Local, 1),
            (Fixed::default(), Part::Local, 1),
        ] {
            assert_eq!(bad.check_given(part, size).unwrap_err().kind, ErrorKind::Protocol, "{bad:?}");
        }
    }
}
