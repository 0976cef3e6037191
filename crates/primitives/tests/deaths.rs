//! A process that dies after any step leaves a primitive that others go on with, once the host has
//! freed it; and memory that somebody wrote nonsense to harms nobody but those who wait.

use commonhold_primitives::{
    Barrier, Condition, Counter, Kind, MEMBERS, Memory, Mutex, Refused, RwLock, Semaphore, Wait, Who,
    free_of_the_dead,
};
use shared::{ALIVE, DEAD, Shared};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::time::{Duration, Instant};

mod shared;

const LONG: Duration = Duration::from_secs(60);

fn free(memory: &Shared, kind: Kind) {
    free_of_the_dead(memory, 0..2 * kind.bytes(), kind, || (1..DEAD.member).collect(), None);
}

fn after_every_step(kind: Kind, job: impl Fn(&Shared), then: impl Fn(&Shared)) {
    shared::after_every_step(job, |memory| free(memory, kind), then);
}

#[test]
fn a_mutex_goes_on() {
    let job = |memory: &Shared| {
        Mutex(64).lock(memory, DEAD, Wait::No).unwrap();
        Mutex(64).mend(memory, DEAD).unwrap();
        Mutex(64).unlock(memory, DEAD).unwrap();
    };
    after_every_step(Kind::Mutex, job, |memory| {
        let died = Mutex(64).lock(memory, ALIVE, Wait::No).unwrap();
        assert_eq!(Mutex(64).lock(memory, ALIVE, Wait::No), Err(Refused::Deadlock));
        Mutex(64).unlock(memory, ALIVE).unwrap();
        // It is said again until somebody mends it.
        assert_eq!(Mutex(64).lock(memory, ALIVE, Wait::No), Ok(died));
        Mutex(64).mend(memory, ALIVE).unwrap();
        Mutex(64).unlock(memory, ALIVE).unwrap();
        assert_eq!(Mutex(64).lock(memory, ALIVE, Wait::No), Ok(false));
    });
}

#[test]
fn who_waits_for_a_condition_may_die() {
    let job = |memory: &Shared| {
        Mutex(0).lock(memory, DEAD, Wait::No).unwrap();
        let late = Condition(64).wait(memory, (Mutex(0), memory), DEAD, memory.soon());
        assert_eq!(late, Err(Refused::TimedOut));
        Mutex(0).unlock(memory, DEAD).unwrap();
    };
    after_every_step(Kind::Mutex, job, |memory| {
        Mutex(0).lock(memory, ALIVE, Wait::No).unwrap();
        Condition(64).signal(memory);
        Condition(64).broadcast(memory);
        assert_eq!(memory.load(64) >> 31 & 1, 0, "nobody sleeps");
        let unlocked = Condition(64).wait(memory, (Mutex(128), memory), ALIVE, Wait::No);
        assert_eq!(unlocked, Err(Refused::NotOwner));
    });
}

#[test]
fn a_lock_to_read_and_write_goes_on() {
    let job = |memory: &Shared| {
        let lock = RwLock(0);
        lock.read(memory, DEAD, Wait::No).unwrap();
        lock.read(memory, DEAD, Wait::No).unwrap();
        lock.end_read(memory, DEAD).unwrap();
        lock.end_read(memory, DEAD).unwrap();
        lock.write(memory, DEAD, Wait::No).unwrap();
        lock.end_write(memory, DEAD).unwrap();
    };
    after_every_step(Kind::RwLock, job, |memory| {
        let lock = RwLock(0);
        if lock.read(memory, ALIVE, Wait::No) == Err(Refused::OwnerDied) {
            assert_eq!(lock.write(memory, ALIVE, Wait::No), Ok(true));
            lock.mend(memory, ALIVE).unwrap();
            lock.end_write(memory, ALIVE).unwrap();
            lock.read(memory, ALIVE, Wait::No).unwrap();
        }
        assert_eq!(lock.write(memory, ALIVE, memory.soon()), Err(Refused::TimedOut));
        lock.end_read(memory, ALIVE).unwrap();
        assert_eq!(lock.write(memory, ALIVE, Wait::No), Ok(false));
        assert_eq!(lock.read(memory, ALIVE, Wait::No), Err(Refused::Deadlock));
        lock.end_write(memory, ALIVE).unwrap();
        assert_eq!(lock.end_read(memory, ALIVE), Err(Refused::NotOwner));
        assert_eq!(lock.end_write(memory, ALIVE), Err(Refused::NotOwner));
    });
}

