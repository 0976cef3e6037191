//! A broken program writes nonsense into the heap's own words: nobody reads or writes outside of the
//! memory, nobody crashes, and it is said.

use crate::golden;
use crate::model::{Dice, Shared, join};
use commonhold_heap::{Layout, Problem, Refused};

const BYTES: u64 = 1 << 20;

/// A heap with blocks of all kinds, and where its first chunk is.
fn filled() -> (Shared, Layout, commonhold_heap::Arena, Vec<u64>) {
    let (memory, layout) = (Shared::new(BYTES), Layout::of(BYTES).unwrap());
    let mut arena = join(&memory, layout, 1, &[]);
    let tag = arena.tag(&memory, "float64", 8).unwrap();
    let mut blocks = Vec::new();
    for bytes in [16, 16, 100, 1000, 4000, 9000, 120_000] {
        blocks.push(arena.allocate(&memory, tag, bytes).unwrap());
    }
    let root = arena.root(&memory, "first").unwrap();
    blocks.push(arena.allocate_into(&memory, tag, 200, root).unwrap());
    (memory, layout, arena, blocks)
}

#[test]
fn each_overwritten_word_is_found_by_a_check() {
    let (memory, layout, arena, blocks) = filled();
    assert_eq!(memory.problems(&layout), []);
    drop(arena);
    let header = blocks[0] / 8 - 1024;
    let words = memory.words.borrow().clone();
    let mut found = 0;
    // What is not 0 outside of blocks, of programs and of places that a death leaves as they are.
    // Two blocks of 16 bytes in use: of these, others might be as well; their owner alone knows.
    let kept = |word: &usize| ![0, 3].contains(&words[*word]) && *word < header as usize + 512;
    for word in (0..words.len()).filter(kept) {
        let at = word as u64 * 8;
        let is_free_to_change = (4096..8192).contains(&at) && at % 64 == 8 // a root's value
            || (4096..6 * 4096).contains(&at) && !at.is_multiple_of(64) // a name
            || (6 * 4096..22 * 4096).contains(&at); // who is there
        if is_free_to_change {
            continue;
        }
        memory.words.borrow_mut()[word] = 0x7fff_1234_5678_9abc;
        let problems = memory.problems(&layout);
        assert!(!problems.is_empty(), "word {at} of {:x}", words[word]);
        found += 1;
        memory.words.borrow_mut()[word] = words[word];
    }
    assert!(found > 8, "{found}");
    assert_eq!(memory.problems(&layout), []);
}

#[test]
fn the_next_call_that_meets_it_says_so_and_changes_nothing() {
    let (memory, layout, mut arena, blocks) = filled();
    // Blocks in use, of the page of the smallest ones: its owner knows better.
    let at = (blocks[0] / 65536 * 65536..blocks[0])
        .step_by(8)
        .find(|at| memory.words.borrow()[*at as usize / 8] == 3)
        .expect("two blocks");
    memory.words.borrow_mut()[at as usize / 8] = 0;
    let damage = Problem { at, what: "blocks are in use, or free, that their owner did not make so" };
    assert_eq!(arena.free(&memory, blocks[0]), Err(Refused::Damaged(damage)));
    assert_eq!(arena.allocate(&memory, 0, 16), Err(Refused::Damaged(damage)));
    assert_eq!(memory.words.borrow()[at as usize / 8], 0);
    // Other pages are used on.
    arena.allocate(&memory, 0, 64).unwrap();
    memory.words.borrow_mut()[at as usize / 8] = 3;
    arena.free(&memory, blocks[0]).unwrap();
    assert_eq!(memory.problems(&layout), []);
    // What is no heap is not joined.
    memory.words.borrow_mut()[0] = 7;
    let people = crate::model::Crowd::new(2, &[]);
    let refused = commonhold_heap::Arena::join(&memory, layout, people).err();
    assert!(matches!(refused, Some(Refused::Damaged(Problem { at: 0, .. }))), "{refused:?}");
}

