//! A contiguous run of pages.

/// Pages that follow one another: of physical memory, or of swap space. An arena has at most
/// 2^32 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    /// Number of the first page.
    pub start: u32,
    /// How many pages.
    pub pages: u32,
}

impl Run {
    /// The run of `pages` pages from page `start` on.
    pub const fn new(start: u32, pages: u32) -> Run {
        Run { start, pages }
    }

    /// Number of the first page after the run.
    pub const fn end(self) -> u32 {
        self.start + self.pages
    }

    /// Whether the two have a page in common.
    pub const fn overlaps(self, other: Run) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// Whether all of `other` lies within the run.
    pub const fn contains(self, other: Run) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }

    /// `pages` pages of the run from its page `offset` on.
    pub const fn part(self, offset: u32, pages: u32) -> Run {
        Run { start: self.start + offset, pages }
    }

    /// The run cut into pieces of at most `pages` pages, in order.
    pub fn chunks(self, pages: u32) -> impl Iterator<Item = Run> {
        let step = pages.max(1);
        (0..self.pages.div_ceil(step)).map(move |n| self.part(n * step, step.min(self.pages - n * step)))
    }

    /// Where `pages` pages fit in the run so that the first is a multiple of `align`.
    pub(crate) fn place(self, pages: u32, align: u32) -> Option<u32> {
        let start = self.start.checked_next_multiple_of(align)?;
        (u64::from(start) + u64::from(pages) <= u64::from(self.end())).then_some(start)
    }
}
