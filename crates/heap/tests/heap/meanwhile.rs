//! Another process writes into the heap while calls are under way: what was read once may be another thing when it is
//! read again. Outside of the memory is a panic, and so is a number that overflows.

use crate::model::{Crowd, Dice};
use commonhold_heap::{Arena, Layout, Words, check};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A call that has taken so many steps does not end.
struct Endless;

/// Memory that somebody writes to, now and then, just as it is read.
struct Written {
    words: RefCell<Vec<u64>>,
    dice: RefCell<Dice>,
    /// Of so many steps one is met by a write; 0: none.
    seldom: Cell<u64>,
    steps_left: Cell<u64>,
    layout: Layout,
}

impl Written {
    fn new(bytes: u64, seed: u64) -> Written {
        Written {
            words: RefCell::new(vec![0; bytes as usize / 8]),
            dice: RefCell::new(Dice(seed)),
            seldom: Cell::new(0),
            steps_left: Cell::new(u64::MAX),
            layout: Layout::of(bytes).expect("a heap fits"),
        }
    }

    /// What looks like a word of a heap, and what does not.
    fn nonsense(&self, old: u64) -> u64 {
        let mut dice = self.dice.borrow_mut();
        let (pages, class, tag) = (dice.below(600), dice.below(31), dice.below(4));
        let slot = 1 + dice.below(4);
        match dice.below(9) {
            0 => 0,
            1 => old ^ 1 << dice.below(64),
            2 => 0xa5 << 56 | pages << 24 | tag << 8 | class,
            3 => 0xa5 << 56 | (1 + dice.below(16)) << 24 | (1 + class),
            4 => 0xc4 << 56 | slot << 40 | dice.below(16),
            5 => dice.below(16) << 32 | (1 + dice.below(3)) << 16 | slot,
            6 => dice.below(8),
            7 => (1 + dice.below(2)) << 62 | dice.below(1 << 21) & !15,
            _ => dice.next(),
        }
    }

    fn step(&self, at: u64) {
        if self.steps_left.get() == 0 {
            resume_unwind(Box::new(Endless));
        }
        self.steps_left.set(self.steps_left.get() - 1);
        let seldom = self.seldom.get();
        if seldom == 0 || self.dice.borrow_mut().below(seldom) != 0 {
            return;
        }
        // There, or somewhere near.
        let many = self.words.borrow().len() as u64;
        let there = match self.dice.borrow_mut().below(3) {
            0 => at / 8 + 1,
            1 => at / 8 + 4,
            _ => at / 8,
        };
        let word = there.min(many - 1) as usize;
        let old = self.words.borrow()[word];
        let new = self.nonsense(old);
        self.words.borrow_mut()[word] = new;
    }

    /// Writes some descriptions of pages into the header of a chunk in use, which may well be ones.
    fn plant(&self, many: u64) {
        let mut words = self.words.borrow_mut();
        let headers: Vec<usize> =
            (0..words.len()).step_by(512).filter(|at| words[*at] >> 56 == 0xc4).collect();
        let mut dice = self.dice.borrow_mut();
        let Some(header) = headers.get(dice.below(headers.len().max(1) as u64) as usize) else { return };
        for _ in 0..many {
            let (page, class) = (dice.below(16) as usize, 1 + dice.below(29));
            let pages = if class == 29 { dice.below(60) } else { 1 + dice.below(16) };
            words[header + page] = 0xa5 << 56 | pages << 24 | class;
        }
    }

    fn change(&self, at: u64, to: impl FnOnce(u64) -> u64) -> u64 {
        self.step(at);
        let word = &mut self.words.borrow_mut()[at as usize / 8];
        let new = to(*word);
        std::mem::replace(word, new)
    }
}

impl Words for Written {
    fn load(&self, at: u64) -> u64 {
        self.step(at);
        self.words.borrow()[at as usize / 8]
    }

    fn store(&self, at: u64, value: u64) {
        self.change(at, |_| value);
    }

    fn exchange(&self, at: u64, old: u64, new: u64) -> Result<(), u64> {
        let was = self.change(at, |was| if was == old { new } else { was });
        if was == old { Ok(()) } else { Err(was) }
    }

    fn set(&self, at: u64, bits: u64) -> u64 {
        self.change(at, |was| was | bits)
    }

    fn clear(&self, at: u64, bits: u64) -> u64 {
        self.change(at, |was| was & !bits)
    }

    fn pause(&self) {}
}

/// One of the things that a process does. What it is told does not matter.
fn do_something(m: &Written, arena: &mut Arena, blocks: &mut Vec<u64>, dice: &mut Dice) {
    match dice.below(8) {
        0 => blocks.extend(arena.allocate(m, 0, m.layout.most_bytes() / (2 + dice.below(20)))),
        1 | 2 if !blocks.is_empty() => {
            // What these answer is nobody's promise while somebody writes there: that they end, and stay inside, is.
            let _ = arena.free(m, blocks.swap_remove(dice.below(blocks.len() as u64) as usize));
        }
        3 => {
            if let Ok(word) = arena.root(m, "root") {
                let _ = arena.allocate_into(m, 0, 1 + dice.below(9000), word);
                let _ = arena.free_from(m, word);
            }
        }
        4 => _ = arena.tag(m, "float64", 8),
        _ => blocks.extend(arena.allocate(m, dice.below(3) as u16, 1 + dice.below(9000))),
    }
}

/// Two processes use a heap. From some time on another one writes into it; then one that follows the dead comes.
fn use_it(m: &Written, seldom: u64, dice: &mut Dice) {
    let mut arenas = [1, 2].map(|me| Arena::join(m, m.layout, Crowd::new(me, &[])).expect("a place"));
    let mut blocks = Vec::new();
    for arena in &mut arenas {
        blocks.extend(arena.allocate(m, 0, m.layout.most_bytes() / 4));
        (0..20).for_each(|_| do_something(m, arena, &mut blocks, dice));
    }
    m.plant(dice.below(4));
    m.seldom.set(seldom);
    for turn in 0..dice.below(20) as usize {
        do_something(m, &mut arenas[turn % 2], &mut blocks, dice);
    }
    check(m, &m.layout, &*Crowd::new(3, &[]));
    if let Ok(mut heir) = Arena::join(m, m.layout, Crowd::new(3, &[2, 9])) {
        for at in blocks {
            let _ = heir.free(m, at); // as above
        }
        (0..5).for_each(|_| do_something(m, &mut heir, &mut Vec::new(), dice));
        let _ = heir.leave(m);
    }
    arenas.into_iter().for_each(|arena| _ = arena.leave(m));
}

#[test]
fn what_is_written_in_the_middle_of_a_call_leads_nobody_astray() {
    for (bytes, rounds) in [(1 << 20, 1500), (160 << 20, 20)] {
        for seed in 0..rounds {
            let mut dice = Dice(0xfee1_600d + seed);
            let memory = Written::new(bytes, 0x5eed_0000 + seed);
            memory.steps_left.set(400_000_000);
            let seldom = [10, 50, 200, 1000][seed as usize % 4];
            let done = catch_unwind(AssertUnwindSafe(|| use_it(&memory, seldom, &mut dice)));
            if let Err(panic) = done {
                assert!(!panic.is::<Endless>(), "seed {seed} of {bytes} bytes: a call does not end");
                eprintln!("seed {seed} of {bytes} bytes");
                resume_unwind(panic);
            }
        }
    }
}
