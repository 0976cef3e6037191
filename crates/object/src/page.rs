//! Page numbers and ranges of pages within one object.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// Bytes in a page: the unit of fault service, of dirtiness, and of what a sync writes.
pub const PAGE_SIZE_BYTES: u64 = 4096;

/// A run of pages of one object: `first`, and `count` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PageRange {
    /// Number of the first page within its object.
    pub first: u64,
    /// How many pages.
    pub count: u64,
}

impl PageRange {
    /// `count` pages from `first`.
    pub fn new(first: u64, count: u64) -> Self {
        PageRange { first, count }
    }

    /// The page after the last.
    pub fn end(self) -> u64 {
        self.first + self.count
    }

    /// Whether there is no page in it.
    pub fn is_empty(self) -> bool {
        self.count == 0
    }

    /// Whether `page` is in it.
    pub fn contains(self, page: u64) -> bool {
        page >= self.first && page < self.end()
    }

    /// The pages in both.
    pub fn intersect(self, other: PageRange) -> PageRange {
        let first = self.first.max(other.first);
        let end = self.end().min(other.end());
        PageRange { first, count: end.saturating_sub(first) }
    }

    /// Offset of the first byte within the object.
    pub fn offset_bytes(self) -> u64 {
        self.first * PAGE_SIZE_BYTES
    }

    /// Its length in bytes.
    pub fn length_bytes(self) -> u64 {
        self.count * PAGE_SIZE_BYTES
    }

    /// The pages that hold the bytes `offset .. offset + length` of an object of `size_bytes`. Refuses an empty
    /// range, an overflow, and a range that ends past the object's last page.
    pub fn covering(offset: u64, length: u64, size_bytes: u64) -> Result<PageRange> {
        if length == 0 {
            return Err(Error::invalid("the length is zero: name at least one byte"));
        }
        let end = offset
            .checked_add(length)
            .ok_or_else(|| Error::invalid(format!("offset {offset} + length {length} overflows")))?;
        let limit = pages_of(size_bytes) * PAGE_SIZE_BYTES;
        if end > limit {
            return Err(Error::invalid(format!(
                "bytes {offset}..{end} end past the object's {size_bytes} bytes: resize it or name a smaller range"
            )));
        }
        let first = offset / PAGE_SIZE_BYTES;
        Ok(PageRange { first, count: end.div_ceil(PAGE_SIZE_BYTES) - first })
    }
}

/// How many pages hold `bytes` bytes.
pub fn pages_of(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_SIZE_BYTES)
}

/// Refuses a `value` (called `what` in the error) that is not a multiple of the page size.
pub fn page_aligned(what: &str, value: u64) -> Result<()> {
    if value.is_multiple_of(PAGE_SIZE_BYTES) {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} {value:#x} is not a multiple of the page size, {PAGE_SIZE_BYTES}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covering_rounds_outwards_and_refuses_what_lies_outside() {
        assert_eq!(PageRange::covering(5000, 10, 8192).unwrap(), PageRange::new(1, 1));
        assert_eq!(PageRange::covering(4095, 2, 8192).unwrap(), PageRange::new(0, 2));
        assert_eq!(PageRange::covering(8192, 100, 9000).unwrap(), PageRange::new(2, 1));
        assert!(PageRange::covering(0, 0, 8192).is_err());
        assert!(PageRange::covering(0, 8193, 8192).is_err());
        assert!(PageRange::covering(u64::MAX, 2, 8192).is_err());
    }

    #[test]
    fn intersections() {
        let a = PageRange::new(10, 10);
        assert_eq!(a.intersect(PageRange::new(15, 100)), PageRange::new(15, 5));
        assert!(a.intersect(PageRange::new(20, 1)).is_empty());
        assert!(a.contains(19) && !a.contains(20));
    }
}
