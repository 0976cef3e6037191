//! Monitors on one host: a process that dies after any step leaves one that others go on with, once the host has freed it and
//! settled what that left; so does a host that dies while it does that. Who harms others by nonsense harms those who wait.

use commonhold_primitives::between::{
    Barrier, Condition, Counter, Given, Left, Monitor, RwLock, Semaphore, free_monitors_of_the_dead,
};
use commonhold_primitives::{Kind, Mutex, Refused, Taken, Wait};
use shared::{ALIVE, DEAD, Shared};
use std::time::Duration;

mod shared;

const PATIENCE: Duration = Duration::from_secs(60);
const SEMAPHORE: Kind = Kind::Semaphore { value: 2 };
const BARRIER: Kind = Kind::Barrier { parties: 2 };

/// What comes with a token that comes back as it went.
fn same(left: &Left) -> Given {
    let Left { changes, value, moves, .. } = *left;
    Given { changes, value, moves, ..Given::default() }
}

/// A host frees number 0 of whoever has ended, takes it from the threads, and gives it back.
fn settle(memory: &Shared, kind: Kind) {
    free_monitors_of_the_dead(memory, 0..kind.bytes(), kind, || (1..DEAD.member).collect(), None);
    let monitor = Monitor { at: 0, kind };
    let (taken, left) = monitor.take_away(memory, true);
    if let Taken::Yes { died, .. } = taken {
        monitor.give(memory, died, false, &same(&left));
    }
}

fn after_every_step(kind: Kind, job: impl Fn(&Shared), then: impl Fn(&Shared)) {
    shared::after_every_step(job, |memory| settle(memory, kind), then);
}

#[test]
fn a_semaphore_goes_on() {
    let semaphore = Semaphore { at: 0, first: 2 };
    let job = |memory: &Shared| {
        semaphore.acquire(memory, DEAD, Wait::No).unwrap();
        semaphore.release(memory, DEAD, 1).unwrap();
    };
    after_every_step(SEMAPHORE, job, |memory| {
        let value = semaphore.value(memory, ALIVE).unwrap();
        assert!((1..=2).contains(&value));
        assert_eq!(semaphore.release(memory, ALIVE, Kind::MOST_VALUE), Err(Refused::Overflow));
        semaphore.release(memory, ALIVE, 1).unwrap();
        (0..=value).for_each(|_| semaphore.acquire(memory, ALIVE, Wait::No).unwrap());
        assert_eq!(semaphore.acquire(memory, ALIVE, Wait::No), Err(Refused::TimedOut));
        assert_eq!(semaphore.acquire(memory, ALIVE, memory.soon()), Err(Refused::TimedOut));
    });
}

#[test]
fn a_counter_goes_on() {
    let job = |memory: &Shared| {
        assert_eq!(Counter(0).wait_while(memory, DEAD, 0, memory.soon()), Err(Refused::TimedOut));
        assert_eq!(Counter(0).exchange(memory, DEAD, 0, 4), Ok(0));
        assert_eq!(Counter(0).exchange(memory, DEAD, 0, 5), Ok(4));
    };
    after_every_step(Kind::Counter, job, |memory| {
        let value = Counter(0).add(memory, ALIVE, 1).unwrap();
        assert!([0, 4].contains(&value));
        assert_eq!(Counter(0).wait_while(memory, ALIVE, value, Wait::No), Ok(value + 1));
    });
}

#[test]
fn who_waits_for_a_condition_may_die() {
    let job = |memory: &Shared| {
        Mutex(64).lock(memory, DEAD, Wait::No).unwrap();
        let late = Condition(0).wait(memory, (Mutex(64), memory), DEAD, memory.soon());
        assert_eq!(late, Err(Refused::TimedOut));
        Condition(0).signal(memory, DEAD).unwrap();
    };
    after_every_step(Kind::Condition, job, |memory| {
        let number = Condition(0).number(memory);
        Condition(0).signal(memory, ALIVE).unwrap();
        assert_ne!(Condition(0).number(memory), number);
        let unlocked = Condition(0).wait(memory, (Mutex(128), memory), ALIVE, Wait::No);
        assert_eq!(unlocked, Err(Refused::NotOwner));
    });
}

