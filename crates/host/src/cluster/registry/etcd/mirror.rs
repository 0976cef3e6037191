//! What a host knows of the registry in etcd: the members, how far each has heard, and the losses in the order of etcd's
//! revisions. Pure.

use super::super::keys::{Change, SavedMember};
use crate::cluster::registry::News;
use crate::cluster::registry::departures::Departures;
use crate::cluster::wire::Member;
use commonhold_coherence::HostId;
use std::collections::BTreeMap;

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    /// The revision up to which it is.
    pub number: u64,
    epoch: u128,
    members: BTreeMap<HostId, Member>,
    /// Up to which revision each member has heard; one that has not said so joined at that revision.
    seen: BTreeMap<HostId, u64>,
    lost: Departures,
}

impl Mirror {
    /// All there is at a revision. Members that are not there any more were lost unseen.
    pub fn replace(
        &mut self,
        epoch: u128,
        number: u64,
        members: Vec<(HostId, SavedMember, u64)>,
        seen: Vec<(HostId, u64)>,
    ) {
        let gone: Vec<HostId> = self
            .members
            .keys()
            .filter(|host| !members.iter().any(|(member, _, _)| member == *host))
            .copied()
            .collect();
        self.epoch = epoch;
        self.number = number;
        gone.into_iter().for_each(|host| self.lose(host, number));
        for (host, saved, revision) in members {
            self.join(host, saved, revision);
        }
        for (host, revision) in seen {
            self.heard(host, revision);
        }
    }

    /// One change, at that revision.
    pub fn apply(&mut self, change: Change, revision: u64) {
        self.number = self.number.max(revision);
        match change {
            Change::Joined(host, saved) => self.join(host, saved, revision),
            Change::Gone(host) => self.lose(host, revision),
            Change::Heard(host, upto) => self.heard(host, upto),
            Change::GaveUp(_) | Change::Other => {}
        }
    }

    fn join(&mut self, host: HostId, saved: SavedMember, revision: u64) {
        let SavedMember { name, address, former, .. } = saved;
        let former = former.into_iter().map(HostId).collect();
        self.members.insert(host, Member { host, name, address, former });
        self.heard(host, revision);
    }

    fn heard(&mut self, host: HostId, upto: u64) {
        if self.members.contains_key(&host) {
            let seen = self.seen.entry(host).or_default();
            *seen = (*seen).max(upto);
        }
    }

    fn lose(&mut self, host: HostId, revision: u64) {
        self.seen.remove(&host);
        if self.members.remove(&host).is_some() {
            self.lost.note(revision, host);
        }
    }

    /// The same for everybody who has heard as far.
    pub fn news(&self) -> News {
        News {
            epoch: self.epoch,
            number: self.number,
            settled: self.seen.values().copied().min().unwrap_or(self.number),
            members: self.members.values().cloned().collect(),
            lost: self.lost.told(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(name: &str) -> SavedMember {
        SavedMember { name: name.into(), address: ([127, 0, 0, 1], 1).into(), lease: 1, former: Vec::new() }
    }

    #[test]
    fn losses_come_in_the_order_of_revisions_and_are_settled_when_all_have_heard() {
        let mut mirror = Mirror::default();
        let three = [(1, "a"), (2, "b"), (3, "c")];
        let members = three.map(|(n, name)| (HostId(n), saved(name), 10)).to_vec();
        mirror.replace(7, 20, members, vec![(HostId(1), 15)]);
        assert_eq!(mirror.news().settled, 10);
        mirror.apply(Change::Gone(HostId(2)), 21);
        mirror.apply(Change::Gone(HostId(9)), 22);
        let news = mirror.news();
        assert_eq!((news.number, news.lost), (22, vec![(21, HostId(2))]));
        mirror.apply(Change::Heard(HostId(1), 22), 23);
        mirror.apply(Change::Heard(HostId(2), 22), 23);
        assert!(mirror.news().settled < 21);
        mirror.apply(Change::Heard(HostId(3), 21), 24);
        assert_eq!(mirror.news().settled, 21);
    }

    #[test]
    fn who_is_missing_after_a_gap_was_lost() {
        let mut mirror = Mirror::default();
        mirror.replace(7, 20, vec![(HostId(1), saved("a"), 10), (HostId(2), saved("b"), 11)], Vec::new());
        mirror.replace(7, 40, vec![(HostId(1), saved("a"), 10)], Vec::new());
        assert_eq!(mirror.news().lost, [(40, HostId(2))]);
        assert_eq!(mirror.news().settled, 10);
    }
}