#[test]
fn a_table_of_processes_has_room_for_so_many_at_once() {
    let memory = Shared::new();
    let lock = RwLock(0);
    let who = |member| Who { member, thread: 1 };
    let most = MEMBERS as u32;
    (1..=most).for_each(|member| lock.read(&memory, who(member), Wait::No).unwrap());
    assert_eq!(lock.read(&memory, who(most + 1), Wait::No), Err(Refused::TooManyMembers));
    // Who reads no more makes room.
    lock.end_read(&memory, who(7)).unwrap();
    lock.read(&memory, who(most + 1), Wait::No).unwrap();
    assert_eq!(lock.read(&memory, who(7), Wait::No), Err(Refused::TooManyMembers));
}

#[test]
fn a_semaphore_and_a_counter_go_on() {
    let job = |memory: &Shared| {
        let semaphore = Semaphore { at: 0, first: 2 };
        semaphore.acquire(memory, Wait::No).unwrap();
        semaphore.release(memory, 1).unwrap();
        let late = Counter(64).wait_while(memory, 0, memory.soon());
        assert_eq!(late, Err(Refused::TimedOut));
        assert_eq!(Counter(64).exchange(memory, 0, 4), Ok(()));
    };
    after_every_step(Kind::Counter, job, |memory| {
        let semaphore = Semaphore { at: 0, first: 2 };
        assert!((1..=2).contains(&semaphore.value(memory)));
        assert_eq!(semaphore.release(memory, Kind::MOST_VALUE), Err(Refused::Overflow));
        semaphore.release(memory, 1).unwrap();
        semaphore.acquire(memory, Wait::No).unwrap();
        assert!([1, 5].contains(&(Counter(64).add(memory, 1) + 1)));
    });
}

#[test]
fn a_barrier_is_broken_for_those_who_wait() {
    let patience = Duration::from_secs(2);
    let job = |memory: &Shared| {
        let barrier = Barrier { at: 0, parties: 2 };
        assert_eq!(barrier.wait(memory, DEAD.member, memory.soon(), patience), Err(Refused::TimedOut));
        let last = Barrier { at: 0, parties: 1 }.wait(memory, DEAD.member, Wait::No, patience);
        assert!(last.unwrap().is_last);
    };
    after_every_step(Kind::Barrier { parties: 2 }, job, |memory| {
        let barrier = Barrier { at: 0, parties: 2 };
        // Somebody is missing who was there before, unless it died before it came at all.
        let was_there = memory.load(8) > 0;
        let begun = memory.now();
        let missing = if was_there { Refused::Broken } else { Refused::TimedOut };
        assert_eq!(barrier.wait(memory, 1, memory.soon(), patience), Err(missing));
        assert_eq!(memory.now() - begun, if was_there { patience } else { Duration::from_secs(3) });
        // With a newcomer it goes on.
        barrier.abort(memory);
        memory.words.borrow_mut()[0] += 1 << 32; // one has arrived
        assert!(barrier.wait(memory, 2, Wait::No, patience).unwrap().is_last);
        assert_eq!(memory.load(8), memory.load(16));
    });
}

