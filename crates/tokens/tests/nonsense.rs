//! What no honest host says: it gives nobody a token, and nothing grows by it.

use commonhold_coherence::HostId;
use commonhold_tokens::{Action, Event, Has, Message, Part, Placed};

const HOME: HostId = HostId(1);
const ME: HostId = HostId(2);
const EVIL: HostId = HostId(6);
const MUTEXES: u32 = 4;

/// Numbers from a seed.
fn number(seed: &mut u64, sides: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % sides
}

fn any(seed: &mut u64) -> Message {
    let index = number(seed, 8) as u32; // half of them past the end
    let count = number(seed, 4);
    let host = |seed: &mut u64| HostId(number(seed, 8) as u32);
    let queue = |seed: &mut u64| (0..number(seed, 5)).map(|_| HostId(number(seed, 8) as u32)).collect();
    let has = Has { index, here: true, waits: true, died: false, went_to: Some(host(seed)) };
    match number(seed, 7) {
        0 => Message::Request { count, index, by: host(seed) },
        1 => Message::Token { count, index, died: true, queue: queue(seed) },
        2 => Message::Join { count, known: count, has: vec![has; 3] },
        3 => Message::Leave { has: vec![has; 3] },
        4 => Message::Count { count },
        5 => Message::Counted { count, known: count, has: vec![has] },
        _ => Message::Begin {
            count,
            placed: vec![Placed { index, holder: host(seed), died: true, queue: queue(seed) }],
        },
    }
}

/// A host that takes part, and has asked for the first mutex.
fn asking() -> Part {
    let mut part = Part::following(ME, MUTEXES, false, []);
    let mut actions = Vec::new();
    part.handle(Event::Home(HOME), &mut actions);
    let begin = Message::Begin { count: 1, placed: Vec::new() };
    part.handle(Event::Said { from: HOME, message: begin }, &mut actions);
    part.handle(Event::Wanted(0), &mut actions);
    assert!(
        matches!(actions.last(), Some(Action::Send(HOME, Message::Request { index: 0, .. }))),
        "{actions:?}"
    );
    part
}

#[test]
fn what_no_honest_host_says_gives_nobody_a_token() {
    let mut seed = 7;
    for _ in 0..200 {
        let mut part = asking();
        for _ in 0..200 {
            let mut actions = Vec::new();
            part.handle(Event::Said { from: EVIL, message: any(&mut seed) }, &mut actions);
            // Another host of the object may give away a token that is asked for, and no other.
            let given = |action: &Action| matches!(action, Action::Give { index, .. } if *index != 0);
            assert!(!actions.iter().any(given), "{actions:?}");
            assert!((1..8).all(|index| !part.is_here(index)));
            let queues = |action: &Action| match action {
                Action::Send(_, Message::Token { queue, .. }) => queue.len() <= 8,
                _ => true,
            };
            assert!(actions.iter().all(queues), "{actions:?}");
        }
        assert!(part.has().len() <= MUTEXES as usize, "nothing is kept of mutexes that are none");
    }
}

/// At the home: whoever says that it has all tokens has those that are the home's no more than before.
#[test]
fn a_home_keeps_what_it_has() {
    let mut seed = 11;
    for _ in 0..200 {
        let mut part = Part::first(HOME, MUTEXES);
        for _ in 0..100 {
            let mut actions = Vec::new();
            part.handle(Event::Said { from: EVIL, message: any(&mut seed) }, &mut actions);
            let taken = |action: &Action| matches!(action, Action::Void(_));
            assert!(!actions.iter().any(taken), "{actions:?}");
        }
        assert!(part.has().len() <= MUTEXES as usize);
    }
}
