//! Two ends use a queue while somebody changes its memory between any two of their steps: between two looks at one number, in
//! the midst of a copy, while they sleep. All of it follows from one seed. Nobody looks outside of the queue, each call ends
//! when its time is over, and a message is what the receiver's buffer has room for.
//!
//! `COMMONHOLD_TESTS_SEED` is the first seed, `COMMONHOLD_TESTS_ROUNDS` says how many.

use commonhold_channel::{Buffer, Form, HEADER_BYTES, Landing, Memory, Place, Queue, Refused, SLOTS, Wait};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

const RING: usize = 128;
/// Steps that a call takes at most for each time that it slept: a message of the whole ring, all slots, and a name.
const STEPS: u64 = 40_000;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 8) as usize % limit
    }
}

/// What both ends have mapped, and who changes it.
struct Shared {
    bytes: RefCell<Vec<u8>>,
    random: RefCell<Random>,
    /// One step of so many is followed by a change; 0: none.
    one_of: Cell<u64>,
    steps: Cell<u64>,
    now: Cell<Instant>,
}

impl Shared {
    fn step(&self) {
        self.steps.set(self.steps.get() + 1);
        let one_of = self.one_of.get();
        if one_of > 0 && self.random.borrow_mut().next().is_multiple_of(one_of) {
            self.change();
        }
    }

    /// Mostly where something is decided by it: the queue's own numbers, a record's header, a slot. Or any byte.
    fn change(&self) {
        let mut random = self.random.borrow_mut();
        let mut bytes = self.bytes.borrow_mut();
        let at = match random.below(8) {
            0..=2 => 4 + 4 * random.below(7),
            3..=4 => HEADER_BYTES + 4 * random.below(RING / 4),
            5 => 1024 + 1088 * random.below(SLOTS as usize) + 4 * random.below(20),
            _ => 4 + random.below(HEADER_BYTES + RING - 8),
        };
        let number = match random.below(4) {
            0 => random.next() as u32,
            1 => random.below(RING * 2) as u32,
            2 => [0, 1, 2, 0x4000_0000, 0x8000_0000, u32::MAX, u32::MAX - 7, 1 << 30][random.below(8)],
            // What is there already, moved a little.
            _ => u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i])).wrapping_add(8),
        };
        bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
    }
}

#[derive(Clone)]
struct End(Rc<Shared>, u32);

impl End {
    fn word(&self, at: usize) -> u32 {
        assert!(at.is_multiple_of(4), "words are aligned");
        let bytes = self.0.bytes.borrow();
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("inside"))
    }

    fn set(&self, at: usize, value: u32) {
        self.0.bytes.borrow_mut()[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}

impl Memory for End {
    const SPINS: u32 = 3;

    fn bytes(&self) -> usize {
        self.0.bytes.borrow().len()
    }

    fn load(&self, at: usize) -> u32 {
        self.0.step();
        self.word(at)
    }

    fn store(&self, at: usize, value: u32) {
        self.0.step();
        self.set(at, value);
    }

    fn exchange(&self, at: usize, old: u32, new: u32) -> Result<(), u32> {
        match self.load(at) {
            seen if seen == old => {
                self.set(at, new);
                Ok(())
            }
            seen => Err(seen),
        }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        for (i, byte) in bytes.iter().enumerate() {
            self.0.step();
            self.0.bytes.borrow_mut()[at + i] = *byte;
        }
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        for (i, byte) in bytes.iter_mut().enumerate() {
            self.0.step();
            *byte = self.0.bytes.borrow()[at + i];
        }
    }

    /// Some wake at once, others sleep as long as they may.
    fn sleep(&self, at: usize, value: u32, at_most: Duration) {
        assert!(at_most <= Duration::from_secs(10), "nobody sleeps for longer than he has patience");
        self.0.steps.set(0);
        let early = self.0.random.borrow_mut().below(4) == 0;
        if self.word(at) == value && !early {
            self.0.now.set(self.0.now.get() + at_most);
        }
        // Time goes on, also for who is woken again and again.
        self.0.now.set(self.0.now.get() + Duration::from_micros(100));
        self.0.change();
    }

    fn wake(&self, at: usize, _most: u32) {
        assert!(at.is_multiple_of(4) && at < 32, "no word that somebody sleeps on");
    }

    fn thread(&self) -> u32 {
        self.1
    }

    fn about_to_lock(&self, _at: usize) -> usize {
        0
    }

    fn done(&self, _before: usize) {}

    fn now(&self) -> Instant {
        assert!(self.0.steps.get() < STEPS, "a call that does not end");
        self.0.now.get()
    }
}

/// Room for so much. What lies behind it is not to be touched.
struct Room {
    bytes: [u8; 2 * RING],
    room: usize,
    asked: Option<usize>,
}

impl Buffer for Room {
    fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        assert!(length <= RING, "longer than all that the queue can hold: {length}");
        self.asked = Some(length);
        self.bytes[..self.room].get_mut(..length)
    }
}