#[test]
fn who_leaves_a_barrier_does_not_hide_anothers_end() {
    let kind = Kind::Barrier { parties: 4 };
    let (memory, barrier) = (Shared::new(), Barrier { at: 0, parties: 4 });
    let patience = Duration::from_secs(60);
    for member in [1, 2, DEAD.member] {
        let late = barrier.wait(&memory, member, memory.soon(), patience);
        assert_eq!(late, Err(Refused::TimedOut));
    }
    memory.words.borrow_mut()[0] += 1 << 32; // one has arrived, and waits
    let frees = |living: &[u32], left| {
        free_of_the_dead(&memory, 0..kind.bytes(), kind, || living.iter().copied().collect(), left);
    };
    // One closes it when the other has died, and the host has not come to that yet.
    frees(&[1], Some(2));
    assert_eq!((memory.load(0) as u32, memory.load(8)), (0, 0), "who left is not missed");
    frees(&[1], None);
    assert_eq!((memory.load(0) as u32, memory.load(8)), (1, 1), "who died is");
}

#[test]
fn a_host_may_die_while_it_frees_and_the_next_one_goes_on() {
    let kinds = [Kind::Mutex, Kind::RwLock, Kind::Barrier { parties: 4 }];
    for (kind, steps) in kinds.into_iter().flat_map(|kind| (0..200).map(move |steps| (kind, steps))) {
        let memory = Shared::new();
        let lock = RwLock(0);
        match kind {
            Kind::Mutex => assert_eq!(Mutex(0).lock(&memory, DEAD, Wait::No), Ok(false)),
            Kind::RwLock => lock.read(&memory, DEAD, Wait::No).unwrap(),
            _ => {
                let late = Barrier { at: 0, parties: 4 }.wait(&memory, DEAD.member, memory.soon(), LONG);
                assert_eq!(late, Err(Refused::TimedOut));
                memory.words.borrow_mut()[0] += 1 << 32; // one has arrived, and waits
            }
        }
        memory.is_killed(steps, || free(&memory, kind));
        free(&memory, kind);
        match kind {
            Kind::Mutex => assert_eq!(Mutex(0).lock(&memory, ALIVE, Wait::No), Ok(true)),
            Kind::RwLock => assert_eq!(lock.write(&memory, ALIVE, Wait::No), Ok(false)),
            _ => {
                assert_eq!(memory.load(0), 1 << 56 | 1, "the round was broken, and none after it");
                assert!(memory.load(8) > 0, "somebody is missing");
            }
        }
    }
}

#[test]
fn what_changed_since_it_was_asked_who_lives_is_left() {
    // The process comes back, and has it again, just after it was asked whether it had it open.
    let memory = Shared::new();
    Mutex(0).lock(&memory, DEAD, Wait::No).unwrap();
    free_of_the_dead(&memory, 0..64, Kind::Mutex, || (1..9).collect(), None);
    assert_eq!(memory.load(0), 0x4000_0000, "free, and its owner died");
    let again = |kind, job: &dyn Fn()| {
        let living = || {
            job();
            (1..9).collect()
        };
        free_of_the_dead(&memory, 0..Kind::RwLock.bytes(), kind, living, None);
    };
    let lock = RwLock(0);
    memory.words.borrow_mut().fill(0);
    lock.read(&memory, DEAD, Wait::No).unwrap();
    lock.end_read(&memory, DEAD).unwrap();
    again(Kind::RwLock, &|| lock.read(&memory, DEAD, Wait::No).unwrap());
    assert_eq!(lock.write(&memory, ALIVE, memory.soon()), Err(Refused::TimedOut), "it reads");
    // Who says that it sleeps keeps nobody from being freed.
    memory.words.borrow_mut().fill(0);
    Mutex(0).lock(&memory, DEAD, Wait::No).unwrap();
    again(Kind::Mutex, &|| {
        assert_eq!(Mutex(0).lock(&memory, ALIVE, memory.soon()), Err(Refused::TimedOut));
    });
    assert_eq!(Mutex(0).lock(&memory, ALIVE, Wait::No), Ok(true));
}

