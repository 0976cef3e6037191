//! Every interleaving (loom) of arenas that meet: in a block that one has and another frees, in the
//! table of chunks, and in a place that a dead process left.

use commonhold_heap::{Arena, Layout, People, Refused, Words, visit};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use std::collections::BTreeMap;
use std::sync::Mutex;

const BYTES: u64 = 256 << 10;
const PAGE: u64 = 4096;
/// Where roots, arenas, and the table of chunks are.
const ROOTS: u64 = PAGE;
const ARENAS: u64 = 6 * PAGE;
const TABLE: u64 = 22 * PAGE;

/// Memory in which threads meet in a few words. In all others one is at a time, or they only read.
struct Shared {
    met: BTreeMap<u64, AtomicU64>,
    plain: Mutex<Vec<u64>>,
}

#[derive(Clone)]
struct Local(Arc<Shared>);

impl Local {
    /// The memory as it is, with these words to meet in.
    fn of(plain: Vec<u64>, met: &[u64]) -> Local {
        let met = met.iter().map(|at| (*at, AtomicU64::new(plain[*at as usize / 8]))).collect();
        Local(Arc::new(Shared { met, plain: Mutex::new(plain) }))
    }

    fn new() -> Local {
        Local::of(vec![0; BYTES as usize / 8], &[])
    }

    /// All words, by now.
    fn words(&self) -> Vec<u64> {
        let mut words = self.0.plain.lock().unwrap().clone();
        self.0.met.iter().for_each(|(at, word)| words[*at as usize / 8] = word.load(Ordering::SeqCst));
        words
    }

    fn change(&self, at: u64, by: impl Fn(u64) -> u64) -> u64 {
        let word = &mut self.0.plain.lock().unwrap()[at as usize / 8];
        let (old, new) = (*word, by(*word));
        *word = new;
        old
    }
}

impl Words for Local {
    fn load(&self, at: u64) -> u64 {
        match self.0.met.get(&at) {
            Some(word) => word.load(Ordering::Acquire),
            None => self.0.plain.lock().unwrap()[at as usize / 8],
        }
    }

    fn store(&self, at: u64, value: u64) {
        match self.0.met.get(&at) {
            Some(word) => word.store(value, Ordering::Release),
            None => _ = self.change(at, |_| value),
        }
    }

    fn exchange(&self, at: u64, old: u64, new: u64) -> Result<(), u64> {
        let Some(word) = self.0.met.get(&at) else {
            let seen = self.change(at, |seen| if seen == old { new } else { seen });
            return if seen == old { Ok(()) } else { Err(seen) };
        };
        fence(Ordering::SeqCst);
        word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }

    fn set(&self, at: u64, bits: u64) -> u64 {
        match self.0.met.get(&at) {
            Some(word) => word.fetch_or(bits, Ordering::AcqRel),
            None => self.change(at, |old| old | bits),
        }
    }

    fn clear(&self, at: u64, bits: u64) -> u64 {
        match self.0.met.get(&at) {
            Some(word) => word.fetch_and(!bits, Ordering::AcqRel),
            None => self.change(at, |old| old & !bits),
        }
    }

    fn pause(&self) {
        loom::thread::yield_now();
    }
}

/// A process; whoever is not this one has ended or not.
#[derive(Debug)]
struct One {
    me: u64,
    others_ended: bool,
}

impl People for One {
    fn host(&self) -> u64 {
        1
    }

    fn me(&self) -> u64 {
        self.me
    }

    fn has_ended(&self, process: u64) -> bool {
        // Those who mend have larger numbers, and live.
        self.others_ended && process < 10
    }

    fn host_has_ended(&self, _host: u64) -> bool {
        false
    }
}

fn layout() -> Layout {
    Layout::of(BYTES).unwrap()
}

fn join(memory: &Local, me: u64, others_ended: bool) -> Arena {
    Arena::join(memory, layout(), std::sync::Arc::new(One { me, others_ended })).unwrap()
}

fn blocks(memory: &Local) -> Vec<u64> {
    let mut blocks = Vec::new();
    let memory = Local::of(memory.words(), &[]);
    assert_eq!(visit(&memory, &layout(), |block| blocks.push(block.at)), []);
    blocks
}

