//! Which pages of the data area are free. Only the host knows.

use crate::layout::DATA_PAGES;

/// The lowest pages are given first, so that memory that was never needed is never there.
#[derive(Debug)]
pub(crate) struct Area {
    is_taken: [bool; DATA_PAGES as usize],
}

impl Area {
    pub fn new() -> Area {
        Area { is_taken: [false; DATA_PAGES as usize] }
    }

    /// So many pages in a row; the first of them.
    pub fn allocate(&mut self, count: u32) -> Option<u32> {
        let mut first = 0;
        for page in 0..DATA_PAGES {
            if self.is_taken[page as usize] {
                first = page + 1;
            } else if page + 1 - first == count {
                self.mark(first, count, true);
                return Some(first);
            }
        }
        None
    }

    pub fn free(&mut self, first: u32, count: u32) {
        self.mark(first, count, false);
    }

    fn mark(&mut self, first: u32, count: u32, taken: bool) {
        self.is_taken[first as usize..(first + count) as usize].fill(taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_belong_to_one_at_a_time() {
        let mut area = Area::new();
        assert_eq!([area.allocate(1), area.allocate(32), area.allocate(1)], [Some(0), Some(1), Some(33)]);
        area.free(1, 32);
        assert_eq!([area.allocate(33), area.allocate(31), area.allocate(1)], [Some(34), Some(1), Some(32)]);
        assert_eq!(area.allocate(DATA_PAGES - 66), None);
        assert_eq!(area.allocate(DATA_PAGES - 67), Some(67));
        assert_eq!(area.allocate(1), None);
    }
}