#[test]
fn the_pages_of_a_dead_one_that_are_damaged_are_left_and_said() {
    let (memory, layout, arena, blocks) = filled();
    drop(arena);
    let description = (blocks[0] / 65536 * 65536..blocks[0])
        .step_by(8)
        .find(|at| memory.words.borrow()[*at as usize / 8] >> 56 == 0xa5)
        .expect("a description");
    memory.words.borrow_mut()[description as usize / 8] ^= 0xff;
    let mut next = join(&memory, layout, 2, &[1]);
    next.allocate(&memory, 0, 16).unwrap();
    let damage = Problem { at: description, what: "the description of a page is none" };
    while next.allocate(&memory, 0, 16_000).is_ok() {}
    assert_eq!(next.allocate(&memory, 0, 16_000), Err(Refused::Damaged(damage)));
    assert_eq!(memory.problems(&layout), [damage]);
}

#[test]
fn nonsense_anywhere_makes_nobody_read_or_write_outside() {
    // Outside is a panic of the model.
    let mut dice = Dice(0x0dd0_5eed_0bad_cafe);
    let mut said = 0;
    for _ in 0..3000 {
        let (memory, layout, mut arena, blocks) = filled();
        let many = memory.words.borrow().len() as u64;
        let header = blocks[0] / 8 - 1024;
        for _ in 0..1 + dice.below(40) {
            let word = if dice.below(3) == 0 {
                dice.below(many)
            } else {
                dice.below(header + 512).max(header * dice.below(2))
            };
            let old = memory.words.borrow()[word as usize];
            let value = match dice.below(4) {
                0 => dice.next(),
                1 => old ^ 1 << dice.below(64),
                2 => memory.words.borrow()[dice.below(many) as usize],
                _ => dice.next() >> dice.below(64),
            };
            memory.words.borrow_mut()[word as usize] = value;
        }
        said += u64::from(!memory.problems(&layout).is_empty());
        // A generous number of steps ends a call that would never end.
        let ended = !memory.is_killed(20_000_000, || {
            for at in blocks {
                // Refused, or not: nobody is to crash.
                let _ = arena.free(&memory, at);
                let _ = arena.allocate(&memory, 0, 1 + at % 5000);
            }
            let _ = arena.allocate(&memory, 0, 100_000);
            let _ = arena.root(&memory, "second");
            if let Ok(root) = arena.root(&memory, "first") {
                let _ = arena.free_from(&memory, root);
                let _ = arena.allocate_into(&memory, 0, 50, root);
            }
            if let Ok(mut next) =
                commonhold_heap::Arena::join(&memory, layout, crate::model::Crowd::new(2, &[1]))
            {
                let _ = next.allocate(&memory, 0, 3000);
                let _ = next.leave(&memory);
            }
            let _ = arena.leave(&memory);
        });
        assert!(ended, "a call does not end");
    }
    assert!(said > 500, "{said}");
}

/// Where the first chunk of a huge block has its header, and where its description is.
fn huge(layout: &Layout, memory: &Shared, arena: &mut commonhold_heap::Arena) -> (u64, u64) {
    let block = arena.allocate(memory, 0, layout.most_bytes() / 4).unwrap();
    let words = memory.words.borrow();
    let marked = |mark, from: u64| (0..from).rev().find(|word| words[*word as usize] >> 56 == mark);
    let description = marked(0xa5, block / 8).expect("a description");
    let header = marked(0xc4, description).expect("a chunk in use");
    (header, description)
}

/// A huge block is one: in its first chunk nothing else begins, of whatever size, at whatever page.
#[test]
fn what_is_said_to_lie_in_a_huge_block_leads_nobody_outside() {
    let (run, small) = (29, 1); // classes, as a description has them
    let of = |pages: u64, class: u64| 0xa5 << 56 | pages << 24 | class;
    for (bytes, pages) in [(BYTES, 16), (160 << 20, 256)] {
        for is_other in [false, true] {
            for (page, said) in [
                (pages - 4, of(pages, run)), // it ends in another chunk
                (pages - 1, of(16, small)),  // and so do these
                (pages - 2, of(1, small)),
            ] {
                let (memory, layout) = (Shared::new(bytes), Layout::of(bytes).unwrap());
                let mut arena = join(&memory, layout, 1, &[]);
                let block = arena.allocate(&memory, 0, 16).unwrap();
                let (header, own) = huge(&layout, &memory, &mut arena);
                if is_other {
                    memory.words.borrow_mut()[own as usize] = of(1, small);
                } else {
                    memory.words.borrow_mut()[own as usize] = 0;
                }
                memory.words.borrow_mut()[(header + page) as usize] = said;
                assert_ne!(memory.problems(&layout), [], "page {page}, {said:x}");
                // Whoever frees there, and whoever takes over what a dead one had. Each may be refused: none may go outside.
                let mut next = join(&memory, layout, 2, &[]);
                for at in (8 * header..8 * header + pages * 4096).step_by(2048) {
                    let _ = next.free(&memory, at);
                }
                let mut heir = join(&memory, layout, 3, &[1]);
                let _ = heir.allocate(&memory, 0, 16);
                let _ = heir.free(&memory, block);
                let _ = arena.leave(&memory);
            }
        }
    }
}

