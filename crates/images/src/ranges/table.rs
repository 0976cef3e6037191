//! All ranges of a registry in memory, and what may be done to them.

use super::{Arch, Owner, Region};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One image's addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// Whose: a name and a major version, such as `words@2`.
    pub name: String,
    /// For which processor.
    pub arch: Arch,
    /// Where.
    pub region: Region,
    /// The first address.
    pub first: u64,
    /// How many bytes are reserved.
    pub bytes: u64,
    /// In the heterogeneous region: images of one group are never in one process, and begin at one address.
    pub group: Option<String>,
}

impl Range {
    /// The first address behind it.
    pub fn end(&self) -> u64 {
        self.first.saturating_add(self.bytes)
    }
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// For whom.
    pub name: String,
    /// For which processor.
    pub arch: Arch,
    /// Where.
    pub region: Region,
    /// So many bytes now, and room to grow into.
    pub bytes: u64,
    /// What the first address is to be a multiple of.
    pub alignment: u64,
    /// In the heterogeneous region: with which others it is never in one process.
    pub group: Option<String>,
    /// New ranges are looked for from this part of the region on, of 65,536: so that they cannot be guessed.
    pub slide: u16,
}

/// Ranges begin and end on pages.
const PAGE_BYTES: u64 = 4096;
/// More than any image has: a tenth of the smallest region.
const MOST_BYTES: u64 = 1 << 39;

impl Wanted {
    pub(super) fn check(&self) -> Result<()> {
        let invalid = |text: String| Err(Error::Invalid(text));
        if self.name.is_empty() || self.name.len() > 4096 || self.name.contains('\0') {
            return invalid("the name of an image is 1 to 4096 bytes long and has no zero".into());
        }
        if self.bytes == 0 || self.bytes > MOST_BYTES {
            return invalid(format!(
                "an image has 1 to {MOST_BYTES} bytes, and {} wants {}",
                self.name, self.bytes
            ));
        }
        if !self.alignment.is_power_of_two() || self.alignment > 1 << 30 {
            return invalid(format!("an alignment is a power of two up to 1 GiB, not {}", self.alignment));
        }
        if self.group.is_some() != (self.region == Region::Heterogeneous) {
            return invalid(format!(
                "{}: images of the heterogeneous region, and no others, say which group of images they are never \
                 together with",
                self.name
            ));
        }
        Ok(())
    }

    /// With room to grow, on whole pages.
    fn reserved_bytes(&self) -> u64 {
        (self.bytes + self.bytes / 4).next_multiple_of(16 * PAGE_BYTES)
    }

    /// At an address that was chosen: just what is needed.
    fn exactly(&self, first: u64) -> Range {
        Range { bytes: self.bytes.next_multiple_of(16 * PAGE_BYTES), ..self.range(first) }
    }

    fn range(&self, first: u64) -> Range {
        Range {
            name: self.name.clone(),
            arch: self.arch,
            region: self.region,
            first,
            bytes: self.reserved_bytes(),
            group: self.group.clone(),
        }
    }
}

/// All ranges.
#[derive(Default)]
pub(super) struct Table {
    all: BTreeMap<String, Range>,
    changed: BTreeSet<String>,
}

impl Table {
    fn insert(&mut self, range: Range) {
        self.all.insert(range.name.clone(), range);
    }

    /// Takes a range as it was stored, by either owner. False, and not taken: nobody was ever given those addresses.
    pub fn insert_stored(&mut self, range: Range) -> bool {
        let end = range.first.checked_add(range.bytes);
        let is_given = [Owner::Machine, Owner::User].into_iter().any(|owner| {
            let addresses = range.region.addresses(owner);
            range.first >= addresses.start && end.is_some_and(|end| end <= addresses.end)
        });
        if is_given {
            self.insert(range);
        }
        is_given
    }

    pub fn by_address(self) -> Vec<Range> {
        let mut all: Vec<Range> = self.all.into_values().collect();
        all.sort_by(|one, other| (one.first, &one.name).cmp(&(other.first, &other.name)));
        all
    }

    /// What is different from what is stored.
    pub fn changes(&self) -> impl Iterator<Item = (&String, Option<&Range>)> {
        self.changed.iter().map(|name| (name, self.all.get(name)))
    }

    pub fn has(&self, range: &Range) -> bool {
        self.all.get(&range.name) == Some(range)
    }

    pub fn remove(&mut self, name: &str) -> bool {
        self.changed.insert(name.to_owned());
        self.all.remove(name).is_some()
    }

    pub fn trim(&mut self, name: &str, bytes: u64) {
        let bytes = bytes.checked_next_multiple_of(16 * PAGE_BYTES).unwrap_or(u64::MAX);
        if let Some(range) = self.all.get_mut(name).filter(|range| range.bytes > bytes) {
            range.bytes = bytes;
            self.changed.insert(name.to_owned());
        }
    }