#[test]
fn a_lock_to_read_and_write_goes_on() {
    let lock = RwLock(0);
    let job = |memory: &Shared| {
        lock.read(memory, DEAD, Wait::No).unwrap();
        lock.read(memory, DEAD, Wait::No).unwrap();
        assert_eq!(lock.write(memory, DEAD, memory.soon()), Err(Refused::TimedOut));
        lock.end_read(memory, DEAD).unwrap();
        lock.end_read(memory, DEAD).unwrap();
        assert_eq!(lock.write(memory, DEAD, Wait::No), Ok(false));
        lock.end_write(memory, DEAD).unwrap();
    };
    after_every_step(Kind::RwLock, job, |memory| {
        // One may have said that it waits to write: readers believe that for a while.
        if lock.read(memory, ALIVE, memory.soon()) == Err(Refused::OwnerDied) {
            assert_eq!(lock.write(memory, ALIVE, Wait::No), Ok(true));
            lock.end_write(memory, ALIVE).unwrap();
            assert_eq!(lock.write(memory, ALIVE, Wait::No), Ok(true), "nobody has mended it");
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
fn a_barrier_is_broken_for_those_who_wait() {
    let barrier = Barrier { at: 0, parties: 2 };
    let job = |memory: &Shared| {
        assert_eq!(barrier.wait(memory, DEAD, memory.soon(), PATIENCE), Err(Refused::TimedOut));
        let last = Barrier { at: 0, parties: 1 }.wait(memory, DEAD, Wait::No, PATIENCE);
        assert!(last.unwrap().is_last);
        barrier.abort(memory, DEAD).unwrap();
    };
    after_every_step(BARRIER, job, |memory| {
        // Nobody has arrived, or who had has ended.
        let late = barrier.wait(memory, ALIVE, memory.soon(), PATIENCE);
        assert_eq!(late, Err(Refused::TimedOut));
        assert!(Barrier { at: 0, parties: 1 }.wait(memory, ALIVE, Wait::No, PATIENCE).unwrap().is_last);
    });
}

/// A thread of another host reads, or has arrived.
fn others(readers: u32, value: u64) -> Given {
    Given { readers, value, is_watched: true, ..Given::default() }
}

#[test]
fn what_others_have_comes_with_the_token() {
    let (memory, lock) = (Shared::new(), RwLock(0));
    let monitor = Monitor { at: 0, kind: Kind::RwLock };
    monitor.begin_away(&memory);
    assert_eq!(lock.read(&memory, ALIVE, memory.soon()), Err(Refused::TimedOut), "it is away");
    assert!(!monitor.give(&memory, false, false, &others(1, 0)));
    assert_eq!(lock.write(&memory, ALIVE, memory.soon()), Err(Refused::TimedOut), "one reads elsewhere");
    // It told the host of a change, since somebody elsewhere waits for one: the host has the word by now.
    let (taken, left) = monitor.take_away(&memory, false);
    assert!(matches!(taken, Taken::Yes { died: false, .. }) && left.changes > 0);
    monitor.give(&memory, false, false, &Given { is_watched: false, ..others(0, left.value) });
    lock.read(&memory, ALIVE, memory.soon()).unwrap();
    let (_, left) = monitor.take_away(&memory, false);
    assert_eq!(left.readers, 1);
}

#[test]
fn a_host_may_die_while_it_settles_and_the_next_one_goes_on() {
    for (kind, steps) in
        [Kind::RwLock, BARRIER, SEMAPHORE].into_iter().flat_map(|k| (0..400).map(move |s| (k, s)))
    {
        let memory = Shared::new();
        match kind {
            Kind::RwLock => RwLock(0).read(&memory, DEAD, Wait::No).unwrap(),
            BARRIER => {
                let barrier = Barrier { at: 0, parties: 2 };
                let late = barrier.wait(&memory, DEAD, memory.soon(), PATIENCE);
                assert_eq!(late, Err(Refused::TimedOut));
                memory.words.borrow_mut()[3] += 1 << 32; // one has arrived, and waits
            }
            _ => Semaphore { at: 0, first: 2 }.acquire(&memory, DEAD, Wait::No).unwrap(),
        }
        memory.is_killed(steps, || settle(&memory, kind));
        // The next one finds the word away, if the other had taken it, and then it is at the home.
        let monitor = Monitor { at: 0, kind };
        let seen = monitor.seen(&memory);
        if !seen.here {
            monitor.give(&memory, false, false, &same(&seen.left));
        }
        settle(&memory, kind);
        match kind {
            Kind::RwLock => assert_eq!(RwLock(0).write(&memory, ALIVE, Wait::No), Ok(false)),
            BARRIER => {
                let value = memory.words.borrow()[3];
                assert!(
                    value as u32 >= 1 && value >> 32 & 0xff_ffff == 1 << 23,
                    "{value:x}: the round was broken"
                );
            }
            _ => assert_eq!(Semaphore { at: 0, first: 2 }.value(&memory, ALIVE), Ok(1)),
        }
    }
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
    for _ in 0..if cfg!(miri) { 20 } else { 20_000 } {
        let memory = Shared::new();
        for word in memory.words.borrow_mut().iter_mut() {
            *word = next() & 0u64.wrapping_sub(next() & 1);
        }
        for kind in [Kind::RwLock, BARRIER, SEMAPHORE, Kind::Counter, Kind::Condition] {
            assert!(!memory.is_killed(3000, || settle(&memory, kind)), "{kind}");
        }
        let soon = memory.soon();
        let calls = memory.is_killed(20_000, || {
            // What comes of them is chance: they end.
            let _ = RwLock(0).read(&memory, ALIVE, soon);
            let _ = RwLock(0).write(&memory, ALIVE, soon);
            let _ = RwLock(0).end_write(&memory, ALIVE);
            let _ = Semaphore { at: 0, first: 1 }.acquire(&memory, ALIVE, soon);
            let _ = Counter(0).wait_while(&memory, ALIVE, 3, soon);
        });
        assert!(!calls, "each ends by its deadline");
    }
}

#[test]
fn whoever_has_a_lock_on_a_host_that_is_lost_may_have_written() {
    let (memory, lock) = (Shared::new(), RwLock(0));
    let monitor = Monitor { at: 0, kind: Kind::RwLock };
    let (_, left) = monitor.take_away(&memory, true);
    monitor.give(&memory, true, false, &same(&left));
    assert_eq!(lock.read(&memory, ALIVE, Wait::No), Err(Refused::OwnerDied));
    assert_eq!(lock.write(&memory, ALIVE, Wait::No), Ok(true));
    lock.mend(&memory, ALIVE).unwrap();
    lock.end_write(&memory, ALIVE).unwrap();
    lock.read(&memory, ALIVE, Wait::No).unwrap();
    lock.end_read(&memory, ALIVE).unwrap();
    // Of one that died here it is known that it did not.
    Mutex(0).lock(&memory, DEAD, Wait::No).unwrap();
    settle(&memory, Kind::RwLock);
    assert_eq!(lock.write(&memory, ALIVE, Wait::No), Ok(false));
}
