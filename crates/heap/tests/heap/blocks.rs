//! Blocks are where there is room, one beside the other, and come back when they are freed; and what
//! is no block is refused, with the heap as it was.

use crate::model::{Dice, Shared, join};
use commonhold_heap::{Layout, PAGE, Refused};
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;

/// What must be of all blocks that are in use.
fn compare(memory: &Shared, layout: &Layout, book: &BTreeMap<u64, u64>) {
    let blocks = memory.blocks(layout);
    let starts: Vec<u64> = blocks.iter().map(|block| block.at).collect();
    assert_eq!(starts, book.keys().copied().collect::<Vec<_>>());
    for block in &blocks {
        assert!(block.bytes >= book[&block.at] && block.at.is_multiple_of(16));
    }
    assert!(blocks.windows(2).all(|two| two[0].at + two[0].bytes <= two[1].at), "one over another");
}

#[test]
fn two_arenas_allocate_and_free_each_others_as_a_book_says() {
    for (bytes, most) in [(2 * MIB, 5000), (8 * MIB, 200_000), (24 * MIB, 3 * MIB)] {
        let memory = Shared::new(bytes);
        let layout = Layout::of(bytes).unwrap();
        let mut arenas = [join(&memory, layout, 1, &[]), join(&memory, layout, 2, &[])];
        let tags = ["int32", "float64"].map(|text| arenas[0].tag(&memory, text, 8).unwrap());
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ bytes);
        let mut book = BTreeMap::new();
        let mut no_space = 0;
        for turn in 0..6000 {
            let arena = &mut arenas[dice.below(2) as usize];
            // More and more, then fewer and fewer.
            if dice.below(1000) < if turn % 2000 < 1000 { 650 } else { 350 } {
                let size = (1 << dice.below(63 - most.leading_zeros() as u64 + 1)).min(most);
                let size = size + dice.below(size);
                match arena.allocate(&memory, tags[dice.below(2) as usize], size) {
                    Ok(at) => assert_eq!(book.insert(at, size), None),
                    Err(refused) => {
                        assert_eq!(refused, Refused::NoSpace);
                        no_space += 1;
                    }
                }
            } else if let Some((at, _)) = book.iter().nth(dice.below(book.len().max(1) as u64) as usize) {
                let at = *at;
                arena.free(&memory, at).unwrap();
                book.remove(&at);
            }
            if turn % 200 == 0 {
                compare(&memory, &layout, &book);
            }
        }
        compare(&memory, &layout, &book);
        assert!(no_space < 2000, "{no_space}");
        for at in book.into_keys() {
            arenas[0].free(&memory, at).unwrap();
        }
        let [first, second] = arenas;
        first.leave(&memory).unwrap();
        second.leave(&memory).unwrap();
        assert_eq!(memory.blocks(&layout), []);
        // All of it can be had again, in one piece.
        let mut last = join(&memory, layout, 3, &[]);
        last.allocate(&memory, tags[0], layout.most_bytes()).unwrap();
    }
}

#[test]
fn what_one_leaves_the_next_goes_on_with() {
    let (memory, layout) = (Shared::new(2 * MIB), Layout::of(2 * MIB).unwrap());
    let mut first = join(&memory, layout, 1, &[]);
    let tag = first.tag(&memory, "int8", 1).unwrap();
    let kept: Vec<u64> = (0..100).map(|_| first.allocate(&memory, tag, 48).unwrap()).collect();
    first.leave(&memory).unwrap();
    let mut second = join(&memory, layout, 2, &[]);
    assert_eq!(second.tag(&memory, "int8", 1), Ok(tag));
    let next = second.allocate(&memory, tag, 48).unwrap();
    assert!(!kept.contains(&next) && next.abs_diff(kept[0]) < 16 * PAGE, "the pages are used on");
    kept.iter().for_each(|at| second.free(&memory, *at).unwrap());
    assert_eq!(memory.blocks(&layout).len(), 1);
}

#[test]
fn a_page_has_one_type_and_one_size() {
    let (memory, layout) = (Shared::new(4 * MIB), Layout::of(4 * MIB).unwrap());
    let mut arena = join(&memory, layout, 1, &[]);
    let tags = ["int32", "{24: 0 int32, 8 float64*2}"].map(|text| arena.tag(&memory, text, 8).unwrap());
    for n in 0..2000 {
        arena.allocate(&memory, tags[n % 2], 16 + 40 * (n as u64 % 7)).unwrap();
    }
    let mut of_page = BTreeMap::new();
    for block in memory.blocks(&layout) {
        for page in block.at / PAGE..(block.at + block.bytes).div_ceil(PAGE) {
            assert_eq!(*of_page.entry(page).or_insert((block.tag, block.bytes)), (block.tag, block.bytes));
        }
    }
    assert!(of_page.len() > 14);
}

