//! What a queue promises, one step after the other: order, room, deaths after every step, and
//! memory that somebody wrote nonsense to.

mod common;
#[path = "../../../tests/golden.rs"]
mod golden;

use common::{HEAD, Killed, LOCK, Local, Shared, TAIL};
use commonhold_channel::{
    Form, HEADER_BYTES, Landing, Place, Queue, Received, Refused, SLOTS, Wait, bytes_for, other_version,
};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

fn place(length: u64) -> Place {
    Place { object: 1 << 40 | 5, name: "/lab/input".into(), offset: 4096, length }
}

fn receive(queue: &Queue<Local>) -> Result<(u32, Vec<u8>), Refused> {
    let mut bytes = Vec::new();
    let received = queue.receive(&mut bytes, Wait::No)?;
    assert_eq!(received.length, bytes.len());
    Ok((received.kind, bytes))
}

/// Runs something that is killed after so many steps; `None`: it was.
fn killed<T>(
    shared: &Rc<Shared>,
    number: u32,
    steps: u64,
    job: impl FnOnce(&Queue<Local>) -> T,
) -> Option<T> {
    // Opening takes a step.
    let queue = Local::queue_that_dies(shared, number, steps + 1);
    match catch_unwind(AssertUnwindSafe(|| job(&queue))) {
        Ok(done) => Some(done),
        Err(panic) if panic.is::<Killed>() => {
            shared.thread_died(number);
            None
        }
        Err(panic) => resume_unwind(panic),
    }
}

#[test]
fn messages_come_out_in_order_and_whole() {
    let shared = Shared::new(64);
    let (sender, receiver) = (Local::queue(&shared, 1), Local::queue(&shared, 2));
    // Close to where positions wrap, too.
    for start in [0, u32::MAX - 7] {
        [HEAD, TAIL].iter().for_each(|word| shared.set(*word, start));
        for length in (0..=48).chain((0..40).rev()) {
            let bytes: Vec<u8> = (0..length).collect();
            sender.send(u32::from(length), &bytes, Wait::No).unwrap();
            assert_eq!(receive(&receiver), Ok((u32::from(length), bytes)));
        }
        assert_eq!(receive(&receiver), Err(Refused::Empty));
    }
    for n in 0..3 {
        sender.send(n, b"", Wait::No).unwrap();
    }
    assert_eq!(sender.send(3, b"a", Wait::No), Err(Refused::Full));
    sender.send(3, b"", Wait::No).unwrap();
    assert_eq!(sender.send(4, b"", Wait::No), Err(Refused::Full));
    assert_eq!(sender.send(4, &[0; 49], Wait::No), Err(Refused::TooLarge { most: 48 }));
    for n in 0..4 {
        assert_eq!(receive(&receiver), Ok((n, vec![])));
    }
}

#[test]
fn a_message_that_does_not_fit_the_buffer_stays() {
    let shared = Shared::new(64);
    let queue = Local::queue(&shared, 1);
    queue.send(7, b"twelve bytes", Wait::No).unwrap();
    let mut small = [0; 11];
    let refused = queue.receive(&mut small.as_mut_slice(), Wait::No);
    assert_eq!(refused, Err(Refused::TooSmall { length: 12 }));
    let mut enough = [0; 16];
    let received = queue.receive(&mut enough.as_mut_slice(), Wait::No).unwrap();
    assert_eq!(received, Received { kind: 7, form: Form::Bytes, length: 12 });
    assert_eq!(&enough[..12], b"twelve bytes");
}

#[test]
fn whoever_waits_is_woken_and_nobody_else() {
    let shared = Shared::new(64);
    let (sender, receiver) = (Local::queue(&shared, 1), Local::queue(&shared, 2));
    let until = Wait::Until(shared.now.get() + Duration::from_secs(60));
    let other = shared.clone();
    let wake = move |_: &Shared| Local::queue(&other, 3).send(9, b"late", Wait::No).unwrap();
    *shared.while_asleep.borrow_mut() = Some(Box::new(wake));
    let mut bytes = Vec::new();
    assert_eq!(receiver.receive(&mut bytes, until).unwrap().kind, 9);
    assert_eq!(*shared.wakes.borrow(), [TAIL]);
    sender.send(1, &[0; 48], Wait::No).unwrap();
    assert_eq!(*shared.wakes.borrow(), [TAIL], "nobody sleeps");
    let other = shared.clone();
    let wake = move |_: &Shared| drop(receive(&Local::queue(&other, 3)).unwrap());
    *shared.while_asleep.borrow_mut() = Some(Box::new(wake));
    sender.send(2, b"", until).unwrap();
    assert_eq!(*shared.wakes.borrow(), [TAIL, HEAD]);
    // Out of time, in sleeps of a second.
    assert_eq!(sender.send(3, &[0; 48], until), Err(Refused::Full));
    receive(&receiver).unwrap();
    assert_eq!(receiver.receive(&mut bytes, until), Err(Refused::Empty));
}

