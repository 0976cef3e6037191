//! The attacks, by what they reach for.

use crate::scene::{CLUSTER, Cluster, Local, MACHINE, Machine, Members};
use crate::{Attack, How};

mod again;
mod audit;
mod budget;
mod claims;
mod closing;
mod copies;
mod descriptors;
mod elves;
mod faults;
mod floods;
mod guesses;
mod images;
mod late;
mod liars;
mod markup;
mod members;
mod memory;
mod messages;
mod metrics;
mod names;
mod pagers;
mod paths;
mod places;
mod quota;
mod races;
mod rights;
mod schedulers;
mod state;
mod store;
mod stuck;
mod stuck_pagers;
mod tokens;
mod waits;
mod words;

/// All of them.
pub(crate) const TOPICS: &[&[Attack]] = &[
    again::ATTACKS,
    audit::ATTACKS,
    budget::ATTACKS,
    claims::ATTACKS,
    closing::ATTACKS,
    copies::ATTACKS,
    descriptors::ATTACKS,
    faults::ATTACKS,
    floods::ATTACKS,
    guesses::ATTACKS,
    images::ATTACKS,
    late::ATTACKS,
    liars::ATTACKS,
    markup::ATTACKS,
    members::ATTACKS,
    memory::ATTACKS,
    messages::ATTACKS,
    metrics::ATTACKS,
    names::ATTACKS,
    pagers::ATTACKS,
    paths::ATTACKS,
    places::ATTACKS,
    quota::ATTACKS,
    races::ATTACKS,
    rights::ATTACKS,
    schedulers::ATTACKS,
    state::ATTACKS,
    store::ATTACKS,
    stuck::ATTACKS,
    stuck_pagers::ATTACKS,
    tokens::ATTACKS,
    waits::ATTACKS,
    words::ATTACKS,
];

/// An attack by a user.
const fn user(id: &'static str, tries: &'static str, attack: fn(&Local)) -> Attack {
    user_of(MACHINE, id, tries, attack)
}

/// An attack by a user, against a host of that kind.
const fn user_of(machine: Machine, id: &'static str, tries: &'static str, attack: fn(&Local)) -> Attack {
    Attack { id, tries, how: How::User(machine, attack) }
}

/// A host with these options.
const fn with(options: &'static [&'static str]) -> Machine {
    Machine { options, ..MACHINE }
}

/// A host that the scene kills.
const KILLED: Machine = Machine { kills: true, ..MACHINE };

/// An attack by a member of a cluster.
const fn member(id: &'static str, tries: &'static str, attack: fn(&Members)) -> Attack {
    member_of(CLUSTER, id, tries, attack)
}

/// An attack by a member of a cluster of that kind.
const fn member_of(cluster: Cluster, id: &'static str, tries: &'static str, attack: fn(&Members)) -> Attack {
    Attack { id, tries, how: How::Member(cluster, attack) }
}

/// An attack while nobody can go on.
const fn alone(id: &'static str, tries: &'static str, attack: fn()) -> Attack {
    Attack { id, tries, how: How::Alone(attack) }
}