/// The words of a block's bitmaps, and those that its owner is told by.
fn words_of(block: u64) -> [u64; 4] {
    let chunk = 23 * PAGE + (block - 23 * PAGE) / (16 * PAGE) * (16 * PAGE);
    let page = (block - chunk) / PAGE;
    let (used, freed) = (chunk + 8 * (16 + 4 * page), chunk + PAGE + 8 * 4 * page);
    [used, freed, chunk + PAGE, ARENAS + 64 + 8]
}

fn every(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn a_block_that_another_frees_from_a_word_while_its_owner_collects_is_free_once() {
    every(|| {
        let first = Local::new();
        let (mut owner, mut other) = (join(&first, 1, false), join(&first, 2, false));
        let root = owner.root(&first, "word").unwrap();
        assert_eq!(root, ROOTS + 8);
        let block = owner.allocate_into(&first, 0, 5000, root).unwrap();
        let mut met = words_of(block).to_vec();
        // The word, and the note of who frees.
        met.extend([root, ARENAS + 2 * 64 + 16, ARENAS + 2 * 64 + 24]);
        let memory = Local::of(first.words(), &met);
        let its = memory.clone();
        let frees = loom::thread::spawn(move || {
            other.free_from(&its, root).unwrap();
        });
        // Whoever needs pages collects.
        let next = owner.allocate(&memory, 0, 5000).unwrap();
        assert!(next != block || memory.load(root) == 0, "it is in the word still");
        let last = owner.allocate(&memory, 0, 5000).unwrap();
        frees.join().unwrap();
        assert_eq!(blocks(&memory), {
            let mut both = vec![next, last];
            both.sort();
            both
        });
        owner.allocate(&memory, 0, 5000).unwrap();
        assert_eq!(blocks(&memory).len(), 3);
    });
}

#[test]
fn of_two_who_free_a_block_one_is_refused() {
    every(|| {
        let first = Local::new();
        let mut owner = join(&first, 1, false);
        let (mut one, mut two) = (join(&first, 2, false), join(&first, 3, false));
        let (kept, block) = (owner.allocate(&first, 0, 64).unwrap(), owner.allocate(&first, 0, 64).unwrap());
        let memory = Local::of(first.words(), &words_of(block));
        let its = memory.clone();
        let frees = loom::thread::spawn(move || one.free(&its, block));
        let done = [two.free(&memory, block), frees.join().unwrap()];
        assert!(done.contains(&Ok(())) && done.contains(&Err(Refused::NotAllocated)), "{done:?}");
        assert_eq!(blocks(&memory), [kept]);
    });
}

#[test]
fn two_never_have_the_same_chunk() {
    every(|| {
        let first = Local::new();
        let (mut one, mut two) = (join(&first, 1, false), join(&first, 2, false));
        let table: Vec<u64> = (0..8).map(|chunk| TABLE + 8 * chunk).collect();
        let memory = Local::of(first.words(), &table);
        let its = memory.clone();
        let other = loom::thread::spawn(move || two.allocate(&its, 0, 60_000));
        let mine = one.allocate(&memory, 0, 60_000);
        // There are two, and a block of this size takes two, or one and nearly all of it.
        let both = [mine, other.join().unwrap()];
        let given: Vec<u64> = both.iter().filter_map(|done| done.ok()).collect();
        assert_eq!(blocks(&memory).len(), given.len());
        assert!(both.iter().all(|done| done.is_ok() || *done == Err(Refused::NoSpace)));
    });
}

#[test]
fn one_of_two_takes_the_place_of_the_dead() {
    every(|| {
        let first = Local::new();
        let mut dead = join(&first, 1, false);
        let kept = dead.allocate(&first, 0, 64).unwrap();
        drop(dead);
        let memory = Local::of(first.words(), &[ARENAS, ARENAS + 8, ARENAS + 64, ARENAS + 128]);
        let its = memory.clone();
        let other = loom::thread::spawn(move || {
            let mut arena = join(&its, 11, true);
            arena.allocate(&its, 0, 64).unwrap()
        });
        let mut arena = join(&memory, 12, true);
        let mine = arena.allocate(&memory, 0, 64).unwrap();
        let mut all = vec![kept, mine, other.join().unwrap()];
        all.sort();
        assert_eq!(blocks(&memory), all);
    });
}
