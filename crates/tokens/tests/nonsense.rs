//! What no honest host says: it gives nobody a token, and nothing grows by it.

use commonhold_coherence::HostId;
use commonhold_tokens::{Action, Event, Has, Kept, Leaving, Message, Part, Placed, State};

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
    let queue =
        |seed: &mut u64| (0..number(seed, 5)).map(|_| HostId(number(seed, 8) as u32)).collect::<Vec<_>>();
    let has = Has { index, here: true, waits: true, went_to: Some(host(seed)), ..Has::default() };
    let state = |seed: &mut u64| {
        let kept =
            Kept { moves: u64::MAX - number(seed, 2), changes: number(seed, 9), value: number(seed, 9) };
        let (watchers, readers) =
            (queue(seed), queue(seed).into_iter().map(|host| (host, u32::MAX)).collect());
        State { kept, watchers, readers, is_missed: number(seed, 2) == 0 }
    };
    match number(seed, 8) {
        7 => Message::Changed { count, index },
        0 => Message::Request { count, index, by: host(seed) },
        1 => Message::Token { count, index, died: true, queue: queue(seed), state: state(seed) },
        2 => Message::Join { count, known: count, has: vec![has; 3] },
        3 => Message::Leave(Leaving { known: count, has: vec![has; 3] }),
        4 => Message::Count { count },
        5 => Message::Counted { count, known: count, has: vec![has] },
        _ => Message::Begin {
            count,
            placed: vec![Placed {
                index,
                holder: host(seed),
                died: true,
                queue: queue(seed),
                state: state(seed),
            }],
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
    for turn in 0..200 {
        let mut part = asking();
        if turn % 2 == 0 {
            part = part.of_monitors();
        }
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

/// Bytes that a part keeps of what was said, as it tells itself.
fn kept(part: &Part) -> usize {
    format!("{part:?}").len()
}

/// A home that waits for what a host has, which never says it.
fn waiting_home() -> Part {
    let mut part = Part::first(HOME, MUTEXES);
    let mut actions = Vec::new();
    let has = vec![Has { here: true, ..Has::default() }];
    for from in [ME, EVIL] {
        let message = Message::Join { count: 0, known: 0, has: has.clone() };
        part.handle(Event::Said { from, message }, &mut actions);
    }
    assert!(matches!(actions.last(), Some(Action::Send(_, Message::Count { .. }))), "{actions:?}");
    part
}

#[test]
fn what_comes_too_early_is_not_kept_without_an_end() {
    let long = || (10..100_000).map(HostId).collect::<Vec<_>>();
    let mut part = waiting_home();
    let before = kept(&part);
    for index in 0..MUTEXES {
        for _ in 0..20 {
            let message = Message::Token {
                count: u64::MAX,
                index,
                died: false,
                queue: long(),
                state: State::default(),
            };
            part.handle(Event::Said { from: EVIL, message }, &mut Vec::new());
        }
    }
    assert!(kept(&part) < before + 1000, "so many hosts do not wait");
    for _ in 0..3000 {
        let queue = (10..1000).map(HostId).collect();
        let message =
            Message::Token { count: u64::MAX, index: 0, died: false, queue, state: State::default() };
        part.handle(Event::Said { from: EVIL, message }, &mut Vec::new());
    }
    assert!(kept(&part) < before + (1 << 23), "{}", kept(&part) - before);
}

/// Watchers and readers of a token that comes too early wait as those who want it do.
#[test]
fn what_travels_with_a_monitor_has_an_end() {
    let mut part = waiting_home();
    let before = kept(&part);
    for turn in 0..3000 {
        let many = || (10..1000).map(HostId);
        let state = State { watchers: many().collect(), ..State::default() };
        let readers = State { readers: many().map(|host| (host, 1)).collect(), ..State::default() };
        let state = if turn % 2 == 0 { state } else { readers };
        let message = Message::Token { count: u64::MAX, index: 0, died: false, queue: Vec::new(), state };
        part.handle(Event::Said { from: EVIL, message }, &mut Vec::new());
    }
    assert!(kept(&part) < before + (1 << 24), "{}", kept(&part) - before);
    let mut part = asking();
    let state = State { watchers: (0..2000).map(HostId).collect(), ..State::default() };
    let message = Message::Token { count: 1, index: 0, died: false, queue: Vec::new(), state };
    part.handle(Event::Said { from: EVIL, message }, &mut Vec::new());
    assert!(!part.is_here(0), "no so many hosts watch");
}

#[test]
fn who_joins_and_leaves_again_and_again_leaves_nothing_more_behind() {
    let all = |died, went_to| {
        let has = |index| Has { index, waits: true, died, went_to: Some(HostId(went_to)), ..Has::default() };
        (0..MUTEXES).map(has).collect::<Vec<_>>()
    };
    let (mut home, mut away) = (waiting_home(), Part::following(ME, MUTEXES, true, []));
    let before = [kept(&home), kept(&away)];
    for turn in 0..1000 {
        for part in [&mut home, &mut away] {
            let join = Message::Join { count: 0, known: turn, has: all(true, turn as u32) };
            part.handle(Event::Said { from: EVIL, message: join }, &mut Vec::new());
            let leave = Message::Leave(Leaving { known: turn, has: all(false, turn as u32) });
            part.handle(Event::Said { from: EVIL, message: leave }, &mut Vec::new());
        }
    }
    assert!(kept(&home) < before[0] + 2000 && kept(&away) < before[1] + 2000, "{home:?} {away:?}");
}

/// One who waits is named once, whatever a host says: else each of its lists would go to all others.
#[test]
fn a_list_that_names_one_mutex_often_is_not_heard() {
    let mut part = Part::first(HOME, MUTEXES);
    let mut actions = Vec::new();
    let has = Has { waits: true, ..Has::default() };
    for (from, many) in [(ME, 1), (EVIL, 10_000)] {
        let message = Message::Join { count: 0, known: 0, has: vec![has; many] };
        part.handle(Event::Said { from, message }, &mut actions);
        for count in 2..5 {
            let counted = Message::Counted { count, known: 1, has: vec![has] };
            part.handle(Event::Said { from: ME, message: counted }, &mut actions);
        }
    }
    for action in actions {
        let Action::Send(_, Message::Begin { placed, .. }) = action else { continue };
        assert!(placed.iter().all(|placed| placed.queue.len() <= 2), "{placed:?}");
    }
}

/// Counts that nobody has counted to end nothing: those who take part go on.
#[test]
fn a_number_of_a_count_that_is_no_number_stops_nobody() {
    let mut part = Part::following(HOME, MUTEXES, true, []);
    let mut actions = Vec::new();
    part.handle(Event::Home(HOME), &mut actions);
    let message = Message::Join { count: u64::MAX, known: u64::MAX, has: Vec::new() };
    part.handle(Event::Said { from: EVIL, message }, &mut actions);
    part.handle(Event::Over(commonhold_tokens::Timer::Opens), &mut actions);
    let message = Message::Leave(Leaving { known: u64::MAX, has: Vec::new() });
    part.handle(Event::Said { from: EVIL, message }, &mut actions);
    assert!(part.is_here(0), "it is the home still");
}
