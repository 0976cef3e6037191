//! What the pager writes is garbage, in every word and at every time: the host gives no place away
//! that is another's, looks nowhere outside, and goes on with the next pager's questions.

use commonhold_queues::{
    Answering, Answers, Asking, BYTES, Completion, DATA, DATA_PAGES, ENTRIES, LONGEST_NAME, Memory, PAGE,
    PageIn, Place,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

#[derive(Clone)]
struct Bytes(Rc<RefCell<Vec<u8>>>);

impl Bytes {
    fn new() -> Bytes {
        Bytes(Rc::new(RefCell::new(vec![0; BYTES])))
    }
}

impl Memory for Bytes {
    fn load(&self, at: usize) -> u32 {
        let mut word = [0; 4];
        self.read(at, &mut word);
        u32::from_le_bytes(word)
    }

    fn store(&self, at: usize, value: u32) {
        self.write(at, &value.to_le_bytes());
    }

    fn swap(&self, at: usize, value: u32) -> u32 {
        let before = self.load(at);
        self.store(at, value);
        before
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        self.0.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.0.borrow()[at..at + bytes.len()]);
    }

    fn sleep(&self, _at: usize, _value: u32, _at_most: Duration) {}

    fn wake(&self, _at: usize) {}
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 8) % limit
    }
}

fn page_in(call: u64, length: u32) -> PageIn<'static> {
    PageIn { call, object: "/x", offset: 0, length }
}

#[test]
fn questions_come_as_they_were_asked_and_answers_in_any_order() {
    let memory = Bytes::new();
    let (mut asking, mut answers) = (Asking::new(memory.clone()), Answers::new(memory.clone()));
    let mut answering = Answering::new(memory);
    for round in 0..200 {
        let calls: Vec<u64> = (0..u64::from(ENTRIES)).map(|n| round << 8 | n).collect();
        calls.iter().for_each(|call| assert!(asking.ask(&page_in(*call, PAGE as u32))));
        assert!(!asking.ask(&page_in(0, PAGE as u32)), "there are no more slots");
        let mut given: Vec<_> = std::iter::from_fn(|| answering.take()).collect();
        assert!(given.iter().map(|question| question.call).eq(calls.iter().copied()));
        given.rotate_left(round as usize % 64);
        given.iter().for_each(|question| answering.complete(question, question.call % 3 > 0));
        for question in &given {
            let completion = answers.take().unwrap();
            assert_eq!((completion.call, completion.is_filled), (question.call, question.call % 3 > 0));
            assert_eq!(asking.place_of(&completion), Some(question.place));
            asking.free(&completion);
        }
        assert!(answers.take().is_none() && answering.take().is_none());
    }
}

#[test]
fn what_does_not_fit_is_not_asked() {
    let memory = Bytes::new();
    let mut asking = Asking::new(memory);
    let long = "x".repeat(LONGEST_NAME + 1);
    assert!(!asking.ask(&PageIn { object: &long, ..page_in(1, 1) }));
    assert!(asking.ask(&PageIn { object: &long[1..], ..page_in(1, 1) }));
    let most = (DATA_PAGES - 1) * PAGE as u32;
    assert!(!asking.ask(&page_in(2, most + 1)));
    assert!(asking.ask(&page_in(2, most)));
    assert!(!asking.ask(&page_in(3, 1)), "all of the area is taken");
}

#[test]
fn a_slot_is_free_once_its_call_is_answered_and_no_sooner() {
    let memory = Bytes::new();
    let mut asking = Asking::new(memory);
    assert!(asking.ask(&page_in(7, PAGE as u32)));
    let of = |call, slot| Completion { call, slot, is_filled: true };
    for wrong in [of(6, 0), of(7, 1), of(7, ENTRIES), of(7, u32::MAX), of(0, 0)] {
        assert_eq!(asking.place_of(&wrong), None);
        asking.free(&wrong);
    }
    assert!(asking.place_of(&of(7, 0)).is_some());
    asking.free(&of(7, 0));
    assert_eq!(asking.place_of(&of(7, 0)), None, "twice");
    asking.free(&of(7, 0));
}

/// Completions of calls that are not there, of slots that are not theirs, twice, late, and any word
/// that a pager can write.
#[test]
fn garbage_in_every_word_frees_no_slot_of_a_call_that_was_not_answered() {
    for seed in 1..=if cfg!(miri) { 3 } else { 300_u64 } {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let memory = Bytes::new();
        let (mut asking, mut answers) = (Asking::new(memory.clone()), Answers::new(memory.clone()));
        let mut open: Vec<u64> = Vec::new();
        for call in 1..=200 {
            if asking.ask(&page_in(call, random.below(9) as u32 * PAGE as u32 / 2 + 1)) {
                open.push(call);
            }
            for _ in 0..random.below(30) {
                // Mostly where something is decided by it: the queues' own words, and the completions.
                let at = match random.below(3) {
                    0 => 64 * random.below(4) as usize,
                    1 => 20480 + 4 * random.below(256) as usize,
                    _ => 4 * random.below(DATA as u64 / 4) as usize,
                };
                let value = [random.next(), random.below(80), random.below(call + 1)];
                memory.store(at, value[random.below(3) as usize] as u32);
            }
            let mut taken: Vec<Place> = Vec::new();
            for _ in 0..random.below(70) {
                let Some(completion) = answers.take() else { break };
                let Some(place) = asking.place_of(&completion) else { continue };
                assert!(open.contains(&completion.call), "seed {seed}: a call that is not there");
                assert!(place.at >= DATA && place.at + place.length <= BYTES);
                taken.push(place);
                asking.free(&completion);
                open.retain(|call| *call != completion.call);
            }
            let overlap = |a: &Place, b: &Place| a.at < b.at + b.length && b.at < a.at + a.length;
            for (n, place) in taken.iter().enumerate() {
                assert!(!taken[..n].iter().any(|other| overlap(place, other)), "seed {seed}");
            }
        }
    }
}
