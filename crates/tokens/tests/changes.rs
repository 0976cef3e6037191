//! Who waits for a change in a monitor hears of it once, also if those who were to say so were killed.

use commonhold_coherence::HostId;
use commonhold_primitives::between::Left;
use commonhold_tokens::{Action, Event, Message, Part, State, Timer};

const HOME: HostId = HostId(1);
const ME: HostId = HostId(2);
const OTHER: HostId = HostId(6);

/// A host that has asked for the first of four monitors.
fn asking() -> Part {
    let mut part = Part::following(ME, 4, false, []).of_monitors();
    let mut actions = Vec::new();
    part.handle(Event::Home(HOME), &mut actions);
    let begin = Message::Begin { count: 1, placed: Vec::new() };
    part.handle(Event::Said { from: HOME, message: begin }, &mut actions);
    part.handle(Event::Wanted(0), &mut actions);
    part
}

/// The same, which was given it.
fn having(watchers: Vec<HostId>) -> Part {
    let mut part = asking();
    let readers = watchers.iter().map(|host| (*host, 1)).collect();
    let state = State { watchers, readers, ..State::default() };
    let message = Message::Token { count: 1, index: 0, died: false, queue: Vec::new(), state };
    let mut actions = Vec::new();
    part.handle(Event::Said { from: HOME, message }, &mut actions);
    let given = |action: &Action| matches!(action, Action::Give { given, .. } if given.readers <= 1);
    assert!(actions.iter().any(given), "{actions:?}");
    part
}

/// However often a host names it.
#[test]
fn a_host_is_told_once() {
    let mut part = having(vec![OTHER; 1000]);
    let mut actions = Vec::new();
    let left = Left { changes: 1, ..Left::default() };
    part.handle(Event::Released { index: 0, died: false, sleepers: false, left }, &mut actions);
    let told = |action: &&Action| matches!(action, Action::Send(OTHER, Message::Changed { .. }));
    assert_eq!(actions.iter().filter(told).count(), 1, "{actions:?}");
}

/// Who changed it let the token go, and was killed before it told its host.
#[test]
fn a_token_that_was_let_go_and_not_said_is_taken() {
    let part = having(vec![OTHER]);
    assert_eq!(part.to_take(|index| index == 0), [0], "no host asks for it");
    assert!(part.to_take(|_| false).is_empty());
    assert!(asking().to_take(|_| true).is_empty(), "it is at another host");
}

/// The host takes it to tell of a change, and whoever was woken for it is killed.
#[test]
fn a_token_that_nobody_takes_is_taken_back() {
    let mut part = having(vec![OTHER]);
    let mut actions = Vec::new();
    part.handle(Event::Over(Timer::Taken(0)), &mut actions);
    assert_eq!(actions, [Action::Claim { index: 0, firmly: true }]);
}
