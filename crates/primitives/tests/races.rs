//! Every interleaving of threads at a primitive (loom). A sleep has no end but a wake, so that a
//! wake that is lost is a deadlock.

use commonhold_primitives::{
    Barrier, Condition, Counter, Kind, Memory, Mutex, Refused, RwLock, Semaphore, Wait, Who, free_of_the_dead,
};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex as Lock};
use std::time::{Duration, Instant};

/// Words that a test uses: those of a primitive at 0, of another at 64, and three of a table.
const WORDS: usize = 11;

struct Shared {
    words: [AtomicU64; WORDS],
    /// The kernel's queues of sleepers, one for each word, and how many are in each.
    asleep: (Lock<[u32; WORDS]>, [Condvar; WORDS]),
    /// What the primitive guards.
    guarded: UnsafeCell<u64>,
    begun: Instant,
}

#[derive(Clone)]
struct Local(Arc<Shared>);

// SAFETY: loom lets one thread run at a time, and panics if another may be at the cell, too.
unsafe impl Send for Local {}
// SAFETY: as above.
unsafe impl Sync for Local {}

/// Which word it is; none: one of the table that is 0, and that nobody changes.
fn word(at: usize) -> Option<usize> {
    Some(at / 8).filter(|word| *word < WORDS)
}

impl Local {
    fn new() -> Local {
        Local(Arc::new(Shared {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            asleep: (Lock::new([0; WORDS]), std::array::from_fn(|_| Condvar::new())),
            guarded: UnsafeCell::new(0),
            begun: Instant::now(),
        }))
    }

    /// What only who has the lock does.
    fn write(&self) {
        // SAFETY: loom panics if another thread may be here, too.
        self.0.guarded.with_mut(|guarded| unsafe { *guarded += 1 });
    }

    fn read(&self) -> u64 {
        // SAFETY: as above.
        self.0.guarded.with(|guarded| unsafe { *guarded })
    }
}

impl Memory for Local {
    const SPINS: u32 = 0;

    fn load(&self, at: usize) -> u64 {
        let Some(word) = word(at) else { return 0 };
        fence(Ordering::SeqCst);
        let seen = self.0.words[word].load(Ordering::Acquire);
        fence(Ordering::SeqCst);
        seen
    }

    fn exchange(&self, at: usize, old: u64, new: u64) -> Result<(), u64> {
        fence(Ordering::SeqCst);
        let word = &self.0.words[word(at).unwrap()];
        let done = word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).map(drop);
        fence(Ordering::SeqCst);
        done
    }

    fn add(&self, at: usize, more: u64) -> u64 {
        fence(Ordering::SeqCst);
        let before = self.0.words[word(at).unwrap()].fetch_add(more, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        before
    }

    fn sleep(&self, at: usize, value: u32, _at_most: Duration) {
        let mut asleep = self.0.asleep.0.lock().unwrap();
        let word = word(at).unwrap();
        if self.load(at) as u32 == value {
            asleep[word] += 1;
            drop(self.0.asleep.1[word].wait(asleep).unwrap());
        }
    }

    fn wake(&self, at: usize, most: u32) -> u32 {
        let word = word(at).unwrap();
        let mut asleep = self.0.asleep.0.lock().unwrap();
        let woken = most.min(asleep[word]);
        asleep[word] -= woken;
        (0..woken).for_each(|_| self.0.asleep.1[word].notify_one());
        woken
    }

    fn now(&self) -> Instant {
        self.0.begun
    }
}

fn who(member: u32) -> Who {
    Who { member, thread: 7 }
}

/// All of them in which a thread is interrupted so often at most.
fn every(interruptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(model);
}