    pub fn assign(&mut self, wanted: &Wanted, owner: Owner) -> Result<Range> {
        let suits = |range: &&Range| {
            let same =
                range.arch == wanted.arch && range.region == wanted.region && range.group == wanted.group;
            same && range.bytes >= wanted.bytes && range.first.is_multiple_of(wanted.alignment)
        };
        if let Some(range) = self.all.get(&wanted.name).filter(suits) {
            return Ok(range.clone());
        }
        let full = || Error::Full {
            wanted: wanted.name.clone(),
            bytes: wanted.reserved_bytes(),
            region: wanted.region.name(),
        };
        if let Some(first) = self.base_of_group(wanted) {
            return match self.claim_range(wanted, wanted.range(first), owner) {
                Err(Error::Invalid(_)) => Err(full()),
                outcome => outcome,
            };
        }
        let first = self.find(wanted, owner).ok_or_else(full)?;
        Ok(self.put(wanted.range(first)))
    }

    pub fn claim(&mut self, wanted: &Wanted, first: u64, owner: Owner) -> Result<Range> {
        self.claim_range(wanted, wanted.exactly(first), owner)
    }

    fn claim_range(&mut self, wanted: &Wanted, range: Range, owner: Owner) -> Result<Range> {
        let addresses = wanted.region.addresses(owner);
        let first = range.first;
        if first < addresses.start
            || range.end() > addresses.end
            || !first.is_multiple_of(wanted.alignment.max(PAGE_BYTES))
        {
            return Err(Error::Invalid(format!(
                "{first:#x} is no address for {}: the {} region goes from {:#x} to {:#x}, in steps of {:#x}",
                wanted.name,
                wanted.region.name(),
                addresses.start,
                addresses.end,
                wanted.alignment.max(PAGE_BYTES),
            )));
        }
        if let Some(base) = self.base_of_group(wanted).filter(|base| *base != first) {
            return Err(Error::Invalid(format!(
                "{} is of the group {}, whose images all begin at {base:#x} here, and not at {first:#x}: make it here",
                wanted.name,
                wanted.group.as_deref().unwrap_or_default()
            )));
        }
        if let Some(holder) =
            self.in_the_way(wanted).find(|other| other.first < range.end() && first < other.end())
        {
            return Err(Error::Taken {
                wanted: wanted.name.clone(),
                first,
                end: range.end(),
                holder: holder.name.clone(),
            });
        }
        Ok(self.put(range))
    }

    fn put(&mut self, range: Range) -> Range {
        self.changed.insert(range.name.clone());
        self.insert(range.clone());
        range
    }

    /// All images of a group begin at one address: whatever includes them, the kernel does not let a second one in.
    fn base_of_group(&self, wanted: &Wanted) -> Option<u64> {
        let same = |other: &&Range| other.arch == wanted.arch && other.name != wanted.name;
        let group = wanted.group.as_ref()?;
        self.all
            .values()
            .filter(same)
            .find(|other| other.group.as_ref() == Some(group))
            .map(|other| other.first)
    }

    /// Ranges that this one may not overlap.
    fn in_the_way(&self, wanted: &Wanted) -> impl Iterator<Item = &Range> {
        let together = |other: &&Range| other.group.is_none() || other.group != wanted.group;
        self.all.values().filter(move |other| {
            other.arch == wanted.arch
                && other.region == wanted.region
                && other.name != wanted.name
                && together(other)
        })
    }

    /// The first run that is long enough, from the slide on, and then from the region's start.
    fn find(&self, wanted: &Wanted, owner: Owner) -> Option<u64> {
        let addresses = wanted.region.addresses(owner);
        let bytes = wanted.reserved_bytes();
        // A group has room for larger ones than its first.
        const GROUP_BYTES: u64 = 1 << 35;
        let step = match wanted.region {
            Region::Homogeneous => wanted.alignment.max(16 * PAGE_BYTES),
            Region::Heterogeneous => GROUP_BYTES,
        };
        let mut taken: Vec<(u64, u64)> =
            self.in_the_way(wanted).map(|other| (other.first, other.end())).collect();
        taken.sort_unstable();
        let slide = (addresses.end - addresses.start) / 65_536 * u64::from(wanted.slide);
        let from = |start: u64| {
            let mut at = start.next_multiple_of(step);
            for (first, end) in taken.iter().filter(|(_, end)| *end > start) {
                if at + bytes <= *first {
                    break;
                }
                at = at.max(end.next_multiple_of(step));
            }
            (at + bytes <= addresses.end).then_some(at)
        };
        from(addresses.start + slide).or_else(|| from(addresses.start))
    }
}
