//! A process that dies after any step leaves a heap that the next one mends: every block is in a
//! list, or in a word or a book of a program, and whole.

use crate::model::{Crowd, Dice, Shared, join};
use commonhold_heap::{Arena, Layout, Refused};
use std::cell::RefCell;
use std::collections::BTreeSet;

const BYTES: u64 = 640 << 10;
const LIVES: u64 = 1;
const DIES: u64 = 9;
const MENDS: u64 = 20;

/// What a process knows of the blocks that it has: with one that it is just freeing.
#[derive(Default)]
struct Book {
    has: BTreeSet<u64>,
    frees: Option<u64>,
}

impl Book {
    fn allocate(&mut self, m: &Shared, arena: &mut Arena, bytes: u64) -> u64 {
        let at = arena.allocate(m, 0, bytes).unwrap();
        assert!(self.has.insert(at));
        at
    }

    fn free(&mut self, m: &Shared, arena: &mut Arena, at: u64) {
        self.frees = Some(at);
        arena.free(m, at).unwrap();
        self.has.remove(&at);
        self.frees = None;
    }
}

/// A heap that somebody who lives has blocks in, and words of roots: the first holds one of its blocks.
struct Prepared {
    memory: Shared,
    layout: Layout,
    living: Arena,
    its: Vec<u64>,
    roots: Vec<u64>,
}

fn prepare() -> Prepared {
    let (memory, layout) = (Shared::new(BYTES), Layout::of(BYTES).unwrap());
    let mut living = join(&memory, layout, LIVES, &[]);
    let roots: Vec<u64> = (0..6).map(|n| living.root(&memory, &format!("root {n}")).unwrap()).collect();
    living.allocate_into(&memory, 0, 1000, roots[0]).unwrap();
    let its = (0..4).map(|_| living.allocate(&memory, 0, 64).unwrap()).collect();
    Prepared { memory, layout, living, its, roots }
}

/// What dies: everything that a process does with a heap. `theirs`: blocks of the living that it frees.
fn live(prepared: &Prepared, book: &RefCell<Book>, theirs: &RefCell<BTreeSet<u64>>) {
    let (m, roots) = (&prepared.memory, &prepared.roots);
    let mut arena = join(m, prepared.layout, DIES, &[]);
    arena.tag(m, "int64", 8).unwrap();
    arena.root(m, "late").unwrap();
    let book = &mut *book.borrow_mut();
    arena.allocate_into(m, 0, 40, roots[1]).unwrap();
    let inside = book.allocate(m, &mut arena, 64);
    arena.allocate_into(m, 0, 5000, roots[2]).unwrap();
    arena.allocate_into(m, 0, 90_000, roots[3]).unwrap();
    // Another's block, by its word, and one by its place.
    arena.free_from(m, roots[0]).unwrap();
    let other = prepared.its[1];
    theirs.borrow_mut().insert(other);
    arena.free(m, other).unwrap();
    let many: Vec<u64> = (0..20).map(|_| book.allocate(m, &mut arena, 3000)).collect();
    arena.free_from(m, roots[1]).unwrap();
    arena.free_from(m, roots[3]).unwrap();
    arena.allocate_into(m, 0, 16, roots[4]).unwrap();
    many.into_iter().for_each(|at| book.free(m, &mut arena, at));
    book.free(m, &mut arena, inside);
    arena.free_from(m, roots[2]).unwrap();
    let huge = book.allocate(m, &mut arena, 100_000);
    book.free(m, &mut arena, huge);
    book.allocate(m, &mut arena, 300);
    arena.leave(m).unwrap();
}

/// Whether every block is known to somebody, and everything is a block that somebody knows.
fn compare(prepared: &Prepared, book: &Book, theirs: &BTreeSet<u64>) {
    let memory = &prepared.memory;
    let mut known: BTreeSet<u64> = book.has.clone();
    known.extend(prepared.its.iter().filter(|at| !theirs.contains(*at)));
    let held = prepared.roots.iter().map(|word| memory.words.borrow()[*word as usize / 8]);
    known.extend(held.filter(|at| *at != 0));
    let blocks: BTreeSet<u64> = memory.blocks(&prepared.layout).iter().map(|block| block.at).collect();
    // One that is being freed may be there still, or not any more.
    let doubtful: BTreeSet<u64> = book.frees.into_iter().chain(theirs.iter().copied()).collect();
    let wrong: Vec<&u64> = known.symmetric_difference(&blocks).collect();
    assert!(wrong.iter().all(|at| doubtful.contains(at)), "{wrong:?}");
}

/// After that nothing is left of it: all can be had in one piece.
fn empty(mut prepared: Prepared, mut mender: Arena) {
    let m = &prepared.memory;
    for block in m.blocks(&prepared.layout) {
        prepared.living.free(m, block.at).unwrap();
    }
    assert_eq!(mender.allocate(m, 0, prepared.layout.most_bytes()), Err(Refused::NoSpace));
    prepared.living.leave(m).unwrap();
    mender.allocate(m, 0, prepared.layout.most_bytes()).unwrap();
    assert!(mender.tag(m, "int64", 8) == Ok(0) && mender.root(m, "late").is_ok());
}

