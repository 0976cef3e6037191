//! Memory that a process can be killed at, after each step; and processes that live or do not.

use commonhold_heap::{Arena, Block, Layout, People, Problem, Words, check, visit};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

/// What a killed process unwinds with.
struct Killed;

pub struct Shared {
    pub words: RefCell<Vec<u64>>,
    steps_left: Cell<u64>,
}

impl Shared {
    pub fn new(bytes: u64) -> Shared {
        Shared { words: RefCell::new(vec![0; bytes as usize / 8]), steps_left: Cell::new(u64::MAX) }
    }

    fn step(&self) {
        if self.steps_left.get() == 0 {
            self.steps_left.set(u64::MAX);
            resume_unwind(Box::new(Killed));
        }
        self.steps_left.set(self.steps_left.get() - 1);
    }

    /// Runs something that is killed before the step after so many; whether it was.
    pub fn is_killed(&self, steps: u64, job: impl FnOnce()) -> bool {
        self.steps_left.set(steps);
        let done = catch_unwind(AssertUnwindSafe(job));
        self.steps_left.set(u64::MAX);
        match done {
            Ok(()) => false,
            Err(panic) if panic.is::<Killed>() => true,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// All blocks that are in use, by where they begin. The heap is whole.
    pub fn blocks(&self, layout: &Layout) -> Vec<Block> {
        let mut blocks = Vec::new();
        let problems = visit(self, layout, |block| blocks.push(block));
        assert_eq!(problems, Vec::<Problem>::new());
        blocks
    }

    pub fn problems(&self, layout: &Layout) -> Vec<Problem> {
        check(self, layout, &*Crowd::new(1, &[])).problems
    }
}

impl Words for Shared {
    fn load(&self, at: u64) -> u64 {
        self.step();
        self.words.borrow()[at as usize / 8]
    }

    fn store(&self, at: u64, value: u64) {
        self.step();
        self.words.borrow_mut()[at as usize / 8] = value;
    }

    fn exchange(&self, at: u64, old: u64, new: u64) -> Result<(), u64> {
        self.step();
        let word = &mut self.words.borrow_mut()[at as usize / 8];
        if *word != old {
            return Err(*word);
        }
        *word = new;
        Ok(())
    }

    fn set(&self, at: u64, bits: u64) -> u64 {
        self.step();
        let word = &mut self.words.borrow_mut()[at as usize / 8];
        std::mem::replace(word, *word | bits)
    }

    fn clear(&self, at: u64, bits: u64) -> u64 {
        self.step();
        let word = &mut self.words.borrow_mut()[at as usize / 8];
        std::mem::replace(word, *word & !bits)
    }

    fn pause(&self) {}
}

/// A process of host 1, and the processes that have ended.
#[derive(Debug)]
pub struct Crowd {
    me: u64,
    host: u64,
    ended: Arc<Mutex<HashSet<u64>>>,
}

impl Crowd {
    pub fn new(me: u64, ended: &[u64]) -> Arc<Crowd> {
        let ended = ended.iter().copied().collect();
        Arc::new(Crowd { me, host: 1, ended: Arc::new(Mutex::new(ended)) })
    }

    /// A process ends, as this one sees.
    pub fn end(&self, process: u64) {
        self.ended.lock().unwrap().insert(process);
    }
}

impl People for Crowd {
    fn host(&self) -> u64 {
        self.host
    }

    fn me(&self) -> u64 {
        self.me
    }

    fn has_ended(&self, process: u64) -> bool {
        self.ended.lock().unwrap().contains(&process)
    }

    fn host_has_ended(&self, _host: u64) -> bool {
        false
    }
}

pub fn join(memory: &Shared, layout: Layout, me: u64, ended: &[u64]) -> Arena {
    Arena::join(memory, layout, Crowd::new(me, ended)).expect("a place")
}

/// Numbers that are the same each time.
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, many: u64) -> u64 {
        self.next() % many
    }
}
