//! Pages on their way home. A host takes a page from its page tables, drops the frame and sends the bytes; if it, the home or
//! what is between them fails before the bytes arrived, nobody has them. So the latest of them are also in memory that the
//! keeper keeps, in a ring. Each is there with the stamp of the grant that it ends: a home that begins anew asks by that
//! stamp, which it gave out once, so an entry that is too old is never taken for the newest version.
//!
//! An entry *waits* until the home has said that it has dealt with the page, and is not overwritten before. Whoever sends pages
//! home sees to it that no more wait than there is room for ([`OnWay::room`], [`OnWay::is_full`]). What waits for a home that
//! is away is *parked*: it stays as long as not too much does, and takes no room from what goes to others.

use commonhold_points as points;
use rustix::io::{pread, pwrite};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pages in the ring: half of it for what waits, half for what is parked.
const SLOTS: u64 = 4096;
/// While so many pages wait, none leaves unasked; of one object so many.
const MOST_UNASKED: usize = SLOTS as usize / 4;
const MOST_OF_OBJECT: usize = MOST_UNASKED / 2;
/// While so many wait, none leaves that is asked for: one more message has no more than the other eighth.
const MOST_ASKED: usize = SLOTS as usize / 2 - 512;
/// So many pages are not worth a question to their home.
const FEW: u64 = 64;
const PAGE: usize = commonhold_object::PAGE_SIZE_BYTES as usize;
const HEADER: usize = 64;
const BODIES: u64 = SLOTS * HEADER as u64;
/// In the header of an entry that does not wait any more, and where.
const DEALT_WITH: u64 = 1;
const DEALT_WITH_AT: u64 = 56;

/// Which page of which object it was, and under which grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    object: u128,
    page: u32,
    stamp: u64,
    /// Grows with each entry.
    number: u64,
    sum: u64,
    /// Its home has not dealt with it.
    waits: bool,
}

/// The ring.
pub struct OnWay {
    memory: Arc<OwnedFd>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    /// What that was when homes were to be asked.
    asked: u64,
    /// The slot that is looked at next.
    cursor: u64,
    /// Where the latest version of a page is.
    latest: HashMap<(u128, u32), u64>,
    /// What is in a slot, and its number.
    held: HashMap<u64, ((u128, u32), u64)>,
    /// Of objects, what waits.
    waiting: HashMap<u128, Waiting>,
    /// That wait for homes that are there, and for others.
    live: usize,
    parked: usize,
}

/// Entries of an object that its home has not dealt with yet.
#[derive(Default)]
struct Waiting {
    /// By number.
    slots: BTreeMap<u64, u64>,
    is_parked: bool,
}

/// New memory for it.
pub fn new_memory() -> io::Result<OwnedFd> {
    commonhold_sys::frames::create("commonhold-on-way", BODIES + SLOTS * PAGE as u64)
}

