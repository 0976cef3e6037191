//! The address map: which range of addresses shows which range of which object.
//!
//! It is Accent's and Mach's address map (Shirriff, 7.2 and 8.2), kept as an ordered map of disjoint regions, so
//! that a sparse mapping of a terabyte costs one entry. Host and client both use it; a property test compares
//! it with a page-by-page model (`tests/address_map_model.rs`).

use crate::{Error, PAGE_SIZE_BYTES, Result, page_aligned};
use std::collections::BTreeMap;

/// A run of addresses that shows the object bytes from `offset` on. `value` says which object, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region<T> {
    /// First address; page-aligned.
    pub address: u64,
    /// Bytes; a multiple of the page size, never 0.
    pub length: u64,
    /// Offset in the object of what `address` shows; page-aligned.
    pub offset: u64,
    /// What it shows.
    pub value: T,
}

impl<T> Region<T> {
    /// The address after the last.
    pub fn end(&self) -> u64 {
        self.address + self.length
    }

    /// Number of the object's page that `address` shows. The address must lie in the region.
    pub fn page_at(&self, address: u64) -> u64 {
        (self.offset + (address - self.address)) / PAGE_SIZE_BYTES
    }
}

/// Disjoint regions in the order of their addresses.
#[derive(Clone, Debug)]
pub struct AddressMap<T> {
    regions: BTreeMap<u64, Region<T>>,
}

impl<T> Default for AddressMap<T> {
    fn default() -> Self {
        AddressMap { regions: BTreeMap::new() }
    }
}

impl<T: Clone> AddressMap<T> {
    /// An empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of regions.
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whether there is no region.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Checks that `address` and `length` name whole pages and do not wrap around.
    pub fn check_range(address: u64, length: u64) -> Result<()> {
        page_aligned("address", address)?;
        page_aligned("length", length)?;
        if length == 0 {
            return Err(Error::invalid("the length is zero: name at least one page"));
        }
        if address.checked_add(length).is_none() {
            return Err(Error::invalid(format!("address {address:#x} + length {length:#x} overflows")));
        }
        Ok(())
    }

    /// Adds a region. Refused, and nothing changed, when it is misaligned, empty, or overlaps another.
    pub fn insert(&mut self, region: Region<T>) -> Result<()> {
        Self::check_range(region.address, region.length)?;
        page_aligned("offset", region.offset)?;
        if region.offset.checked_add(region.length).is_none() {
            return Err(Error::invalid("offset + length overflows"));
        }
        if let Some(other) = self.overlapping(region.address, region.length).next() {
            return Err(Error::invalid(format!(
                "addresses {:#x}..{:#x} overlap the mapping at {:#x}..{:#x}",
                region.address,
                region.end(),
                other.address,
                other.end()
            )));
        }
        self.regions.insert(region.address, region);
        Ok(())
    }

    /// The region that holds `address`.
    pub fn find(&self, address: u64) -> Option<&Region<T>> {
        let (_, region) = self.regions.range(..=address).next_back()?;
        (address < region.end()).then_some(region)
    }

    /// The regions that share an address with `address .. address + length`, in order.
    pub fn overlapping(&self, address: u64, length: u64) -> impl Iterator<Item = &Region<T>> {
        let start = self.find(address).map_or(address, |r| r.address);
        self.regions.range(start..address.saturating_add(length)).map(|(_, r)| r)
    }

    /// All regions, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Region<T>> {
        self.regions.values()
    }

    /// Takes the addresses out of the map: a region inside goes, one that reaches out shrinks, one that
    /// encloses them is split in two (Shirriff, section 6, munmap). Gives what was taken out, in order.
    pub fn remove(&mut self, address: u64, length: u64) -> Result<Vec<Region<T>>> {
        Self::check_range(address, length)?;
        let end = address + length;
        let touched: Vec<u64> = self.overlapping(address, length).map(|r| r.address).collect();
        let mut taken = Vec::with_capacity(touched.len());
        for start in touched {
            let Some(region) = self.regions.remove(&start) else { continue };
            if region.address < address {
                self.keep(&region, region.address, address);
            }
            if region.end() > end {
                self.keep(&region, end, region.end());
            }
            taken.push(Self::part(&region, region.address.max(address), region.end().min(end)));
        }
        Ok(taken)
    }

    fn keep(&mut self, whole: &Region<T>, from: u64, to: u64) {
        self.regions.insert(from, Self::part(whole, from, to));
    }

    fn part(whole: &Region<T>, from: u64, to: u64) -> Region<T> {
        Region {
            address: from,
            length: to - from,
            offset: whole.offset + (from - whole.address),
            value: whole.value.clone(),
        }
    }

    /// How many regions there would be after `remove(address, length)`: for limits checked before the change.
    pub fn len_after_remove(&self, address: u64, length: u64) -> usize {
        let end = address.saturating_add(length);
        self.overlapping(address, length)
            .fold(self.len(), |n, r| n - 1 + usize::from(r.address < address) + usize::from(r.end() > end))
    }
}
