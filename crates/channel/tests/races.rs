//! Every interleaving of threads at a queue (loom). Each has a view of its own, as processes have;
//! the bytes are cells that notice who reads or writes them beside another; a sleep has no end but
//! a wake, so that a wake that is lost is a deadlock.

use commonhold_channel::{Form, HEADER_BYTES, Memory, Place, Queue, Refused, Wait};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const RING: usize = 32;
/// The queue's own words, and those of the first landing.
const WORDS: usize = 8 + 9;
const FIRST_LANDING: usize = 1024;

struct Shared {
    words: [AtomicU32; WORDS],
    ring: Vec<UnsafeCell<[u8; 8]>>,
    /// The kernel's queues of sleepers, one for each word.
    asleep: (Mutex<()>, [Condvar; WORDS]),
    begun: Instant,
}

struct Local(Arc<Shared>, u32);

/// Which word it is; none: one of another landing, which is free.
fn word(at: usize) -> Option<usize> {
    let landing = at.checked_sub(FIRST_LANDING).map(|at| 8 + at / 4);
    Some(landing.unwrap_or(at / 4)).filter(|word| *word < WORDS)
}

impl Local {
    fn in_units(at: usize, bytes: usize, mut each: impl FnMut(usize, usize, usize)) {
        (0..bytes).for_each(|i| each(i, (at - HEADER_BYTES + i) / 8, (at + i) % 8));
    }
}

impl Memory for Local {
    const SPINS: u32 = 0;

    fn bytes(&self) -> usize {
        HEADER_BYTES + RING
    }

    fn load(&self, at: usize) -> u32 {
        word(at).map_or(0, |word| self.0.words[word].load(Ordering::Acquire))
    }

    fn store(&self, at: usize, value: u32) {
        self.0.words[word(at).unwrap()].store(value, Ordering::Release);
    }

    fn exchange(&self, at: usize, old: u32, new: u32) -> Result<(), u32> {
        let word = &self.0.words[word(at).unwrap()];
        word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        Self::in_units(at, bytes.len(), |i, unit, byte| {
            // SAFETY: loom lets one thread run at a time, and panics if another may be here too.
            self.0.ring[unit].with_mut(|unit| unsafe { (*unit)[byte] = bytes[i] });
        });
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        Self::in_units(at, bytes.len(), |i, unit, byte| {
            // SAFETY: as above.
            bytes[i] = self.0.ring[unit].with(|unit| unsafe { (*unit)[byte] });
        });
    }

    fn sleep(&self, at: usize, value: u32, _at_most: Duration) {
        let asleep = self.0.asleep.0.lock().unwrap();
        if self.load(at) == value {
            drop(self.0.asleep.1[word(at).unwrap()].wait(asleep).unwrap());
        }
    }

    fn wake(&self, at: usize, _most: u32) {
        // As the kernel does, it looks at the queue of sleepers, which orders it after who just
        // went to sleep.
        drop(self.0.asleep.0.lock().unwrap());
        self.0.asleep.1[word(at).unwrap()].notify_all();
    }

    fn thread(&self) -> u32 {
        self.1
    }

    fn about_to_lock(&self, _at: usize) -> usize {
        0
    }

    fn done(&self, _before: usize) {}

    fn now(&self) -> Instant {
        self.0.begun
    }
}

fn queues<const N: usize>() -> [Queue<Local>; N] {
    let shared = Arc::new(Shared {
        words: std::array::from_fn(|_| AtomicU32::new(0)),
        ring: (0..RING / 8).map(|_| UnsafeCell::new([0; 8])).collect(),
        asleep: (Mutex::new(()), std::array::from_fn(|_| Condvar::new())),
        begun: Instant::now(),
    });
    std::array::from_fn(|n| Queue::open(Local(shared.clone(), n as u32 + 1)).unwrap())
}

/// All of them in which a thread is interrupted so often at most.
fn every(interruptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(model);
}