/// Runs those beside each other, and this one.
fn beside(others: Vec<Box<dyn FnOnce() + Send>>, this: impl FnOnce()) {
    let threads: Vec<_> = others.into_iter().map(|other| loom::thread::spawn(other)).collect();
    this();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn one_thread_has_a_mutex_and_everybody_gets_it() {
    every(2, || {
        let memory = Local::new();
        let turn = |memory: Local, member| {
            move || {
                assert_eq!(Mutex(0).lock(&memory, who(member), Wait::Forever), Ok(false));
                memory.write();
                Mutex(0).unlock(&memory, who(member)).unwrap();
            }
        };
        let others: Vec<Box<dyn FnOnce() + Send>> =
            vec![Box::new(turn(memory.clone(), 2)), Box::new(turn(memory.clone(), 3))];
        beside(others, turn(memory.clone(), 1));
        assert_eq!(memory.load(0) & !0x8000_0000, 0);
        assert_eq!(memory.read(), 3);
    });
}

#[test]
fn a_dead_owners_mutex_goes_to_who_sleeps_for_it() {
    every(3, || {
        let memory = Local::new();
        Mutex(0).lock(&memory, who(9), Wait::No).unwrap();
        let host = memory.clone();
        let frees = move || free_of_the_dead(&host, 0..64, Kind::Mutex, || (1..9).collect(), None);
        beside(vec![Box::new(frees)], || {
            assert_eq!(Mutex(0).lock(&memory, who(1), Wait::Forever), Ok(true));
            Mutex(0).mend(&memory, who(1)).unwrap();
            Mutex(0).unlock(&memory, who(1)).unwrap();
            assert_eq!(Mutex(0).lock(&memory, who(2), Wait::No), Ok(false));
        });
    });
}

#[test]
fn a_signal_is_not_lost() {
    every(2, || {
        let memory = Local::new();
        let (mutex, condition) = (Mutex(0), Condition(64));
        let sender = memory.clone();
        let sends = move || {
            mutex.lock(&sender, who(2), Wait::Forever).unwrap();
            sender.write();
            condition.signal(&sender);
            mutex.unlock(&sender, who(2)).unwrap();
        };
        beside(vec![Box::new(sends)], || {
            mutex.lock(&memory, who(1), Wait::Forever).unwrap();
            while memory.read() == 0 {
                condition.wait(&memory, (mutex, &memory), who(1), Wait::Forever).unwrap();
            }
            mutex.unlock(&memory, who(1)).unwrap();
        });
    });
}

#[test]
fn a_semaphore_lets_as_many_through_as_it_was_given() {
    every(2, || {
        let memory = Local::new();
        let semaphore = Semaphore { at: 0, first: 0 };
        let takes = |memory: Local| move || semaphore.acquire(&memory, Wait::Forever).unwrap();
        let others: Vec<Box<dyn FnOnce() + Send>> =
            vec![Box::new(takes(memory.clone())), Box::new(takes(memory.clone()))];
        beside(others, || {
            semaphore.release(&memory, 1).unwrap();
            semaphore.release(&memory, 1).unwrap();
        });
        assert_eq!(semaphore.value(&memory), 0);
        assert_eq!(semaphore.acquire(&memory, Wait::No), Err(Refused::TimedOut));
    });
}

#[test]
fn nobody_reads_while_another_writes() {
    every(2, || {
        let memory = Local::new();
        let lock = RwLock(0);
        let writer = memory.clone();
        let writes = move || {
            lock.write(&writer, who(2), Wait::Forever).unwrap();
            writer.write();
            lock.end_write(&writer, who(2)).unwrap();
        };
        beside(vec![Box::new(writes)], || {
            lock.read(&memory, who(1), Wait::Forever).unwrap();
            memory.read();
            lock.end_read(&memory, who(1)).unwrap();
        });
    });
}

#[test]
fn a_writer_gets_what_a_dead_reader_had() {
    every(2, || {
        let memory = Local::new();
        let lock = RwLock(0);
        lock.read(&memory, who(9), Wait::No).unwrap();
        let host = memory.clone();
        let frees =
            move || free_of_the_dead(&host, 0..Kind::RwLock.bytes(), Kind::RwLock, || (1..9).collect(), None);
        beside(vec![Box::new(frees)], || {
            assert_eq!(lock.write(&memory, who(1), Wait::Forever), Ok(false));
            lock.end_write(&memory, who(1)).unwrap();
        });
    });
}

#[test]
fn all_leave_a_barrier_together() {
    every(2, || {
        let memory = Local::new();
        let barrier = Barrier { at: 0, parties: 2 };
        let patience = Duration::from_secs(1);
        let other = memory.clone();
        let comes = move || {
            barrier.wait(&other, 2, Wait::Forever, patience).unwrap();
            barrier.wait(&other, 2, Wait::Forever, patience).unwrap();
        };
        beside(vec![Box::new(comes)], || {
            barrier.wait(&memory, 1, Wait::Forever, patience).unwrap();
            barrier.wait(&memory, 1, Wait::Forever, patience).unwrap();
        });
        assert_eq!(memory.load(0), 2, "two rounds, none broken, nobody in the third");
    });
}

#[test]
fn who_waits_for_a_counter_sees_it_change() {
    every(3, || {
        let memory = Local::new();
        let other = memory.clone();
        beside(vec![Box::new(move || assert_eq!(Counter(0).add(&other, 1), 0))], || {
            assert_eq!(Counter(0).wait_while(&memory, 0, Wait::Forever), Ok(1));
        });
    });
}
