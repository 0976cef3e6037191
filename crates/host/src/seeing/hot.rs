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
    excess: u64,
    /// Faults to read, to write, of protection.
    pub faults: [u32; 3],
    /// Bytes sent to other hosts, and come from them.
    pub bytes: u64,
    /// Messages to and from other hosts, by kind.
    pub messages: [u32; 3],
    /// Messages from this host to itself.
    pub local: u32,
    /// Requests of other hosts that were passed on.
    pub forwards: u32,
    /// Times this host got the right to write.
    pub hand_overs: u32,
    /// Who owns it, as far as this host has seen.
    pub owner: Option<HostId>,
}

/// Pages that share their places. What every fault looks at lies together, apart from what it changes in one entry.
#[derive(Clone, Copy, Debug, Default)]
struct Set {
    pages: [u32; WAYS],
    /// 0: nobody's.
    heats: [u64; WAYS],
    entries: [Entry; WAYS],
}

impl Set {
    fn way_of(&self, page: u32) -> Option<usize> {
        (0..WAYS).find(|way| self.pages[*way] == page && self.heats[*way] > 0)
    }

    fn free(&self) -> Option<usize> {
        self.heats.iter().position(|heat| *heat == 0)
    }
}

/// The table. It takes no memory before the first page, and grows with the pages that there are.
#[derive(Debug, Default)]
pub struct Hot {
    sets: Vec<Set>,
}

/// Pages in a row go to different sets, and those at any power of two apart do too.
fn set_of(page: u32, sets: usize) -> usize {
    (page.wrapping_mul(0x9e37_79b1) >> 16) as usize % sets
}

impl Hot {
    /// Something happened to the page: its entry.
    pub fn heat(&mut self, page: u32) -> &mut Entry {
        let (set, way) = self.place(page);
        let set = &mut self.sets[set];
        if set.pages[way] != page || set.heats[way] == 0 {
            set.pages[way] = page;
            set.entries[way] = Entry { excess: set.heats[way], ..Entry::default() };
        }
        set.heats[way] += 1;
        &mut set.entries[way]
    }

    /// The page's entry, if it has one.
    pub fn known(&mut self, page: u32) -> Option<&mut Entry> {
        let sets = self.sets.len();
        let set = self.sets.get_mut(set_of(page, sets.max(1)))?;
        set.way_of(page).map(|way| &mut set.entries[way])
    }

    /// Where the page is, or is to be.
    fn place(&mut self, page: u32) -> (usize, usize) {
        if self.sets.is_empty() {
            self.sets.push(Set::default());
        }
        loop {
            let at = set_of(page, self.sets.len());
            let set = &self.sets[at];
            if let Some(way) = set.way_of(page).or_else(|| set.free()) {
                return (at, way);
            }
            if self.sets.len() >= MOST_SETS {
                let coldest = (0..WAYS).min_by_key(|way| set.heats[*way]).unwrap_or(0);
                return (at, coldest);
            }
            self.grow();
        }
    }

    fn grow(&mut self) {
        let doubled = (self.sets.len() * 2).min(MOST_SETS);
        let old = std::mem::replace(&mut self.sets, vec![Set::default(); doubled]);
        for from in old {
            for way in (0..WAYS).filter(|way| from.heats[*way] > 0) {
                let set = &mut self.sets[set_of(from.pages[way], doubled)];
                // Two halves of a full set have room for it: the number of sets is a power of two.
                if let Some(free) = set.free() {
                    set.pages[free] = from.pages[way];
                    set.heats[free] = from.heats[way];
                    set.entries[free] = from.entries[way];
                }
            }
        }
    }

    /// The hottest first.
    pub fn hottest(&self, most: usize) -> Vec<PageCount> {
        let of_set = |set: &Set| {
            (0..WAYS).filter(|way| set.heats[*way] > 0).map(|way| set.told(way)).collect::<Vec<_>>()
        };
        let mut found: Vec<PageCount> = self.sets.iter().flat_map(of_set).collect();
        found.sort_by_key(|told| (std::cmp::Reverse(told.heat - told.excess), told.page));
        found.truncate(most);
        found
    }
}

impl Set {
    fn told(&self, way: usize) -> PageCount {
        let entry = &self.entries[way];
        PageCount {
            page: self.pages[way].into(),
            heat: self.heats[way],
            excess: entry.excess,
            read_faults: entry.faults[0],
            write_faults: entry.faults[1],
            protection_faults: entry.faults[2],
            messages: entry.messages.iter().sum(),
            by_kind: entry.messages,
            local: entry.local,
            forwards: entry.forwards,
            bytes: entry.bytes,
            hand_overs: entry.hand_overs,
            owner: entry.owner.map(|host| host.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_takes_few_bytes() {
        assert!(size_of::<Set>() / WAYS <= 80, "{}", size_of::<Set>() / WAYS);
    }

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