#[test]
fn a_sender_may_die_after_any_step() {
    let mut sent = [0, 0];
    for steps in 0.. {
        let shared = Shared::new(64);
        let receiver = Local::queue(&shared, 2);
        receiver.send(1, b"before", Wait::No).unwrap();
        let done = killed(&shared, 7, steps, |queue| queue.send(2, b"in between", Wait::No));
        assert_eq!(receive(&receiver), Ok((1, b"before".to_vec())));
        let found = receive(&receiver);
        match &found {
            Ok(message) => assert_eq!(*message, (2, b"in between".to_vec())),
            Err(refused) => assert_eq!(*refused, Refused::Empty),
        }
        sent[usize::from(found.is_ok())] += 1;
        receiver.send(3, b"after", Wait::No).unwrap();
        assert_eq!(receive(&receiver), Ok((3, b"after".to_vec())));
        assert_eq!(shared.get(LOCK), 0);
        if done.is_some() {
            assert!(found.is_ok());
            break;
        }
    }
    assert!(sent[0] > 20 && sent[1] > 1, "{sent:?}");
}

#[test]
fn a_receiver_may_die_after_any_step() {
    let mut left = [0, 0];
    for steps in 0.. {
        let shared = Shared::new(64);
        let other = Local::queue(&shared, 2);
        other.send(1, b"first", Wait::No).unwrap();
        other.send(2, b"second", Wait::No).unwrap();
        let done = killed(&shared, 7, steps, receive);
        let found = receive(&other).unwrap();
        if found.0 == 1 {
            assert!(done.is_none());
            assert_eq!(found, (1, b"first".to_vec()));
            assert_eq!(receive(&other), Ok((2, b"second".to_vec())));
        } else {
            assert_eq!(found, (2, b"second".to_vec()));
        }
        left[usize::from(found.0 == 1)] += 1;
        assert_eq!(receive(&other), Err(Refused::Empty));
        if done.is_some() {
            break;
        }
    }
    assert!(left[0] > 1 && left[1] > 20, "{left:?}");
}

#[test]
fn who_takes_the_lock_of_a_dead_wakes_all_that_it_may_have_left_asleep() {
    let shared = Shared::new(64);
    let queue = Local::queue(&shared, 1);
    shared.set(LOCK, 0x4000_0000);
    queue.send(1, b"", Wait::No).unwrap();
    assert_eq!(shared.wakes.borrow()[..2], [TAIL, HEAD]);
    assert_eq!(shared.get(LOCK), 0);
}

#[test]
fn a_lock_that_nobody_gives_back_is_an_error_with_its_owner() {
    let shared = Shared::new(64);
    let queue = Local::queue(&shared, 1);
    shared.set(LOCK, 4711);
    let begun = shared.now.get();
    assert_eq!(queue.send(1, b"", Wait::No), Err(Refused::Locked { thread: 4711 }));
    assert_eq!(shared.now.get(), begun);
    assert_eq!(queue.send(1, b"", Wait::Forever), Err(Refused::Locked { thread: 4711 }));
    assert_eq!(shared.now.get(), begun + Duration::from_secs(10));
    // Its own number, as of a thread in another name space: as any other.
    shared.set(LOCK, 1);
    assert_eq!(receive(&queue), Err(Refused::Locked { thread: 1 }));
    let free = |shared: &Shared| shared.set(LOCK, 0);
    *shared.while_asleep.borrow_mut() = Some(Box::new(free));
    queue.send(1, b"", Wait::Forever).unwrap();
    assert_eq!(*shared.wakes.borrow(), [LOCK], "others may sleep, too");
}

/// Whoever may read the memory can sleep on its words, and be woken in another's place.
#[test]
fn nobody_relies_on_being_woken() {
    let shared = Shared::new(64);
    let queue = Local::queue(&shared, 1);
    let soon = Wait::Until(shared.now.get() + Duration::from_secs(30));
    assert_eq!(receive(&queue), Err(Refused::Empty));
    assert_eq!(queue.receive(&mut Vec::new(), soon), Err(Refused::Empty));
    assert_eq!(
        queue.take(1, Wait::Until(shared.now.get() + Duration::from_secs(30))),
        Err(Refused::NoLanding { largest: 0 })
    );
    shared.set(LOCK, 4711);
    assert_eq!(queue.send(1, b"", Wait::Forever), Err(Refused::Locked { thread: 4711 }));
    assert_eq!(shared.longest_sleep.get(), Duration::from_secs(1));
}

