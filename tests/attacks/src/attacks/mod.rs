//! The attacks, by what they reach for.

use crate::{Attack, How};

mod again;
mod faults;
mod floods;
mod guesses;
mod markup;
mod members;
mod messages;
mod names;
mod pagers;
mod races;
mod schedulers;
mod waits;
mod words;

/// All of them.
pub(crate) const TOPICS: &[&[Attack]] = &[
    again::ATTACKS,
    faults::ATTACKS,
    floods::ATTACKS,
    guesses::ATTACKS,
    markup::ATTACKS,
    members::ATTACKS,
    messages::ATTACKS,
    names::ATTACKS,
    pagers::ATTACKS,
    races::ATTACKS,
    schedulers::ATTACKS,
    waits::ATTACKS,
    words::ATTACKS,
];

/// An attack by a user.
const fn user(id: &'static str, tries: &'static str, attack: fn(&crate::scene::Local)) -> Attack {
    Attack { id, tries, how: How::User(attack) }
}

/// An attack by a member of a cluster.
const fn member(id: &'static str, tries: &'static str, attack: fn(&crate::scene::Members)) -> Attack {
    Attack { id, tries, how: How::Member(attack) }
}
