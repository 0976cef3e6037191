//! Bytes of an object.

use serde::{Deserialize, Serialize};

/// So many ranges are told of at once: of more the nearest become one, with what lies between them.
pub const MOST_RANGES: usize = 8;

/// Bytes that follow each other; one at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(u64, u64)", into = "(u64, u64)")]
pub struct Range {
    first: u64,
    end: u64,
}

impl Range {
    /// All bytes that an object can have.
    pub const ALL: Range = Range { first: 0, end: u64::MAX };

    /// So many bytes from there on. None: there are no such bytes.
    pub fn new(first: u64, length: u64) -> Option<Range> {
        let end = first.checked_add(length)?;
        (length > 0).then_some(Range { first, end })
    }

    /// The first byte.
    pub fn first(self) -> u64 {
        self.first
    }

    /// The byte after the last.
    pub fn end(self) -> u64 {
        self.end
    }

    /// Whether there is a byte in both.
    pub fn overlaps(self, other: Range) -> bool {
        self.first < other.end && other.first < self.end
    }
}

impl TryFrom<(u64, u64)> for Range {
    type Error = &'static str;

    fn try_from((first, end): (u64, u64)) -> Result<Range, Self::Error> {
        if first < end { Ok(Range { first, end }) } else { Err("a range without bytes") }
    }
}

impl From<Range> for (u64, u64) {
    fn from(range: Range) -> (u64, u64) {
        (range.first, range.end)
    }
}

/// A few ranges, in order and apart from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<Range>", into = "Vec<Range>")]
pub struct Ranges(Vec<Range>);

impl Ranges {
    /// Adds a range. Where there are too many it is more than that.
    pub fn add(&mut self, range: Range) {
        let (mut first, mut end) = (range.first, range.end);
        self.0.retain(|other| {
            let touches = other.first <= end && first <= other.end;
            if touches {
                (first, end) = (first.min(other.first), end.max(other.end));
            }
            !touches
        });
        let at = self.0.partition_point(|other| other.first < first);
        self.0.insert(at, Range { first, end });
        if self.0.len() > MOST_RANGES {
            let gap = |at: &usize| self.0[at + 1].first - self.0[*at].end;
            let nearest = (0..self.0.len() - 1).min_by_key(gap).unwrap_or(0);
            self.0[nearest].end = self.0.remove(nearest + 1).end;
        }
    }

    /// Adds all of those.
    pub fn add_all(&mut self, others: &Ranges) {
        others.0.iter().for_each(|range| self.add(*range));
    }

    /// Whether one of them has a byte of that.
    pub fn overlap(&self, range: Range) -> bool {
        self.0.iter().any(|one| one.overlaps(range))
    }
}

impl FromIterator<Range> for Ranges {
    fn from_iter<I: IntoIterator<Item = Range>>(all: I) -> Ranges {
        let mut ranges = Ranges::default();
        all.into_iter().for_each(|range| ranges.add(range));
        ranges
    }
}

impl TryFrom<Vec<Range>> for Ranges {
    type Error = &'static str;

    fn try_from(all: Vec<Range>) -> Result<Ranges, Self::Error> {
        if all.len() > MOST_RANGES { Err("too many ranges") } else { Ok(all.into_iter().collect()) }
    }
}

impl From<Ranges> for Vec<Range> {
    fn from(ranges: Ranges) -> Vec<Range> {
        ranges.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, length: u64) -> Range {
        Range::new(first, length).unwrap()
    }

    #[test]
    fn bytes_count_and_not_pages() {
        assert!(range(0, 8).overlaps(range(7, 1)) && !range(0, 8).overlaps(range(8, 1)));
        assert!(Range::ALL.overlaps(range(u64::MAX - 1, 1)));
        assert_eq!((Range::new(3, 0), Range::new(u64::MAX, 2)), (None, None));
    }

    #[test]
    fn ranges_that_touch_are_one_and_no_more_than_a_few_are_kept() {
        let mut ranges: Ranges = [range(8, 4), range(0, 4), range(4, 4)].into_iter().collect();
        assert_eq!(ranges.0, [range(0, 12)]);
        let mut model: Vec<Range> = vec![range(0, 12)];
        for step in 1..200_u64 {
            // In no order.
            let next = range(step * 7919 % 4001 * 3, 2);
            ranges.add(next);
            model.push(next);
            assert!(ranges.0.len() <= MOST_RANGES);
            assert!(ranges.0.windows(2).all(|two| two[0].end < two[1].first), "{ranges:?}");
        }
        assert!(model.into_iter().all(|one| ranges.overlap(one)), "none is forgotten");
    }

    #[test]
    fn what_another_host_says_is_checked() {
        assert!(Range::try_from((4, 4)).is_err() && Range::try_from((5, 4)).is_err());
        assert!(Ranges::try_from(vec![range(0, 1); MOST_RANGES + 1]).is_err());
    }
}
