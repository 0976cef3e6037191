//! Hosts and runs of pages.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A host of the cluster: a small number, given anew to whoever comes back after a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostId(pub u32);

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {}", self.0)
    }
}

/// A run of scheduler pages: numbers within the object, in units of the object's scheduler page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span {
    /// The first page.
    pub first: u32,
    /// How many.
    pub count: u32,
}

impl Span {
    /// `count` pages from `first`.
    pub fn new(first: u32, count: u32) -> Span {
        Span { first, count }
    }

    /// One page.
    pub fn one(page: u32) -> Span {
        Span { first: page, count: 1 }
    }

    /// The pages.
    pub fn pages(self) -> std::ops::Range<u32> {
        self.first..self.first + self.count
    }

    /// Whether `page` is one of them.
    pub fn contains(self, page: u32) -> bool {
        self.pages().contains(&page)
    }

    /// The scheduler pages that hold these bytes: a smaller request is rounded up to one, a larger one covers several
    /// (section 3.1 of the paper).
    pub fn covering(offset_bytes: u64, length_bytes: u64, page_bytes: u64) -> Span {
        let first = offset_bytes / page_bytes;
        let end = (offset_bytes + length_bytes.max(1)).div_ceil(page_bytes);
        Span { first: first as u32, count: (end - first) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_rounded_to_scheduler_pages() {
        assert_eq!(Span::covering(4096, 4096, 16384), Span::one(0), "smaller: rounded up");
        assert_eq!(Span::covering(65536, 65536, 4096), Span::new(16, 16), "larger: several pages");
        assert_eq!(Span::covering(5000, 1, 4096), Span::one(1));
        assert_eq!(Span::covering(4095, 2, 4096), Span::new(0, 2));
    }
}
