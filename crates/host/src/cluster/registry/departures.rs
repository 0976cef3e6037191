//! Hosts that are lost, in order, and what both registries say of who is in the way or not there.

use super::super::wire::Member;
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Name};
use std::collections::VecDeque;

/// Losses that are told. Who heard of fewer learns the rest from who is no member any more.
const TOLD: usize = 256;
/// Processes of one host before the last that are known.
const FORMER: usize = 16;

/// The latest losses, each with the number of the change that it was.
#[derive(Clone, Debug, Default)]
pub(super) struct Departures(VecDeque<(u64, HostId)>);

impl Departures {
    /// Those that were told before.
    pub fn restored(told: Vec<(u64, HostId)>) -> Departures {
        Departures(told.into())
    }

    /// A host is lost, by that change.
    pub fn note(&mut self, number: u64, host: HostId) {
        self.0.push_back((number, host));
        if self.0.len() > TOLD {
            self.0.pop_front();
        }
    }

    /// Whether that host is one of them.
    pub fn contains(&self, host: HostId) -> bool {
        self.0.iter().any(|(_, lost)| *lost == host)
    }

    /// All that are told.
    pub fn told(&self) -> Vec<(u64, HostId)> {
        self.0.iter().copied().collect()
    }

    /// The number of the last.
    pub fn last(&self) -> u64 {
        self.0.back().map_or(0, |(number, _)| *number)
    }
}

/// The processes before the next one of a host, the latest of them.
pub(super) fn followed(former: &[HostId], last: HostId) -> Vec<HostId> {
    let first = former.len().saturating_sub(FORMER - 1);
    former[first..].iter().copied().chain([last]).collect()
}

/// A host elsewhere has the name, and its lease ends in so many seconds.
pub(super) fn is_elsewhere(other: &Member, seconds: u64) -> Error {
    let (name, address) = (&other.name, other.address);
    Error::new(
        ErrorKind::Exists,
        format!(
            "there is a host named {name} in the cluster, at {address}: start this one with another --name (if it is the \
             same host, moved: the lease of its earlier process may last for another {seconds} s)"
        ),
    )
}

/// That name is another host's.
pub(super) fn is_taken(name: &Name, owner: &str) -> Error {
    Error::new(
        ErrorKind::Exists,
        format!("{name} exists already, on {owner}: open it, or choose another name"),
    )
}

/// Nobody has that name.
pub(super) fn no_such_name(name: &Name) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no {name}, here or on another host"))
}

/// Nobody has that object.
pub(super) fn no_such_object() -> Error {
    Error::new(ErrorKind::NotFound, "no host has the object (any more)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_told_and_the_latest_followed() {
        let mut departures = Departures::default();
        assert_eq!((departures.last(), departures.told().len()), (0, 0));
        (1..=300).for_each(|number| departures.note(number, HostId(number as u32)));
        assert_eq!((departures.last(), departures.told().len()), (300, TOLD));
        assert_eq!(Departures::restored(departures.told()).told(), departures.told());
        let mut former = Vec::new();
        (1..=20).for_each(|number| former = followed(&former, HostId(number)));
        assert_eq!((former.len(), former[0], former[15]), (FORMER, HostId(5), HostId(20)));
    }
}
