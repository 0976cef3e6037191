//! Memory for tests: plain atomics, threads that can be killed between any two steps, and no futex:
//! who would sleep is asked what happens meanwhile.

use commonhold_channel::{HEADER_BYTES, Memory, Queue};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

pub const LOCK: usize = 4;
pub const TAIL: usize = 8;
pub const HEAD: usize = 12;
const DIED: u32 = 0x4000_0000;
const SLEEPERS: u32 = 0x8000_0000;
const NUMBER: u32 = 0x3fff_ffff;

/// What a killed thread unwinds with.
pub struct Killed;

/// Something that happens to the memory.
type Event = Box<dyn FnOnce(&Shared)>;

/// Memory that several queues share.
pub struct Shared {
    pub words: RefCell<Vec<u32>>,
    pub wakes: RefCell<Vec<usize>>,
    pub now: Cell<Instant>,
    pub while_asleep: RefCell<Option<Event>>,
    /// The longest that anybody meant to sleep.
    pub longest_sleep: Cell<Duration>,
}

impl Shared {
    pub fn new(ring: usize) -> Rc<Shared> {
        Rc::new(Shared {
            words: RefCell::new(vec![0; (HEADER_BYTES + ring) / 4]),
            wakes: RefCell::default(),
            now: Cell::new(Instant::now()),
            while_asleep: RefCell::default(),
            longest_sleep: Cell::default(),
        })
    }

    pub fn get(&self, at: usize) -> u32 {
        self.words.borrow()[at / 4]
    }

    pub fn set(&self, at: usize, value: u32) {
        self.words.borrow_mut()[at / 4] = value;
    }

    /// What the kernel does when a thread dies that was about to take or let go the lock.
    pub fn thread_died(&self, number: u32) {
        let lock = self.get(LOCK);
        if lock & NUMBER == number {
            self.set(LOCK, lock & SLEEPERS | DIED);
        }
    }
}

/// One thread's view.
pub struct Local {
    pub shared: Rc<Shared>,
    pub number: u32,
    /// Steps until it is killed.
    pub steps_left: Cell<u64>,
    /// Between `about_to_lock` and `done`.
    pub expects: Cell<bool>,
}

impl Local {
    pub fn queue(shared: &Rc<Shared>, number: u32) -> Queue<Local> {
        Self::queue_that_dies(shared, number, u64::MAX)
    }

    pub fn queue_that_dies(shared: &Rc<Shared>, number: u32, steps: u64) -> Queue<Local> {
        let local =
            Local { shared: shared.clone(), number, steps_left: Cell::new(steps), expects: Cell::new(false) };
        Queue::open(local).expect("a queue")
    }

    fn step(&self) {
        if self.steps_left.get() == 0 {
            // A dead thread does nothing more, also not while it unwinds.
            if !std::thread::panicking() {
                std::panic::resume_unwind(Box::new(Killed));
            }
            return;
        }
        self.steps_left.set(self.steps_left.get() - 1);
    }

    fn is_dead(&self) -> bool {
        std::thread::panicking()
    }
}

impl Memory for Local {
    const SPINS: u32 = 2;

    fn bytes(&self) -> usize {
        self.shared.words.borrow().len() * 4
    }

    fn load(&self, at: usize) -> u32 {
        self.step();
        self.shared.get(at)
    }

    fn store(&self, at: usize, value: u32) {
        self.step();
        if !self.is_dead() {
            self.shared.set(at, value);
        }
    }

    fn exchange(&self, at: usize, old: u32, new: u32) -> Result<(), u32> {
        match self.load(at) {
            seen if seen == old && !self.is_dead() => {
                self.shared.set(at, new);
                Ok(())
            }
            seen => Err(seen),
        }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        for (i, byte) in bytes.iter().enumerate() {
            self.step();
            let word = &mut self.shared.words.borrow_mut()[(at + i) / 4];
            let shift = (at + i) % 4 * 8;
            *word = *word & !(0xff << shift) | u32::from(*byte) << shift;
        }
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        for (i, byte) in bytes.iter_mut().enumerate() {
            self.step();
            *byte = (self.shared.get((at + i) & !3) >> ((at + i) % 4 * 8)) as u8;
        }
    }

    fn sleep(&self, at: usize, value: u32, at_most: Duration) {
        self.step();
        if self.shared.get(at) != value {
            return;
        }
        self.shared.longest_sleep.set(self.shared.longest_sleep.get().max(at_most));
        let meanwhile = self.shared.while_asleep.take();
        match meanwhile {
            Some(meanwhile) => meanwhile(&self.shared),
            None => self.shared.now.set(self.shared.now.get() + at_most),
        }
    }

    fn wake(&self, at: usize, _most: u32) {
        self.step();
        if !self.is_dead() {
            self.shared.wakes.borrow_mut().push(at);
        }
    }

    fn thread(&self) -> u32 {
        self.number
    }

    fn about_to_lock(&self, at: usize) -> usize {
        assert_eq!(at, LOCK);
        assert!(!self.expects.replace(true), "one lock at a time");
        7
    }

    fn done(&self, before: usize) {
        assert_eq!(before, 7);
        self.expects.set(false);
    }

    fn now(&self) -> Instant {
        self.shared.now.get()
    }
}