/// Memory in which another thread takes the mutex from under who was woken for it, too late.
struct Barged(Shared);

impl Memory for Barged {
    const SPINS: u32 = 0;

    fn load(&self, at: usize) -> u64 {
        self.0.load(at)
    }

    fn exchange(&self, at: usize, old: u64, new: u64) -> Result<(), u64> {
        self.0.exchange(at, old, new)
    }

    fn add(&self, at: usize, more: u64) -> u64 {
        self.0.add(at, more)
    }

    fn sleep(&self, at: usize, value: u32, at_most: Duration) {
        self.0.sleep(at, value, at_most);
        self.0.words.borrow_mut()[at / 8] = 5 << 32 | 1;
    }

    fn wake(&self, at: usize, most: u32) -> u32 {
        self.0.wake(at, most)
    }

    fn now(&self) -> Instant {
        self.0.now()
    }
}

#[test]
fn who_is_woken_too_late_leaves_word_of_those_who_sleep_on() {
    let memory = Barged(Shared::new());
    Mutex(0).lock(&memory, Who { member: 4, thread: 1 }, Wait::No).unwrap();
    let soon = Wait::Until(memory.now() + Duration::from_millis(10));
    assert_eq!(Mutex(0).lock(&memory, ALIVE, soon), Err(Refused::TimedOut));
    assert_eq!(memory.load(0), 5 << 32 | 1 << 31 | 1, "its owner wakes the next");
}

#[test]
fn each_of_many_is_freed_and_it_is_asked_once_for_each_part() {
    let words = RefCell::new(vec![0; 8 * 5000]);
    let memory = Shared { words, steps_left: Cell::new(u64::MAX), now: Cell::new(Instant::now()) };
    (0..5000).for_each(|index| assert_eq!(Mutex(64 * index).lock(&memory, DEAD, Wait::No), Ok(false)));
    let mut asked = 0;
    let living = || {
        asked += 1;
        HashSet::new()
    };
    free_of_the_dead(&memory, 0..64 * 5000, Kind::Mutex, living, None);
    assert!((0..5000).all(|index| memory.load(64 * index) == 1 << 30));
    assert!(asked <= 5);
}

#[test]
fn nonsense_harms_nobody_but_those_who_wait() {
    // A small generator of numbers that are the same each time.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let patience = Duration::from_secs(1);
    for _ in 0..if cfg!(miri) { 20 } else { 20_000 } {
        let memory = Shared::new();
        memory
            .words
            .borrow_mut()
            .iter_mut()
            .for_each(|word| *word = next() & (0u64.wrapping_sub(next() & 1)));
        let kinds = [Kind::Mutex, Kind::RwLock, Kind::Barrier { parties: 3 }, Kind::Counter];
        for kind in kinds {
            // A host's steps are as many as there are words, some times over.
            let host = memory.is_killed(2000, || free(&memory, kind));
            assert!(!host, "{kind}");
        }
        let soon = memory.soon();
        let calls = memory.is_killed(5000, || {
            // What comes of them is chance: they end.
            let _ = Mutex(0).lock(&memory, ALIVE, soon);
            let _ = Mutex(0).unlock(&memory, ALIVE);
            let _ = RwLock(64).read(&memory, ALIVE, soon);
            let _ = RwLock(64).write(&memory, ALIVE, soon);
            let _ = RwLock(64).end_write(&memory, ALIVE);
            let _ = Semaphore { at: 8, first: 1 }.acquire(&memory, soon);
            let _ = Semaphore { at: 8, first: 1 }.release(&memory, 1);
            let _ = Counter(16).wait_while(&memory, 3, soon);
            Condition(24).signal(&memory);
            Condition(24).broadcast(&memory);
            let _ = Barrier { at: 0, parties: 3 }.wait(&memory, ALIVE.member, soon, patience);
        });
        assert!(!calls, "each ends by its deadline");
    }
}
