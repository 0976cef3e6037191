//! Memory that a process can be killed at, after any step.

use commonhold_primitives::{Kind, Memory, Wait, Who};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// What a killed process unwinds with.
pub struct Killed;

/// Memory that its process can be killed at. Who would sleep finds its time over.
pub struct Shared {
    pub words: RefCell<Vec<u64>>,
    pub steps_left: Cell<u64>,
    pub now: Cell<Instant>,
}

impl Shared {
    pub fn new() -> Shared {
        let words = RefCell::new(vec![0; 2 * Kind::RwLock.bytes() / 8]);
        Shared { words, steps_left: Cell::new(u64::MAX), now: Cell::new(Instant::now()) }
    }

    fn step(&self) {
        if self.steps_left.get() == 0 {
            self.steps_left.set(u64::MAX);
            resume_unwind(Box::new(Killed));
        }
        self.steps_left.set(self.steps_left.get() - 1);
    }

    /// Runs something that is killed after so many steps; whether it was.
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
}

impl Memory for Shared {
    const SPINS: u32 = 1;

    fn load(&self, at: usize) -> u64 {
        self.step();
        self.words.borrow()[at / 8]
    }

    fn exchange(&self, at: usize, old: u64, new: u64) -> Result<(), u64> {
        self.step();
        let word = &mut self.words.borrow_mut()[at / 8];
        if *word != old {
            return Err(*word);
        }
        *word = new;
        Ok(())
    }

    fn add(&self, at: usize, more: u64) -> u64 {
        self.step();
        let word = &mut self.words.borrow_mut()[at / 8];
        std::mem::replace(word, word.wrapping_add(more))
    }

    fn sleep(&self, at: usize, value: u32, at_most: Duration) {
        self.step();
        if self.words.borrow()[at / 8] as u32 == value {
            self.now.set(self.now.get() + at_most);
        }
    }

    fn wake(&self, _at: usize, _most: u32) -> u32 {
        self.step();
        0
    }

    fn now(&self) -> Instant {
        self.now.get()
    }
}

pub const DEAD: Who = Who { member: 9, thread: 1 };
pub const ALIVE: Who = Who { member: 1, thread: 1 };

impl Shared {
    pub fn soon(&self) -> Wait {
        Wait::Until(self.now() + Duration::from_secs(3))
    }
}

/// Kills a process that does that after every step, has its host free what it had, and looks what is left; until it comes to its
/// end before it is killed.
pub fn after_every_step(job: impl Fn(&Shared), free: impl Fn(&Shared), then: impl Fn(&Shared)) {
    for steps in 0.. {
        let memory = Shared::new();
        let killed = memory.is_killed(steps, || job(&memory));
        free(&memory);
        then(&memory);
        if !killed {
            assert!(steps > 1);
            return;
        }
    }
}