/// Whoever takes an arena over does not take its own over, nor chunks that it has.
#[test]
fn what_an_arena_has_it_does_not_take_over() {
    let (memory, _, mut arena, blocks) = filled();
    // The place is nobody's, and has the lock of names, as if its owner had died with it.
    let place = 6 * 4096 + 64; // the first arena's
    memory.words.borrow_mut()[place / 8] = 0;
    memory.words.borrow_mut()[8] = 1;
    let free = arena.allocate(&memory, 0, 16).unwrap();
    arena.free(&memory, free).unwrap();
    let damage = Problem { at: 64, what: "the lock of names belongs to nobody" };
    assert_eq!(arena.root(&memory, "second"), Err(Refused::Damaged(damage)));
    memory.words.borrow_mut()[8] = 0;
    for at in blocks {
        let _ = arena.free(&memory, at); // refused, of what the damage hides
    }
    let many: Vec<u64> = (0..300).map_while(|_| arena.allocate(&memory, 0, 16).ok()).collect();
    let mut once = many.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), many.len(), "no block is given twice");
    for at in many {
        arena.free(&memory, at).unwrap();
    }
    // A chunk of this arena is said to be a dead one's.
    let (memory, layout, mut arena, blocks) = filled();
    let dead = join(&memory, layout, 2, &[]);
    drop(dead);
    let table = 22 * 4096 / 8;
    let first = blocks[0] / 8 / 8192 * 8192; // some word of it
    let header = (0..first + 8192).rev().find(|word| memory.words.borrow()[*word as usize] >> 56 == 0xc4);
    let header = header.expect("a chunk") as usize;
    let index = (memory.words.borrow()[header] & 0xff_ffff_ffff) as usize;
    memory.words.borrow_mut()[table + index] = 1 << 16 | 2;
    memory.words.borrow_mut()[header] += 1 << 40;
    memory.words.borrow_mut()[(6 * 4096 + 2 * 64) / 8] = 77; // ended
    memory.words.borrow_mut()[8] = 2;
    // Whatever these answer, none may go outside.
    let _ = arena.root(&memory, "third");
    for at in blocks {
        let _ = arena.free(&memory, at);
    }
    for _ in 0..300 {
        let _ = arena.allocate(&memory, 0, 16);
    }
    let _ = arena.leave(&memory);
}

#[test]
fn the_memory_is_that_of_its_version_and_another_is_told() {
    let (memory, layout, arena, blocks) = filled();
    drop(arena);
    let written: Vec<u8> = memory.words.borrow().iter().flat_map(|word| word.to_le_bytes()).collect();
    let kept = golden::check(env!("CARGO_MANIFEST_DIR"), "heap", 1, &written);
    let memory = Shared::new(BYTES);
    let words = kept.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
    memory.words.borrow_mut().iter_mut().zip(words).for_each(|(word, kept)| *word = kept);
    assert_eq!(memory.problems(&layout), []);
    let mut arena = join(&memory, layout, 1, &[]);
    let tag = arena.tag(&memory, "float64", 8).unwrap();
    assert!(!blocks.contains(&arena.allocate(&memory, tag, 16).unwrap()));
    drop(arena);
    for mark in [*b"heap   0", *b"heap   2"] {
        memory.words.borrow_mut()[0] = u64::from_le_bytes(mark);
        let before = memory.words.borrow().clone();
        let problems = memory.problems(&layout);
        assert!(problems.iter().any(|problem| problem.what.contains("another version")), "{problems:?}");
        assert_eq!(*memory.words.borrow(), before);
    }
}