#[test]
fn landings_go_from_the_receiver_to_a_sender_and_back() {
    let shared = Shared::new(128);
    let (sender, receiver) = (Local::queue(&shared, 1), Local::queue(&shared, 2));
    assert_eq!(sender.take(5, Wait::No), Err(Refused::NoLanding { largest: 0 }));
    let large = receiver.post(&place(8192), Wait::No).unwrap();
    let small = receiver.post(&place(100), Wait::No).unwrap();
    assert_eq!(sender.take(8193, Wait::No), Err(Refused::NoLanding { largest: 8192 }));
    assert_eq!(sender.take(100, Wait::No), Ok((small, place(100))));
    assert_eq!(sender.take(100, Wait::No), Ok((large, place(8192))));
    sender.release(large, Wait::No).unwrap();
    assert_eq!(sender.take(1, Wait::No), Ok((large, place(8192))));
    sender.send_landed(large, 8000, (3, b"about it"), Wait::No).unwrap();
    let mut bytes = Vec::new();
    let received = receiver.receive(&mut bytes, Wait::No).unwrap();
    assert_eq!((received.kind, received.form), (3, Form::Landed(large, 8000)));
    assert_eq!(bytes, b"about it");
    // A late sender has nothing to say.
    receiver.withdraw(small, Wait::No).unwrap();
    let again = receiver.post(&place(100), Wait::No).unwrap();
    assert!(again != small && again != large);
    assert_eq!(sender.take(1, Wait::No), Ok((again, place(100))));
    for landing in [small, large, Landing::of_number(u64::MAX), Landing::of_number(0)] {
        assert_eq!(sender.send_landed(landing, 1, (3, b""), Wait::No), Err(Refused::Withdrawn));
        assert_eq!(sender.release(landing, Wait::No), Err(Refused::Withdrawn));
        assert_eq!(receiver.withdraw(landing, Wait::No), Err(Refused::Withdrawn));
    }
    assert_eq!(Landing::of_number(again.number()), again);
    for _ in 1..SLOTS {
        receiver.post(&place(1), Wait::No).unwrap();
    }
    assert_eq!(receiver.post(&place(1), Wait::No), Err(Refused::NoSlot));
    assert_eq!(receiver.withdraw_all(Wait::No), Ok(SLOTS));
    receiver.post(&place(1), Wait::No).unwrap();
}

#[test]
fn a_sender_with_a_landing_may_die_after_any_step() {
    for steps in 0.. {
        let shared = Shared::new(128);
        let receiver = Local::queue(&shared, 2);
        let landing = receiver.post(&place(100), Wait::No).unwrap();
        let done = killed(&shared, 7, steps, |queue| {
            let (landing, _) = queue.take(50, Wait::No).unwrap();
            queue.send_landed(landing, 50, (1, b"x"), Wait::No).unwrap();
        });
        let mut bytes = Vec::new();
        match receiver.receive(&mut bytes, Wait::No) {
            Ok(received) => assert_eq!(received.form, Form::Landed(landing, 50)),
            Err(refused) => {
                assert_eq!(refused, Refused::Empty);
                receiver.withdraw(landing, Wait::No).unwrap();
            }
        }
        assert_eq!(receiver.withdraw_all(Wait::No), Ok(0));
        if done.is_some() {
            break;
        }
    }
}

#[test]
fn nonsense_is_an_error_and_nothing_worse() {
    let fresh = || {
        let shared = Shared::new(64);
        let queue = Local::queue(&shared, 1);
        queue.send(1, b"twelve bytes", Wait::No).unwrap();
        (shared, queue)
    };
    let bad = |at: usize, value: u32| {
        let (shared, queue) = fresh();
        shared.set(at, value);
        let refused = receive(&queue);
        assert!(matches!(refused, Err(Refused::Damaged(_))), "{at}: {value}: {refused:?}");
        assert_eq!(receive(&queue), refused, "and remains so");
        assert_eq!(shared.get(LOCK), 0);
    };
    [4, 28, 31, 72, 0x8000_0000, u32::MAX - 7].iter().for_each(|tail| bad(TAIL, *tail));
    [3, 24, u32::MAX, 0x7fff_fff8].iter().for_each(|head| bad(HEAD, *head));
    [17, 64, 0x8000_0000, u32::MAX - 15, u32::MAX].iter().for_each(|length| bad(HEADER_BYTES, *length));
    bad(TAIL, 8);
    // A form of a later version is passed over.
    let (shared, queue) = fresh();
    shared.set(HEADER_BYTES + 8, 5);
    queue.send(2, b"", Wait::No).unwrap();
    assert_eq!(receive(&queue), Err(Refused::UnknownForm(5)));
    assert_eq!(receive(&queue), Ok((2, vec![])));
    // A landing that is none.
    let (shared, queue) = fresh();
    shared.set(HEADER_BYTES + 8, 1);
    assert!(matches!(receive(&queue), Err(Refused::Damaged(_))));
    let (shared, queue) = fresh();
    queue.post(&place(9), Wait::No).unwrap();
    shared.set(1024 + 32, 1025);
    assert!(matches!(queue.take(1, Wait::No), Err(Refused::Damaged(_))));
}