#[test]
fn whoever_dies_after_any_step_leaves_no_block_to_nobody() {
    let mut dice = Dice(0x1234_5678_9abc_def1);
    let mut deaths = 0;
    for steps in 0.. {
        let prepared = prepare();
        let (book, theirs) = <(RefCell<Book>, RefCell<BTreeSet<u64>>)>::default();
        let killed = prepared.memory.is_killed(steps, || live(&prepared, &book, &theirs));
        // The next one may die while it mends, and so may the one after it.
        let mut ended = vec![DIES];
        for turn in 0..2 {
            let me = MENDS + turn;
            let limit = dice.below(600);
            if prepared.memory.is_killed(limit, || drop(join(&prepared.memory, prepared.layout, me, &ended)))
            {
                deaths += 1;
            }
            // It has ended in each case, and did not leave.
            ended.push(me);
        }
        let mut mender = join(&prepared.memory, prepared.layout, MENDS + 2, &ended);
        let whole = mender.allocate(&prepared.memory, 0, prepared.layout.most_bytes());
        assert_eq!(whole, Err(Refused::NoSpace), "who lives has blocks");
        compare(&prepared, &book.borrow(), &theirs.borrow());
        empty(prepared, mender);
        if !killed {
            assert!(steps > 1000 && deaths > 500, "{steps} {deaths}");
            return;
        }
    }
}

#[test]
fn what_the_living_frees_of_the_dead_is_free() {
    let (memory, layout) = (Shared::new(BYTES), Layout::of(BYTES).unwrap());
    let mut dead = join(&memory, layout, DIES, &[]);
    let blocks: Vec<u64> = (0..500).map(|_| dead.allocate(&memory, 0, 500).unwrap()).collect();
    drop(dead);
    let mut living = join(&memory, layout, LIVES, &[]);
    assert_eq!(living.allocate(&memory, 0, layout.most_bytes() / 2), Err(Refused::NoSpace));
    blocks.iter().for_each(|at| living.free(&memory, *at).unwrap());
    assert_eq!(memory.blocks(&layout), []);
    // It is thought to live, and its pages are its own; until it is known to have ended.
    assert_eq!(living.allocate(&memory, 0, layout.most_bytes() / 2), Err(Refused::NoSpace));
    let mut other = join(&memory, layout, 3, &[DIES]);
    other.allocate(&memory, 0, layout.most_bytes() / 2).unwrap();
}

#[test]
fn a_dead_owner_of_the_lock_of_names_keeps_nobody_out() {
    for steps in 0.. {
        let (memory, layout) = (Shared::new(BYTES), Layout::of(BYTES).unwrap());
        let mut dead = join(&memory, layout, DIES, &[]);
        // Whoever waits has a place already.
        let people = Crowd::new(LIVES, &[]);
        let mut late = Arena::join(&memory, layout, people.clone()).unwrap();
        let killed = memory.is_killed(steps, || _ = dead.root(&memory, "what it was about to make").unwrap());
        people.end(DIES);
        late.root(&memory, "b").unwrap();
        let found = late.root(&memory, "what it was about to make").unwrap();
        assert_eq!(late.root(&memory, "what it was about to make"), Ok(found));
        assert_eq!(memory.problems(&layout), []);
        if !killed {
            assert!(steps > 10);
            return;
        }
    }
}

#[test]
fn what_a_dead_one_was_about_to_free_is_not_freed_when_it_is_anothers() {
    for steps in 0.. {
        let (memory, layout) = (Shared::new(BYTES), Layout::of(BYTES).unwrap());
        let mut owner = join(&memory, layout, LIVES, &[]);
        let word = owner.root(&memory, "word").unwrap();
        let block = owner.allocate_into(&memory, 0, 5000, word).unwrap();
        let mut dead = join(&memory, layout, DIES, &[]);
        let killed = memory.is_killed(steps, || dead.free_from(&memory, word).unwrap());
        // The owner collects, and gives out again what is free.
        let mut its = BTreeSet::new();
        for _ in 0..20 {
            its.insert(owner.allocate(&memory, 0, 5000).unwrap());
        }
        let mut mender = join(&memory, layout, MENDS, &[DIES]);
        mender.allocate(&memory, 0, 5000).unwrap();
        let held = memory.words.borrow()[word as usize / 8];
        assert!([0, block].contains(&held));
        its.extend((held != 0).then_some(held));
        let blocks: BTreeSet<u64> = memory.blocks(&layout).iter().map(|block| block.at).collect();
        let lost: Vec<&u64> = its.difference(&blocks).collect();
        assert!(lost.is_empty() && blocks.len() == its.len() + 1, "{steps}: {lost:?}");
        if !killed {
            assert!(steps > 5);
            return;
        }
    }
}

#[test]
fn pages_that_a_dead_one_gave_back_are_not_freed_again_when_they_are_anothers() {
    for steps in 0.. {
        let (memory, layout) = (Shared::new(BYTES), Layout::of(BYTES).unwrap());
        let mut living = join(&memory, layout, LIVES, &[]);
        let mut dead = join(&memory, layout, DIES, &[]);
        let word = dead.root(&memory, "word").unwrap();
        let block = dead.allocate_into(&memory, 0, 100_000, word).unwrap();
        let killed = memory.is_killed(steps, || dead.free_from(&memory, word).unwrap());
        let mut its = BTreeSet::new();
        while let Ok(at) = living.allocate(&memory, 0, 100_000) {
            assert!(its.insert(at), "{steps}: it is somebody's");
        }
        // Whoever mends may die, too, and others have what it gave back.
        memory.is_killed(steps * 7 % 300, || drop(join(&memory, layout, MENDS, &[DIES])));
        while let Ok(at) = living.allocate(&memory, 0, 100_000) {
            assert!(its.insert(at), "{steps}: it is somebody's");
        }
        drop(join(&memory, layout, MENDS + 1, &[DIES, MENDS]));
        let held = memory.words.borrow()[word as usize / 8];
        assert!([0, block].contains(&held));
        its.extend((held != 0).then_some(held));
        let blocks: BTreeSet<u64> = memory.blocks(&layout).iter().map(|block| block.at).collect();
        assert_eq!(blocks, its, "{steps}");
        if !killed {
            assert!(steps > 8 && its.len() > 3);
            return;
        }
    }
}
