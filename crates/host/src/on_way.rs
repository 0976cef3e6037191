//! Pages on their way home. A host takes a page from its page tables, drops the frame and sends the bytes; if it, the home or
//! what is between them fails before the bytes arrived, nobody has them. So the latest of them are also in memory that the
//! keeper keeps, in a ring. Each is there with the stamp of the grant that it ends: a home that begins anew asks by that
//! stamp, which it gave out once, so an entry that is too old is never taken for the newest version.

use rustix::io::{pread, pwrite};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// Pages in the ring.
const SLOTS: u64 = 2048;
/// Bytes of pages that leave unasked while so many have not arrived: half of the ring. The other half is for pages that are
/// asked for meanwhile.
pub const MOST_UNASKED_BYTES: usize = SLOTS as usize / 2 * PAGE;
const PAGE: usize = commonhold_object::PAGE_SIZE_BYTES as usize;
const HEADER: usize = 64;
const BODIES: u64 = SLOTS * HEADER as u64;

/// Which page of which object it was, and under which grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    object: u128,
    page: u32,
    stamp: u64,
    /// Grows with each entry.
    number: u64,
    sum: u64,
}

/// The ring.
pub struct OnWay {
    memory: Arc<OwnedFd>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    /// Where the latest version of a page is.
    latest: HashMap<(u128, u32), u64>,
    held: HashMap<u64, (u128, u32)>,
}

/// New memory for it.
pub fn new_memory() -> io::Result<OwnedFd> {
    commonhold_sys::frames::create("commonhold-on-way", BODIES + SLOTS * PAGE as u64)
}

impl Entry {
    fn encode(&self) -> [u8; HEADER] {
        let Entry { object, page, stamp, number, sum } = *self;
        let mut bytes = [0; HEADER];
        bytes[..16].copy_from_slice(&object.to_le_bytes());
        let words = [u64::from(page), stamp, number, sum, !number];
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
        (check == !number && number != 0).then(|| Entry {
            object,
            page: word(0) as u32,
            stamp: word(1),
            number,
            sum: word(3),
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
        let mut state =
            State { next: entries.last().map_or(1, |(entry, _)| entry.number + 1), ..State::default() };
        for (entry, slot) in entries {
            state.hold(slot, (entry.object, entry.page));
        }
        Ok(OnWay { memory, state: state.into() })
    }

    /// A page leaves; the oldest one is forgotten for it.
    pub fn put(&self, object: u128, page: u32, stamp: u64, bytes: &[u8; PAGE]) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, sum) = (state.next, sum_of(bytes));
        state.next += 1;
        let slot = number % SLOTS;
        state.drop_slot(slot);
        // The bytes first: over the header of another page their sum is wrong.
        pwrite(&self.memory, bytes, body_of(slot))?;
        let entry = Entry { object, page, stamp, number, sum };
        pwrite(&self.memory, &entry.encode(), slot * HEADER as u64)?;
        state.hold(slot, (object, page));
        Ok(())
    }

    /// The bytes with which a page left when the grant of that stamp ended.
    pub fn find(&self, object: u128, page: u32, stamp: u64) -> Option<Box<[u8; PAGE]>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn hold(&mut self, slot: u64, what: (u128, u32)) {
        self.latest.insert(what, slot);
        self.held.insert(slot, what);
    }

    fn drop_slot(&mut self, slot: u64) {
        if let Some(what) = self.held.remove(&slot)
            && self.latest.get(&what) == Some(&slot)
        {
            self.latest.remove(&what);
        }
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
        pwrite(&memory, &bytes(9), body_of(2)).unwrap();
        assert!(ring.find(7, 2, 101).is_none() && ring.find(7, 1, 102).is_some());
        (0..SLOTS).for_each(|n| ring.put(9, n as u32, n, &bytes(n as u8)).unwrap());
        assert!(ring.find(7, 1, 102).is_none(), "overwritten");
        assert_eq!(OnWay::open(memory).unwrap().find(9, 5, 5).as_deref(), Some(&bytes(5)));
    }
}