impl Entry {
    fn encode(&self) -> [u8; HEADER] {
        let Entry { object, page, stamp, number, sum, waits } = *self;
        let mut bytes = [0; HEADER];
        bytes[..16].copy_from_slice(&object.to_le_bytes());
        let dealt_with = if waits { 0 } else { DEALT_WITH };
        let words = [u64::from(page), stamp, number, sum, !number, dealt_with];
        words
            .iter()
            .zip(bytes[16..].chunks_mut(8))
            .for_each(|(word, at)| at.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Entry> {
        let word = |n: usize| u64::from_le_bytes(std::array::from_fn(|at| bytes[16 + 8 * n + at]));
        let object = u128::from_le_bytes(std::array::from_fn(|at| bytes[at]));
        let (number, check) = (word(2), word(4));
        // So many pages leave in no life: numbers can be counted on.
        (check == !number && number != 0 && number < 1 << 62).then(|| Entry {
            object,
            page: word(0) as u32,
            stamp: word(1),
            number,
            sum: word(3),
            waits: word(5) != DEALT_WITH,
        })
    }
}

/// Tells a page from what is left of another under it, where a host was killed while it wrote.
fn sum_of(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(8).fold(0xcbf2_9ce4_8422_2325, |sum, word| {
        let word = u64::from_le_bytes(std::array::from_fn(|at| word[at]));
        (sum ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
    })
}

fn body_of(slot: u64) -> u64 {
    BODIES + slot * PAGE as u64
}

impl OnWay {
    /// In that memory, with what a host before left there.
    pub fn open(memory: Arc<OwnedFd>) -> io::Result<OnWay> {
        let mut headers = vec![0; BODIES as usize];
        let read = pread(&memory, &mut headers, 0)?;
        let found = headers[..read].chunks_exact(HEADER).map(Entry::decode).zip(0..);
        let mut entries: Vec<(Entry, u64)> = found.filter_map(|(entry, slot)| Some((entry?, slot))).collect();
        entries.sort_by_key(|(entry, _)| entry.number);
        let mut state = State { next: 1, ..State::default() };
        for (entry, slot) in entries {
            (state.next, state.cursor) = (entry.number + 1, (slot + 1) % SLOTS);
            state.hold(slot, (entry.object, entry.page), entry.number);
            if !entry.waits {
                state.waits_no_more(entry.object, entry.number);
            }
        }
        // What became of the others their homes say when they are found.
        let all: Vec<u128> = state.waiting.keys().copied().collect();
        all.into_iter().for_each(|object| state.park(object));
        Ok(OnWay { memory, state: state.into() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page leaves, and waits; the oldest one that does not is forgotten for it.
    pub fn put(&self, object: u128, page: u32, stamp: u64, bytes: &[u8; PAGE]) -> io::Result<()> {
        let mut state = self.lock();
        let (number, sum) = (state.next, sum_of(bytes));
        state.next += 1;
        let slot = state.next_slot();
        state.drop_slot(slot);
        // The bytes first: over the header of another page their sum is wrong.
        points::pwrite(|| pwrite(&self.memory, bytes, body_of(slot)))?;
        let entry = Entry { object, page, stamp, number, sum, waits: true };
        points::pwrite(|| pwrite(&self.memory, &entry.encode(), slot * HEADER as u64))?;
        state.hold(slot, (object, page), number);
        Ok(())
    }

    /// Everything that has left so far has a smaller number.
    pub fn mark(&self) -> u64 {
        self.lock().next
    }

    /// The home has dealt with what left before that mark.
    pub fn has_come(&self, object: u128, mark: u64) {
        let mut state = self.lock();
        let Some(mut waiting) = state.waiting.remove(&object) else { return };
        let rest = waiting.slots.split_off(&mark);
        *state.count(waiting.is_parked) -= waiting.slots.len();
        for slot in waiting.slots.values() {
            // For the next process of this host. What cannot be noted waits longer there, and no more.
            let _ = points::pwrite(|| {
                pwrite(&self.memory, &DEALT_WITH.to_le_bytes(), slot * HEADER as u64 + DEALT_WITH_AT)
            });
        }
        if !rest.is_empty() {
            waiting.slots = rest;
            state.waiting.insert(object, waiting);
        }
    }

    /// All of the object has.
    pub fn has_all_come(&self, object: u128) {
        self.has_come(object, u64::MAX);
    }

    /// What waits of the object does so for a home that is away.
    pub fn park(&self, object: u128) {
        self.lock().park(object);
    }

    /// How many bytes of the object may leave unasked now.
    pub fn room(&self, object: u128) -> usize {
        let state = self.lock();
        let of_object = state.waiting.get(&object).map_or(0, |waiting| waiting.slots.len());
        MOST_OF_OBJECT.saturating_sub(of_object).min(MOST_UNASKED.saturating_sub(state.live)) * PAGE
    }

    /// Whether so much waits that homes should be asked what they have dealt with.
    pub fn is_filling(&self) -> bool {
        self.lock().is_filling()
    }

    /// Whether they should, and some more left since this was said.
    pub fn is_filling_more(&self) -> bool {
        let mut state = self.lock();
        let more = state.is_filling() && state.next - state.asked >= FEW;
        if more {
            state.asked = state.next;
        }
        more
    }

    /// Whether what is asked for must wait, too.
    pub fn is_full(&self) -> bool {
        self.lock().live >= MOST_ASKED
    }

    /// Of which objects anything waits for a home that is there.
    pub fn waiting(&self) -> Vec<u128> {
        let state = self.lock();
        state.waiting.iter().filter(|(_, waiting)| !waiting.is_parked).map(|(object, _)| *object).collect()
    }

    /// The bytes with which a page left when the grant of that stamp ended.
    pub fn find(&self, object: u128, page: u32, stamp: u64) -> Option<Box<[u8; PAGE]>> {
        let state = self.lock();
        let slot = *state.latest.get(&(object, page))?;
        let mut header = [0; HEADER];
        pread(&self.memory, &mut header, slot * HEADER as u64).ok()?;
        let entry = Entry::decode(&header)?;
        if (entry.object, entry.page, entry.stamp) != (object, page, stamp) {
            return None;
        }
        let mut bytes = Box::new([0; PAGE]);
        let read = pread(&self.memory, &mut bytes[..], body_of(slot)).ok()?;
        (read == PAGE && sum_of(&bytes[..]) == entry.sum).then_some(bytes)
    }
}

impl State {
    fn is_filling(&self) -> bool {
        self.live >= MOST_OF_OBJECT / 2
    }

    /// Where the next entry goes: around, past what waits. (If all of it waits, which who sends does not let happen, past none.)
    fn next_slot(&mut self) -> u64 {
        let first = self.cursor;
        while self.must_stay(self.cursor) {
            self.cursor = (self.cursor + 1) % SLOTS;
            if self.cursor == first {
                break;
            }
        }
        let slot = self.cursor;
        self.cursor = (slot + 1) % SLOTS;
        slot
    }

    fn must_stay(&self, slot: u64) -> bool {
        let Some(((object, _), number)) = self.held.get(&slot) else { return false };
        let waiting = self.waiting.get(object).filter(|waiting| waiting.slots.contains_key(number));
        waiting.is_some_and(|waiting| !waiting.is_parked || self.parked <= SLOTS as usize / 2)
    }

    fn hold(&mut self, slot: u64, what: (u128, u32), number: u64) {
        // Who sends a page again has got it again: the home has dealt with the version before.
        if let Some(before) = self.latest.insert(what, slot)
            && let Some((_, number)) = self.held.get(&before).copied()
        {
            self.waits_no_more(what.0, number);
        }
        self.held.insert(slot, (what, number));
        let waiting = self.waiting.entry(what.0).or_default();
        waiting.slots.insert(number, slot);
        let is_parked = waiting.is_parked;
        *self.count(is_parked) += 1;
    }

    fn drop_slot(&mut self, slot: u64) {
        if let Some((what, number)) = self.held.remove(&slot) {
            if self.latest.get(&what) == Some(&slot) {
                self.latest.remove(&what);
            }
            self.waits_no_more(what.0, number);
        }
    }

    fn waits_no_more(&mut self, object: u128, number: u64) {
        let Some(waiting) = self.waiting.get_mut(&object) else { return };
        let (waited, is_parked) = (waiting.slots.remove(&number).is_some(), waiting.is_parked);
        if waiting.slots.is_empty() {
            self.waiting.remove(&object);
        }
        *self.count(is_parked) -= usize::from(waited);
    }

    fn park(&mut self, object: u128) {
        let Some(waiting) = self.waiting.get_mut(&object) else { return };
        if !std::mem::replace(&mut waiting.is_parked, true) {
            let count = waiting.slots.len();
            self.live -= count;
            self.parked += count;
        }
    }

    fn count(&mut self, is_parked: bool) -> &mut usize {
        if is_parked { &mut self.parked } else { &mut self.live }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_is_found_by_its_stamp_also_by_the_next_host() {
        let memory = Arc::new(new_memory().unwrap());
        let ring = OnWay::open(memory.clone()).unwrap();
        let bytes = |n: u8| [n; PAGE];
        ring.put(7, 1, 100, &bytes(1)).unwrap();
        ring.put(7, 2, 101, &bytes(2)).unwrap();
        ring.put(7, 1, 102, &bytes(3)).unwrap();
        for ring in [ring, OnWay::open(memory.clone()).unwrap()] {
            assert_eq!(ring.find(7, 1, 102).as_deref(), Some(&bytes(3)));
            assert_eq!(ring.find(7, 2, 101).as_deref(), Some(&bytes(2)));
            assert!(ring.find(7, 1, 100).is_none() && ring.find(7, 2, 102).is_none());
            assert!(ring.find(8, 1, 102).is_none());
        }
        // A host that is killed before the header is written.
        let ring = OnWay::open(memory.clone()).unwrap();
        pwrite(&memory, &bytes(9), body_of(1)).unwrap();
        assert!(ring.find(7, 2, 101).is_none() && ring.find(7, 1, 102).is_some());
        ring.has_all_come(7);
        (0..SLOTS).for_each(|n| {
            ring.put(9, n as u32, n, &bytes(n as u8)).unwrap();
            ring.has_all_come(9);
        });
        assert!(ring.find(7, 1, 102).is_none(), "overwritten");
        assert_eq!(OnWay::open(memory).unwrap().find(9, 5, 5).as_deref(), Some(&bytes(5)));
    }

    /// Puts that page under the stamp that is its number, as an object whose home deals with everything at once.
    fn pass_by(ring: &OnWay, count: u64) {
        for n in 0..count {
            ring.put(1, n as u32, n, &[n as u8; PAGE]).unwrap();
            ring.has_all_come(1);
        }
    }

    #[test]
    fn what_waits_stays_however_much_passes_by() {
        let memory = Arc::new(new_memory().unwrap());
        let ring = OnWay::open(memory.clone()).unwrap();
        let put = |object, page: u32| ring.put(object, page, 9, &[page as u8; PAGE]).unwrap();
        let count =
            |object| (0..MOST_ASKED as u32).filter(|page| ring.find(object, *page, 9).is_some()).count();
        assert_eq!((ring.room(7), ring.is_filling()), (MOST_OF_OBJECT * PAGE, false));
        (0..MOST_OF_OBJECT as u32).for_each(|page| put(7, page));
        assert_eq!((ring.room(7), ring.room(8)), (0, MOST_OF_OBJECT * PAGE), "another's is not less by that");
        assert!(ring.is_filling() && !ring.is_full() && ring.is_filling_more() && !ring.is_filling_more());
        (0..MOST_OF_OBJECT as u32).for_each(|page| put(8, page));
        assert_eq!(ring.room(6), 0, "for none is more than for all");
        let mark = ring.mark();
        (MOST_OF_OBJECT as u32..MOST_ASKED as u32 / 2 + 256).for_each(|page| put(8, page));
        assert!(ring.is_full());
        pass_by(&ring, 2 * SLOTS);
        assert_eq!((count(7), count(8)), (MOST_OF_OBJECT, MOST_ASKED - MOST_OF_OBJECT));
        // The home has dealt with what left before that.
        ring.has_come(8, mark);
        assert!(!ring.is_full() && ring.waiting().len() == 2 && ring.room(6) == 0);
        pass_by(&ring, 2 * SLOTS);
        assert_eq!((count(7), count(8)), (MOST_OF_OBJECT, MOST_ASKED - 2 * MOST_OF_OBJECT));
        // Of a home that is away it stays, and is in nobody's way; with the next process of this host, too.
        ring.park(7);
        ring.park(8);
        assert_eq!((ring.room(6), ring.waiting(), ring.is_filling()), (MOST_OF_OBJECT * PAGE, vec![], false));
        for ring in [&ring, &OnWay::open(memory.clone()).unwrap()] {
            assert!(!ring.is_filling() && ring.waiting().is_empty());
            pass_by(ring, 2 * SLOTS);
            assert_eq!((count(7), count(8)), (MOST_OF_OBJECT, MOST_ASKED - 2 * MOST_OF_OBJECT));
        }
    }

    #[test]
    fn a_page_that_left_again_waits_once_and_too_much_overwrites_the_oldest() {
        let ring = OnWay::open(Arc::new(new_memory().unwrap())).unwrap();
        for stamp in 0..2 * MOST_OF_OBJECT as u64 {
            ring.put(7, 3, stamp, &[stamp as u8; PAGE]).unwrap();
        }
        assert!(!ring.is_filling() && ring.room(7) == (MOST_OF_OBJECT - 1) * PAGE);
        // More than who sends lets leave.
        let end = SLOTS + 20;
        (0..end).for_each(|n| ring.put(8, n as u32, n, &[n as u8; PAGE]).unwrap());
        assert!(ring.find(8, 0, 0).is_none() && ring.find(7, 3, 2 * MOST_OF_OBJECT as u64 - 1).is_none());
        assert!((20..end).all(|n| ring.find(8, n as u32, n).is_some()));
        ring.has_all_come(8);
        assert_eq!(ring.room(8), MOST_OF_OBJECT * PAGE, "nothing is counted any more");
    }

    #[test]
    fn entries_are_those_of_their_version() {
        let entry =
            Entry { object: 1 << 100, page: 2, stamp: 3, number: 4, sum: sum_of(&[5; PAGE]), waits: true };
        let kept = crate::formats::golden_of_the_state("on-way", &entry.encode());
        assert_eq!(Entry::decode(&kept), Some(entry));
    }
}
