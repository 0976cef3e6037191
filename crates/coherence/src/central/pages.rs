//! What a host may do with the pages of an object: two bits for a page where nothing is under way.

use crate::event::Access;
use crate::span::Span;
use std::collections::BTreeMap;

/// What the home wants back, and cannot have before the minimum hold is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wanted {
    Back(Access),
    Gone,
}

/// One page at this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Page {
    /// What processes here may do.
    pub access: Access,
    /// What the home was asked for, and has not answered.
    pub asked: Access,
    /// The most that faults here want.
    pub wants: Access,
    /// Minimum holds that are not over: granted a moment ago, it stays, so that the instruction that faulted retires.
    pub holds: u8,
    pub wanted: Option<Wanted>,
}

impl Page {
    fn at_rest(access: Access) -> Page {
        Page { access, asked: Access::None, wants: Access::None, holds: 0, wanted: None }
    }
}

/// Pages in one piece of the table.
const CHUNK_PAGES: u32 = u64::BITS;

/// Pages that nobody waits for, by their bits: which may be read, which of them written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Chunk {
    read: u64,
    write: u64,
}

/// The pages of one object at one host. Those of which there is nothing to say take no room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Pages {
    at_rest: BTreeMap<u32, Chunk>,
    /// Those where something is under way; within an event, others that it touched.
    busy: BTreeMap<u32, Page>,
}

impl Pages {
    /// What processes of this host may do with a page.
    pub fn access(&self, number: u32) -> Access {
        self.busy.get(&number).map_or_else(|| self.access_at_rest(number), |page| page.access)
    }

    fn access_at_rest(&self, number: u32) -> Access {
        let bit = 1 << (number % CHUNK_PAGES);
        match self.at_rest.get(&(number / CHUNK_PAGES)) {
            Some(chunk) if chunk.write & bit != 0 => Access::Write,
            Some(chunk) if chunk.read & bit != 0 => Access::Read,
            _ => Access::None,
        }
    }

    /// A page.
    pub fn get(&self, number: u32) -> Page {
        self.busy.get(&number).copied().unwrap_or_else(|| Page::at_rest(self.access_at_rest(number)))
    }

    /// A page, to be changed.
    pub fn get_mut(&mut self, number: u32) -> &mut Page {
        if !self.busy.contains_key(&number) {
            let page = Page::at_rest(self.access_at_rest(number));
            self.set_at_rest(number, Access::None);
            self.busy.insert(number, page);
        }
        self.busy.get_mut(&number).expect("it is there now")
    }

    fn set_at_rest(&mut self, number: u32, access: Access) {
        let (at, bit) = (number / CHUNK_PAGES, 1 << (number % CHUNK_PAGES));
        let mut chunk = self.at_rest.get(&at).copied().unwrap_or_default();
        chunk.read &= !bit;
        chunk.write &= !bit;
        chunk.read |= if access >= Access::Read { bit } else { 0 };
        chunk.write |= if access >= Access::Write { bit } else { 0 };
        if chunk == Chunk::default() {
            self.at_rest.remove(&at);
        } else {
            self.at_rest.insert(at, chunk);
        }
    }

    /// The end of an event that touched these pages: where nothing is under way, they take little room again.
    pub fn tidy(&mut self, touched: Span) {
        let end = touched.first.saturating_add(touched.count);
        let at_rest = |(number, page): (&u32, &Page)| {
            (*page == Page::at_rest(page.access)).then_some((*number, page.access))
        };
        let at_rest: Vec<(u32, Access)> = self.busy.range(touched.first..end).filter_map(at_rest).collect();
        for (number, access) in at_rest {
            self.busy.remove(&number);
            self.set_at_rest(number, access);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_to_rest_as_they_are() {
        let mut pages = Pages::default();
        let all = [Access::None, Access::Read, Access::Write];
        for number in 0..300 {
            let page = pages.get_mut(number);
            page.access = all[number as usize % 3];
            page.holds = u8::from(number % 7 == 0);
        }
        pages.tidy(Span::new(0, 300));
        assert_eq!(pages.busy.len(), 300_usize.div_ceil(7));
        for number in 0..300 {
            assert_eq!(pages.access(number), all[number as usize % 3]);
            assert_eq!(pages.get(number).holds > 0, number % 7 == 0);
            *pages.get_mut(number) = Page::at_rest(Access::None);
        }
        pages.tidy(Span::new(0, 300));
        assert_eq!(pages, Pages::default());
    }
}