#[test]
fn other_memory_is_no_queue() {
    let shared = Shared::new(64);
    shared.set(0, u32::from_le_bytes(*b"chq\x02"));
    let open = |shared: &Rc<Shared>| {
        let queue = Local {
            shared: shared.clone(),
            number: 1,
            steps_left: std::cell::Cell::new(u64::MAX),
            expects: std::cell::Cell::new(false),
        };
        Queue::open(queue).map(drop)
    };
    assert_eq!(open(&shared), Err(Refused::NotAQueue(u32::from_le_bytes(*b"chq\x02"))));
    for ring in [0, 16, 48, 68] {
        assert_eq!(open(&Shared::new(ring)), Err(Refused::NotAQueue(0)));
    }
    assert_eq!(bytes_for(0), Some(36 << 10));
    assert_eq!(bytes_for(4097), Some(40 << 10));
    assert_eq!(bytes_for(1 << 30), Some((1 << 30) + (32 << 10)));
    assert_eq!([bytes_for((1 << 30) + 1), bytes_for(u64::MAX)], [None, None]);
}

#[test]
fn whatever_is_written_there_every_call_ends() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let rounds = if cfg!(miri) { 200 } else { 20_000 };
    let shared = Shared::new(128);
    let queue = Local::queue(&shared, 1);
    for _ in 0..rounds {
        for _ in 0..random() % 3 {
            let at = match random() % 3 {
                0 => 4 * (random() as usize % 8),
                1 => HEADER_BYTES + 4 * (random() as usize % 32),
                _ => 1024 + 4 * (random() as usize % 64),
            };
            let value = if random() % 2 == 0 { random() as u32 } else { random() as u32 % 256 };
            shared.set(at.max(4), value);
        }
        let soon = Wait::Until(shared.now.get() + Duration::from_secs(2));
        let wait = if random() % 2 == 0 { Wait::No } else { soon };
        // Each has an outcome, whichever it is.
        match random() % 5 {
            0 => drop(queue.send(1, &[7; 20], wait)),
            1 => drop(queue.take(5, wait)),
            2 => drop(queue.post(&place(10), wait)),
            3 => drop(queue.withdraw_all(wait)),
            _ => drop(queue.receive(&mut Vec::new(), wait)),
        }
        if random() % 4 == 0 {
            let words = [(LOCK, 0), (HEAD, 0), (TAIL, 0)];
            words.iter().for_each(|(word, value)| shared.set(*word, *value));
        }
    }
}

#[test]
fn the_memory_is_that_of_its_version() {
    let shared = Shared::new(4096);
    let queue = Local::queue(&shared, 1);
    queue.send(7, b"bytes", Wait::No).unwrap();
    queue.post(&place(8192), Wait::No).unwrap();
    drop(queue);
    let words = HEADER_BYTES / 4 + 16;
    let written: Vec<u8> = (0..words).flat_map(|word| shared.get(4 * word).to_le_bytes()).collect();
    let kept = golden::check(env!("CARGO_MANIFEST_DIR"), "channel", 1, &written);
    let shared = Shared::new(4096);
    let queue = Local::queue(&shared, 1);
    for (word, bytes) in kept.as_chunks().0.iter().enumerate() {
        shared.set(4 * word, u32::from_le_bytes(*bytes));
    }
    assert_eq!(receive(&queue), Ok((7, b"bytes".to_vec())));
    assert_eq!(queue.take(8192, Wait::No).unwrap().1, place(8192));
    let word = |version: u8| u32::from_le_bytes([b'c', b'h', b'q', version]);
    assert_eq!([0, 1, 2].map(word).map(other_version), [Some(0), None, Some(2)]);
    assert_eq!(other_version(u32::from_le_bytes(*b"heap")), None);
}