fn receive(queue: &Queue<End>, room: usize, wait: Wait) -> Result<(), Refused> {
    let mut buffer = Room { bytes: [0xa5; 2 * RING], room, asked: None };
    let received = queue.receive(&mut buffer, wait);
    assert!(buffer.bytes[room..].iter().all(|byte| *byte == 0xa5), "past the buffer");
    match received {
        Ok(received) => {
            assert_eq!(buffer.asked, Some(received.length));
            assert!(received.length <= room);
            if let Form::Landed(landing, _) = received.form {
                assert_eq!(Landing::of_number(landing.number()), landing);
            }
            Ok(())
        }
        Err(Refused::TooSmall { length }) => {
            assert!(length > room && length <= RING);
            Ok(())
        }
        Err(refused) => Err(refused),
    }
}

/// Whatever they ask, in turns. Gives how much of it went well, and how much was found damaged.
fn use_it(seed: u64, calls: u32) -> [u64; 2] {
    let shared = Rc::new(Shared {
        bytes: RefCell::new(vec![0; HEADER_BYTES + RING]),
        random: RefCell::new(Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)),
        one_of: Cell::new(0),
        steps: Cell::new(0),
        now: Cell::new(Instant::now()),
    });
    let ends = [1, 2].map(|number| Queue::open(End(shared.clone(), number)).expect("an empty queue"));
    // Between them a sequence that is about to wrap.
    let begins = [0_u32, u32::MAX - 39, (1 << 31) - 40, 64][seed as usize % 4] & !7;
    let end = End(shared.clone(), 0);
    [8, 12].iter().for_each(|at| end.set(*at, begins));
    shared.one_of.set([400, 60, 12, 3000][(seed >> 2) as usize % 4]);
    let mut outcomes = [0; 2];
    let mut landing = None;
    let draw = |limit: usize| shared.random.borrow_mut().below(limit);
    for call in 0..calls {
        let queue = &ends[call as usize % 2];
        let begun = shared.now.get();
        shared.steps.set(0);
        let wait = if draw(2) == 0 { Wait::No } else { Wait::Until(begun + Duration::from_millis(5)) };
        let place = Place { object: 7, name: "/a/b".into(), offset: 8, length: draw(64) as u64 };
        let done = match draw(8) {
            0 | 1 => queue.send(1, &[7; RING][..draw(RING)], wait),
            2 | 3 => receive(queue, draw(RING + 16), wait),
            4 => queue.post(&place, wait).map(|posted| landing = Some(posted)),
            5 => queue.take(draw(64) as u64, wait).map(|(taken, place)| {
                assert!(place.name.len() <= 1024);
                landing = Some(taken);
            }),
            6 => match landing {
                Some(landing) => queue.send_landed(landing, 5, (2, &[1; RING][..draw(RING)]), wait),
                None => queue.withdraw_all(wait).map(drop),
            },
            _ => match landing {
                Some(landing) if draw(2) == 0 => queue.release(landing, wait),
                Some(landing) => queue.withdraw(landing, wait),
                None => Ok(()),
            },
        };
        let took = shared.now.get() - begun;
        assert!(wait != Wait::No || took < Duration::from_millis(1), "seed {seed}: it was not to wait");
        assert!(took < Duration::from_millis(6), "seed {seed}, call {call}: {took:?}, after {done:?}");
        match done {
            Ok(()) => outcomes[0] += 1,
            Err(Refused::Damaged(_)) => outcomes[1] += 1,
            Err(_) => {}
        }
        if draw(6) == 0 {
            // Mended by hand, else it would be damaged for good.
            [4, 8, 12].iter().for_each(|at| end.set(*at, if *at == 4 { 0 } else { begins }));
        }
    }
    outcomes
}

#[test]
fn whoever_changes_it_between_two_steps_does_no_harm_outside_of_it() {
    let number = |name: &str| std::env::var(name).ok().and_then(|said| said.parse::<u64>().ok());
    let first = number("COMMONHOLD_TESTS_SEED").unwrap_or(1);
    let rounds = number("COMMONHOLD_TESTS_ROUNDS").unwrap_or(if cfg!(miri) { 4 } else { 1000 });
    let mut outcomes = [0; 2];
    for seed in first..first + rounds {
        let of_it = use_it(seed, if cfg!(miri) { 40 } else { 1000 });
        outcomes = std::array::from_fn(|n| outcomes[n] + of_it[n]);
    }
    let [well, damaged] = outcomes;
    assert!(well > rounds && damaged > rounds / 2, "{outcomes:?}: too little was tried");
}