#[test]
fn larger_than_the_heap_is_refused_at_once_and_full_is_another_thing() {
    let (memory, layout) = (Shared::new(2 * MIB), Layout::of(2 * MIB).unwrap());
    let mut arena = join(&memory, layout, 1, &[]);
    for bytes in [layout.most_bytes() + 1, 3 * MIB, 1 << 60, u64::MAX] {
        assert_eq!(arena.allocate(&memory, 0, bytes), Err(Refused::TooLarge));
    }
    let whole = arena.allocate(&memory, 0, layout.most_bytes()).unwrap();
    assert_eq!(arena.allocate(&memory, 0, 1), Err(Refused::NoSpace));
    arena.free(&memory, whole).unwrap();
    while arena.allocate(&memory, 0, 64).is_ok() {}
    assert!(memory.blocks(&layout).len() as u64 * 64 > 2 * MIB * 3 / 4);
    assert_eq!(arena.allocate(&memory, 0, 100_000), Err(Refused::NoSpace));
}

#[test]
fn a_second_free_is_refused_whoever_does_it() {
    let (memory, layout) = (Shared::new(4 * MIB), Layout::of(4 * MIB).unwrap());
    let (mut mine, mut other) = (join(&memory, layout, 1, &[]), join(&memory, layout, 2, &[]));
    for bytes in [16, 700, 4096, 20_000, 3 * MIB] {
        let stays = (bytes < MIB).then(|| mine.allocate(&memory, 0, bytes).unwrap());
        let before = memory.blocks(&layout);
        let again = |at: u64, frees: &mut dyn FnMut(u64) -> Result<(), Refused>| {
            let refused = frees(at);
            assert!(matches!(refused, Err(Refused::NotAllocated | Refused::Foreign)), "{refused:?}");
            assert_eq!(memory.blocks(&layout), before);
        };
        for first_is_mine in [true, false] {
            let at = mine.allocate(&memory, 0, bytes).unwrap();
            if first_is_mine {
                mine.free(&memory, at).unwrap()
            } else {
                other.free(&memory, at).unwrap()
            }
            again(at, &mut |at| mine.free(&memory, at));
            again(at, &mut |at| other.free(&memory, at));
        }
        stays.into_iter().for_each(|at| mine.free(&memory, at).unwrap());
    }
}

#[test]
fn what_is_no_block_is_refused_and_nothing_changes() {
    let (memory, layout) = (Shared::new(4 * MIB), Layout::of(4 * MIB).unwrap());
    let (mut mine, mut other) = (join(&memory, layout, 1, &[]), join(&memory, layout, 2, &[]));
    let blocks: Vec<u64> =
        [24, 160, 5000, 2 * MIB].map(|bytes| mine.allocate(&memory, 0, bytes).unwrap()).into();
    let before = memory.words.borrow().clone();
    let near = blocks.iter().flat_map(|at| [at + 1, at + 8, at + 16, at - 16, at + 4096, at + 100_000]);
    let wild = (0..4 * MIB).step_by(4096).chain([4 * MIB, 1 << 50, u64::MAX, u64::MAX - 7]);
    let mut tried = 0;
    for at in near.chain(wild).filter(|at| !blocks.contains(at)) {
        for refused in [mine.free(&memory, at), other.free(&memory, at)] {
            assert!(matches!(refused, Err(Refused::Foreign | Refused::NotAllocated)), "{at}: {refused:?}");
            tried += 1;
        }
    }
    assert!(tried > 2000 && *memory.words.borrow() == before);
    // Nor is a block kept in the heap's own words, or outside.
    for word in [0, 8, 4096, 4096 + 16, 6 * 4096, blocks[0] + 4, 4 * MIB, u64::MAX - 7] {
        assert_eq!(mine.allocate_into(&memory, 0, 16, word), Err(Refused::NoWord), "{word}");
        assert_eq!(mine.free_from(&memory, word), Err(Refused::NoWord));
    }
    assert!(*memory.words.borrow() == before);
}

#[test]
fn roots_and_types_have_names_which_are_kept() {
    let (memory, layout) = (Shared::new(2 * MIB), Layout::of(2 * MIB).unwrap());
    let (mut mine, mut other) = (join(&memory, layout, 1, &[]), join(&memory, layout, 2, &[]));
    let root = mine.root(&memory, "counts").unwrap();
    let at = mine.allocate_into(&memory, 0, 100, root).unwrap();
    assert_eq!(mine.allocate_into(&memory, 0, 100, root), Err(Refused::NotEmpty));
    assert_eq!(other.root(&memory, "counts"), Ok(root));
    assert_eq!(memory.words.borrow()[root as usize / 8], at);
    other.free_from(&memory, root).unwrap();
    assert_eq!((memory.words.borrow()[root as usize / 8], memory.blocks(&layout).len()), (0, 0));
    for name in ["", &"x".repeat(49)] {
        assert_eq!(mine.root(&memory, name), Err(Refused::BadName));
    }
    assert_ne!(mine.root(&memory, &"x".repeat(48)), Ok(root));
    for n in 2..64 {
        other.root(&memory, &format!("root {n}")).unwrap();
    }
    assert_eq!(other.root(&memory, "one more"), Err(Refused::TooMany));
    assert_eq!(mine.tag(&memory, "int32", 4), Ok(0));
    assert_eq!(other.tag(&memory, "{24: 0 int32, 8 float64*2}", 24), Ok(1));
}
