//! The pages of an object that most happens to, in bounded memory: a table of a few ways, in which a page that is new takes
//! the place of the coldest of its set and inherits its heat as what may be too much (*space-saving*, Metwally et al., in
//! each set). So a page with more than its set's mean heat is in the table, and no heat is told too low.

use commonhold_coherence::HostId;
use commonhold_object::{PageCount, limits::HOTTEST_PAGES};

/// Pages of one set: a fault compares so many at most.
const WAYS: usize = 8;
const MOST_SETS: usize = HOTTEST_PAGES / WAYS;

/// What is known of one page.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    page: u32,
    /// 0: nobody's.
    heat: u64,
    excess: u64,
    /// Faults to read, to write, of protection.
    pub faults: [u32; 3],
    /// Messages to and from other hosts.
    pub messages: u32,
    /// Times this host got the right to write.
    pub hand_overs: u32,
    /// Who owns it, as far as this host has seen.
    pub owner: Option<HostId>,
}

/// The table. It takes no memory before the first page, and grows with the pages that there are.
#[derive(Debug, Default)]
pub struct Hot {
    sets: Vec<[Entry; WAYS]>,
}

/// Pages in a row go to different sets, and those at any power of two apart do too.
fn set_of(page: u32, sets: usize) -> usize {
    (page.wrapping_mul(0x9e37_79b1) >> 16) as usize % sets
}

impl Hot {
    /// Something happened to the page: its entry.
    pub fn heat(&mut self, page: u32) -> &mut Entry {
        let (set, way) = self.place(page);
        let entry = &mut self.sets[set][way];
        if entry.page != page || entry.heat == 0 {
            let excess = entry.heat;
            *entry = Entry { page, heat: excess, excess, ..Entry::default() };
        }
        entry.heat += 1;
        entry
    }

    /// The page's entry, if it has one.
    pub fn known(&mut self, page: u32) -> Option<&mut Entry> {
        let sets = self.sets.len();
        let set = self.sets.get_mut(set_of(page, sets.max(1)))?;
        set.iter_mut().find(|entry| entry.heat > 0 && entry.page == page)
    }

    /// Where the page is, or is to be.
    fn place(&mut self, page: u32) -> (usize, usize) {
        if self.sets.is_empty() {
            self.sets.push([Entry::default(); WAYS]);
        }
        loop {
            let at = set_of(page, self.sets.len());
            let set = &self.sets[at];
            let known = set.iter().position(|entry| entry.heat > 0 && entry.page == page);
            if let Some(way) = known.or_else(|| set.iter().position(|entry| entry.heat == 0)) {
                return (at, way);
            }
            if self.sets.len() >= MOST_SETS {
                let coldest = (0..WAYS).min_by_key(|way| set[*way].heat).unwrap_or(0);
                return (at, coldest);
            }
            self.grow();
        }
    }

    fn grow(&mut self) {
        let doubled = (self.sets.len() * 2).min(MOST_SETS);
        let old = std::mem::replace(&mut self.sets, vec![[Entry::default(); WAYS]; doubled]);
        for entry in old.into_iter().flatten().filter(|entry| entry.heat > 0) {
            let set = &mut self.sets[set_of(entry.page, doubled)];
            // Two halves of a full set have room for it: the number of sets is a power of two.
            if let Some(free) = set.iter_mut().find(|free| free.heat == 0) {
                *free = entry;
            }
        }
    }

    /// The hottest first.
    pub fn hottest(&self, most: usize) -> Vec<PageCount> {
        let mut found: Vec<&Entry> = self.sets.iter().flatten().filter(|entry| entry.heat > 0).collect();
        found.sort_by_key(|entry| (std::cmp::Reverse(entry.heat - entry.excess), entry.page));
        found.into_iter().take(most).map(Entry::told).collect()
    }
}

impl Entry {
    fn told(&self) -> PageCount {
        PageCount {
            page: self.page.into(),
            heat: self.heat,
            excess: self.excess,
            read_faults: self.faults[0],
            write_faults: self.faults[1],
            protection_faults: self.faults[2],
            messages: self.messages,
            hand_overs: self.hand_overs,
            owner: self.owner.map(|host| host.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_pages_are_counted_exactly() {
        let mut hot = Hot::default();
        for round in 0..7u32 {
            for page in 0..60 {
                if page >= round * 8 {
                    hot.heat(page * 512);
                }
            }
        }
        let hottest = hot.hottest(100);
        assert_eq!(hottest.len(), 60);
        assert!(hottest.iter().all(|page| page.excess == 0 && page.heat == (page.page / 512 / 8 + 1).min(7)));
        assert!(hottest.is_sorted_by(|a, b| a.heat >= b.heat));
    }

    #[test]
    fn hot_pages_stay_in_a_flood_of_cold_ones_and_memory_is_bounded() {
        let mut hot = Hot::default();
        for page in 0..200_000u32 {
            hot.heat(1_000_000 + page);
            hot.heat(7 * (page % 20)); // each of the 20 gets 10,000
        }
        assert!(hot.sets.len() * WAYS <= HOTTEST_PAGES);
        let hottest = hot.hottest(20);
        assert!(hottest.iter().all(|page| page.page < 140), "{hottest:?}");
        assert!(
            hottest.iter().all(|page| page.heat >= 10_000 && page.heat - page.excess <= 10_000),
            "{hottest:?}"
        );
    }
}
