//! Which mapping is where in a process, as a value.

use std::collections::BTreeMap;
use std::ops::Range;

/// A run of addresses of one mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    end: u64,
    mapping: usize,
}

/// The addresses of a process. Mappings are numbers here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    /// By their first address. No two overlap.
    pieces: BTreeMap<u64, Piece>,
}

impl Space {
    /// The mapping at an address.
    pub(crate) fn at(&self, address: u64) -> Option<usize> {
        let (_, piece) = self.pieces.range(..=address).next_back()?;
        (address < piece.end).then_some(piece.mapping)
    }

    /// Those that lie whole within the range: what is mapped there now is one of them that grew, or
    /// lies in their place.
    pub(crate) fn within(&self, range: &Range<u64>) -> impl Iterator<Item = usize> {
        let end = range.end;
        self.pieces
            .range(range.clone())
            .filter(move |(_, piece)| piece.end <= end)
            .map(|(_, piece)| piece.mapping)
    }

    /// Notes a mapping. What was there is not there any more.
    pub(crate) fn put(&mut self, range: Range<u64>, mapping: usize) {
        self.cut(&range);
        self.pieces.insert(range.start, Piece { end: range.end, mapping });
    }

    fn cut(&mut self, range: &Range<u64>) {
        let before = self.pieces.range(..range.start).next_back().map(|(start, piece)| (*start, *piece));
        let within = self.pieces.range(range.clone()).map(|(start, piece)| (*start, *piece));
        let touched: Vec<(u64, Piece)> = before.into_iter().chain(within).collect();
        for (start, piece) in touched.into_iter().filter(|(_, piece)| piece.end > range.start) {
            self.pieces.remove(&start);
            if start < range.start {
                self.pieces.insert(start, Piece { end: range.start, ..piece });
            }
            if piece.end > range.end {
                self.pieces.insert(range.end, piece);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_mapping_that_came_last() {
        let mut space = Space::default();
        space.put(10..20, 1);
        space.put(30..40, 2);
        assert_eq!(
            [9, 10, 19, 20, 30, 39, 40].map(|at| space.at(at)),
            [None, Some(1), Some(1), None, Some(2), Some(2), None]
        );
        // Over the end of one and the beginning of another.
        space.put(15..35, 3);
        assert_eq!([14, 15, 34, 35].map(|at| space.at(at)), [Some(1), Some(3), Some(3), Some(2)]);
        // Into the middle.
        space.put(20..25, 4);
        assert_eq!([19, 20, 24, 25].map(|at| space.at(at)), [Some(3), Some(4), Some(4), Some(3)]);
        // Over all.
        assert_eq!(space.within(&(0..100)).collect::<Vec<_>>(), [1, 3, 4, 3, 2]);
        assert_eq!(space.within(&(16..40)).collect::<Vec<_>>(), [4, 3, 2]);
        space.put(0..100, 5);
        assert_eq!(space.pieces.len(), 1);
    }

    #[test]
    fn it_is_as_a_table_of_every_address() {
        let mut space = Space::default();
        let mut table = [None; 64];
        let mut random = 1_u64;
        for mapping in 0..2000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let start = random >> 58;
            let end = (start + 1 + ((random >> 50) & 15)).min(64);
            space.put(start..end, mapping);
            table[start as usize..end as usize].fill(Some(mapping));
            assert!((0..64).all(|at| space.at(at) == table[at as usize]), "{mapping}: {start}..{end}");
        }
    }
}
