//! Why this host is not in its cluster, or cannot reach another: kept as it happens, and told to whoever asks.

use super::registry::place::Place;
use super::{Cluster, lock};
use commonhold_coherence::HostId;
use commonhold_object::{ClusterStatus, Error, ErrorKind, Trouble};
use std::time::Instant;

/// Longest reason, in characters: part of it is the other end's own words.
const LONGEST: usize = 600;

/// Attempts of one kind, as long as none has succeeded.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempts {
    begun: Option<Instant>,
    last: Option<Error>,
}

impl Attempts {
    /// One begins.
    pub fn begin(&mut self) {
        self.begun.get_or_insert_with(Instant::now);
    }

    /// It failed.
    pub fn failed(&mut self, why: &Error) {
        self.begin();
        let mut why = why.clone();
        if let Some((end, _)) = why.message.char_indices().nth(LONGEST) {
            why.message.truncate(end);
        }
        self.last = Some(why);
    }

    /// It succeeded.
    pub fn succeeded(&mut self) {
        *self = Attempts::default();
    }

    /// What is wrong, if something is; `trying` where an attempt is under way that nothing has come of yet.
    fn told(&self, trying: impl FnOnce() -> String) -> Option<Trouble> {
        let begun = self.begun?;
        let (kind, why) = match &self.last {
            Some(error) => (error.kind, error.message.clone()),
            None => (ErrorKind::TimedOut, trying()),
        };
        Some(Trouble { kind, why, for_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX) })
    }
}

impl Cluster {
    /// How this host stands in its cluster; none if it is in none.
    pub fn standing(&self) -> Option<ClusterStatus> {
        if self.me.name.is_empty() {
            return None; // a host alone has no name
        }
        let registry = match &self.place {
            Place::Here => String::new(),
            Place::Host(address) => address.to_string(),
            Place::Etcd(place, _) => place.to_string(),
        };
        Some(ClusterStatus {
            name: self.me.name.clone(),
            address: self.me.address,
            trouble: self.own_trouble(),
            joined: self.has_joined_a_cluster(),
            registry,
        })
    }

    /// Why this host is not in its cluster, or cannot renew its lease.
    pub fn own_trouble(&self) -> Option<Trouble> {
        let joined = self.has_joined_a_cluster();
        let attempts = lock(&self.attempts);
        if joined && attempts.last.is_none() {
            return None; // a renewal is under way
        }
        attempts.told(|| "the registry has not answered yet".to_owned())
    }

    /// Why another host cannot be reached.
    pub fn trouble_with(&self, host: HostId) -> Option<Trouble> {
        lock(&self.unreachable).get(&host)?.told(|| "its connection is broken".to_owned())
    }

    /// The connection with a host broke, or could not be made again.
    pub(super) fn note_unreachable(&self, host: HostId, why: &Error) {
        lock(&self.unreachable).entry(host).or_default().failed(why);
    }
}