fn receive(queue: &Queue<Local>, wait: Wait) -> Result<(u32, Vec<u8>), Refused> {
    let mut bytes = Vec::new();
    queue.receive(&mut bytes, wait).map(|received| (received.kind, bytes))
}

#[test]
fn a_receiver_that_sleeps_gets_what_is_sent() {
    every(3, || {
        let [sender, receiver] = queues();
        let thread = loom::thread::spawn(move || sender.send(1, b"message", Wait::Forever).unwrap());
        assert_eq!(receive(&receiver, Wait::Forever), Ok((1, b"message".to_vec())));
        thread.join().unwrap();
    });
}

#[test]
fn a_sender_that_sleeps_gets_room() {
    every(3, || {
        let [sender, receiver] = queues();
        sender.send(0, &[7; 16], Wait::Forever).unwrap(); // all of the ring
        let thread = loom::thread::spawn(move || sender.send(1, b"behind", Wait::Forever).unwrap());
        assert_eq!(receive(&receiver, Wait::Forever), Ok((0, vec![7; 16])));
        assert_eq!(receive(&receiver, Wait::Forever), Ok((1, b"behind".to_vec())));
        thread.join().unwrap();
    });
}

#[test]
fn two_senders_and_a_receiver() {
    every(2, || {
        let [first, second, receiver] = queues();
        let threads = [(first, 1), (second, 2)].map(|(queue, kind)| {
            loom::thread::spawn(move || queue.send(kind, &[kind as u8], Wait::Forever).unwrap())
        });
        let mut kinds = [0, 0].map(|_| {
            let (kind, bytes) = receive(&receiver, Wait::Forever).unwrap();
            assert_eq!(bytes, [kind as u8]);
            kind
        });
        kinds.sort_unstable();
        assert_eq!(kinds, [1, 2]);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn two_receivers_and_a_sender() {
    every(2, || {
        let [first, second, sender] = queues();
        let threads = [first, second]
            .map(|queue| loom::thread::spawn(move || receive(&queue, Wait::Forever).unwrap().0));
        sender.send(1, b"", Wait::Forever).unwrap();
        sender.send(2, b"", Wait::Forever).unwrap();
        let mut kinds = threads.map(|thread| thread.join().unwrap());
        kinds.sort_unstable();
        assert_eq!(kinds, [1, 2]);
    });
}

fn place() -> Place {
    Place { object: 1, name: String::new(), offset: 0, length: 8 }
}

#[test]
fn a_sender_that_waits_for_a_landing_gets_one() {
    every(3, || {
        let [sender, receiver] = queues();
        let thread = loom::thread::spawn(move || {
            let (landing, found) = sender.take(5, Wait::Forever).unwrap();
            assert_eq!(found, place());
            sender.send_landed(landing, 5, (1, b""), Wait::Forever).unwrap();
        });
        let landing = receiver.post(&place(), Wait::Forever).unwrap();
        let received = receiver.receive(&mut Vec::new(), Wait::Forever).unwrap();
        assert_eq!(received.form, Form::Landed(landing, 5));
        thread.join().unwrap();
    });
}

#[test]
fn what_is_withdrawn_is_sent_before_or_never() {
    every(3, || {
        let [sender, receiver] = queues();
        let landing = receiver.post(&place(), Wait::Forever).unwrap();
        let (taken, _) = sender.take(8, Wait::Forever).unwrap();
        let thread =
            loom::thread::spawn(move || sender.send_landed(taken, 8, (1, b""), Wait::Forever).is_ok());
        receiver.withdraw(landing, Wait::Forever).unwrap();
        let again = receiver.post(&place(), Wait::Forever).unwrap();
        let sent = thread.join().unwrap();
        let received = receiver.receive(&mut Vec::new(), Wait::No);
        assert_eq!(received.is_ok(), sent);
        // Its message leaves the landing of now alone.
        assert_eq!(receiver.withdraw(again, Wait::Forever), Ok(()));
    });
}
