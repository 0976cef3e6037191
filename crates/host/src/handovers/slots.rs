//! What is noted of each page: four words, in memory that the next process finds. It is mapped: a note makes no system call.
//!
//! ```text
//! word 0       state (8 bits), which of the next words is the number (8), and which the last one that was here (8); to which
//!              host the page was sent (upper 32)
//! words 1 to 3 numbers, of which two count at most
//! ```
//!
//! A note changes a number that does not count yet, and then word 0, which makes it count: a process that is killed at any
//! instruction leaves the note before, or this one.

use commonhold_coherence::HostId;
use commonhold_object::Result;
use commonhold_object::error::Doing;
use commonhold_sys::bits::BitFile;
use std::fs::File;
use std::io;
use std::sync::Arc;

const WORDS: u64 = 4;
/// Bytes of one.
pub const SLOT_BYTES: usize = WORDS as usize * 8;
/// Slots are mapped for so many pages at first.
const PAGES: u64 = 1 << 12;

/// What this host has of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    Nothing,
    Owned,
    Leaving,
    Sent(HostId),
    Kept,
}

/// A note.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    pub state: State,
    pub number: u64,
    /// Of the last hand-over to this host, or by it.
    pub seen: u64,
}

/// Where the numbers of a slot are: 0 to 2.
#[derive(Clone, Copy)]
struct Places {
    number: u64,
    seen: u64,
}

impl Places {
    fn of(first: u64) -> Places {
        let place = |shift: u32| (first >> shift & 0xff).min(2);
        Places { number: place(8), seen: place(16) }
    }

    /// A number that does not count.
    fn free(self) -> u64 {
        (0..3).find(|place| *place != self.number && *place != self.seen).expect("two of three are taken")
    }
}

fn first_word(state: State, places: Places) -> u64 {
    let (state, host) = match state {
        State::Nothing => (0, 0),
        State::Owned => (1, 0),
        State::Leaving => (2, 0),
        State::Kept => (3, 0),
        State::Sent(HostId(host)) => (4, host),
    };
    state | places.number << 8 | places.seen << 16 | u64::from(host) << 32
}

impl Slot {
    fn of(words: [u64; WORDS as usize]) -> Slot {
        let places = Places::of(words[0]);
        let state = match words[0] & 0xff {
            1 => State::Owned,
            2 => State::Leaving,
            3 => State::Kept,
            4 => State::Sent(HostId((words[0] >> 32) as u32)),
            _ => State::Nothing,
        };
        let at = |place: u64| words[1 + place as usize];
        Slot { state, number: at(places.number), seen: at(places.seen) }
    }

    /// What a process before wrote.
    pub fn decode(bytes: &[u8]) -> Slot {
        let word = |n: usize| u64::from_le_bytes(std::array::from_fn(|at| bytes[8 * n + at]));
        Slot::of(std::array::from_fn(word))
    }
}

/// The slots of an object, from a place in its memory on.
pub struct Slots {
    memory: Arc<File>,
    base: u64,
    /// For so many pages.
    mapped: Option<(u64, BitFile)>,
}

impl Slots {
    /// `base`: a multiple of 4096.
    pub fn new(memory: File, base: u64) -> Slots {
        Slots { memory: Arc::new(memory), base, mapped: None }
    }

    /// The memory was emptied.
    pub fn forget(&mut self) {
        self.mapped = None;
    }

    /// What is noted of a page.
    pub fn get(&mut self, page: u32) -> Result<Slot> {
        let words = self.words(page).doing("reading what is handed over")?;
        Ok(Slot::of(std::array::from_fn(|n| words.word_at(u64::from(page) * WORDS + n as u64))))
    }

    /// Notes a state and a number; the last one that was here stays, unless it `is_seen`: then it is this one.
    pub fn put(&mut self, page: u32, state: State, number: u64, is_seen: bool) -> Result<()> {
        let words = self.words(page).and_then(|words| {
            words.prepare(u64::from(page) * WORDS * 64, WORDS * 64)?;
            Ok(words)
        });
        let words = words.doing("noting what is handed over")?;
        let at = u64::from(page) * WORDS;
        let before = Places::of(words.word_at(at));
        let has = |place: &u64| words.word_at(at + 1 + place) == number;
        let place = [before.number, before.seen].into_iter().find(has).unwrap_or_else(|| {
            let free = before.free();
            words.set_word(at + 1 + free, number);
            free
        });
        let seen = if is_seen { place } else { before.seen };
        words.set_word(at, first_word(state, Places { number: place, seen }));
        Ok(())
    }

    /// The words, as far as this page at least.
    fn words(&mut self, page: u32) -> io::Result<&mut BitFile> {
        let page = u64::from(page);
        if self.mapped.as_ref().is_none_or(|(pages, _)| *pages <= page) {
            let pages = (page + 1).next_power_of_two().max(PAGES);
            self.mapped = Some((pages, BitFile::open(&self.memory, self.base, pages * WORDS * 64)?));
        }
        let (_, words) = self.mapped.as_mut().expect("mapped just now");
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots() -> Slots {
        let memory = commonhold_sys::frames::create("slots test", 1 << 30).unwrap();
        Slots::new(memory.into(), 4096)
    }

    /// All notes that follow each other, with numbers that repeat and such that do not: each is what the next process finds,
    /// and what it overwrites was of no use to the one before.
    #[test]
    fn each_note_replaces_the_one_before_at_once() {
        let states =
            [State::Owned, State::Leaving, State::Sent(HostId(u32::MAX)), State::Kept, State::Nothing];
        let mut slots = slots();
        let mut expected = Slot::default();
        let mut number = 0;
        for step in 0..200_u64 {
            number = [number, step, expected.seen, u64::MAX - step][(step / 3 % 4) as usize];
            let (state, is_seen) = (states[(step % 5) as usize], step % 7 == 0);
            let before: [u64; 4] = {
                let words = slots.words(9).unwrap();
                std::array::from_fn(|n| words.word_at(36 + n as u64))
            };
            slots.put(9, state, number, is_seen).unwrap();
            let after: [u64; 4] = {
                let words = slots.words(9).unwrap();
                std::array::from_fn(|n| words.word_at(36 + n as u64))
            };
            // Killed before the first word was written: as if nothing had happened.
            assert_eq!(Slot::of([before[0], after[1], after[2], after[3]]), expected);
            expected = Slot { state, number, seen: if is_seen { number } else { expected.seen } };
            assert_eq!(slots.get(9).unwrap(), expected);
        }
    }

    #[test]
    fn slots_of_pages_far_behind_are_mapped_when_they_are_needed() {
        let mut slots = slots();
        assert_eq!(slots.get(7).unwrap(), Slot::default());
        slots.put(7, State::Kept, 3, true).unwrap();
        let far = 3 * PAGES as u32;
        slots.put(far, State::Owned, 4, false).unwrap();
        assert_eq!(slots.get(7).unwrap(), Slot { state: State::Kept, number: 3, seen: 3 });
        assert_eq!(slots.get(far).unwrap(), Slot { state: State::Owned, number: 4, seen: 0 });
        let again = Slots::new(slots.memory.try_clone().unwrap(), 4096).get(far).unwrap();
        assert_eq!(again, Slot { state: State::Owned, number: 4, seen: 0 });
    }
}
