//! The list: who belongs to the cluster and until when, whose name is whose, and who is lost, in order. Pure: the time is
//! told to it.

use super::departures::{Departures, followed, is_elsewhere, is_taken};
use super::{Before, Joining, News, out_of_reach};
use crate::cluster::wire::{Claim, Member};
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Name, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};

/// The list.
#[derive(Clone, Debug)]
pub(super) struct List {
    epoch: u128,
    number: u64,
    lease_ns: u64,
    members: BTreeMap<HostId, Standing>,
    names: BTreeMap<Name, (HostId, u128)>,
    lost: Departures,
}

/// One member.
#[derive(Clone, Debug)]
struct Standing {
    member: Member,
    /// End of the lease.
    until: u64,
    /// The last change that it heard of.
    seen: u64,
}

/// What is written down of a list.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Saved {
    epoch: u128,
    number: u64,
    lease_ns: u64,
    members: Vec<Member>,
    lost: Vec<(u64, HostId)>,
}

impl List {
    /// An empty list.
    pub fn new(epoch: u128, lease_ns: u64) -> List {
        List {
            epoch,
            number: 0,
            lease_ns,
            members: BTreeMap::new(),
            names: BTreeMap::new(),
            lost: Departures::default(),
        }
    }

    /// The list that another process kept before. Its members may still have leases, of which nothing is known but their
    /// length.
    pub fn restored(saved: Saved, lease_ns: u64, now: u64) -> List {
        let until = now + lease_ns.max(saved.lease_ns);
        let standing = |member: Member| (member.host, Standing { member, until, seen: 0 });
        List {
            number: saved.number,
            members: saved.members.into_iter().map(standing).collect(),
            lost: Departures::restored(saved.lost),
            ..List::new(saved.epoch, lease_ns)
        }
    }

    /// What is to be written down.
    pub fn saved(&self) -> Saved {
        Saved {
            epoch: self.epoch,
            number: self.number,
            lease_ns: self.lease_ns,
            members: self.members(),
            lost: self.lost.told(),
        }
    }

    /// How many changes there were.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How long a lease is.
    pub fn lease_ns(&self) -> u64 {
        self.lease_ns
    }

    /// A host joins, or comes back after the list's process was another.
    pub fn join(&mut self, joining: Joining, now: u64) -> Result<()> {
        let Joining { mut member, claims, before } = joining;
        let host = member.host;
        match before {
            Some(Before { epoch, .. }) if epoch != self.epoch => return Err(unknown(&member.name)),
            Some(Before { seen, .. }) => self.renew(host, seen, now).map_err(|_| unknown(&member.name))?,
            // It joined, did not hear it in time, and was lost: the others never hear that number again.
            None if self.lost.contains(host) => return Err(unknown(&member.name)),
            None => {
                member.former = self.make_room(&member, now)?;
                let until = now + self.lease_ns;
                if self.members.insert(host, Standing { member, until, seen: self.number }).is_none() {
                    self.number += 1;
                }
            }
        }
        self.replace(host, claims);
        Ok(())
    }

    /// A new process of a host takes the place of the one before, of which nothing is left but what it had newest. Gives
    /// all whose place it took.
    fn make_room(&mut self, member: &Member, now: u64) -> Result<Vec<HostId>> {
        if let Some(standing) = self.members.get(&member.host) {
            return Ok(standing.member.former.clone()); // it asks again: its answer was lost
        }
        let other = |other: &&Standing| other.member.name == member.name;
        let Some(Standing { member: other, until, .. }) = self.members.values().find(other) else {
            return Ok(Vec::new());
        };
        if other.address == member.address {
            let (host, former) = (other.host, followed(&other.former, other.host));
            self.lose(host);
            return Ok(former);
        }
        Err(is_elsewhere(other, until.saturating_sub(now).div_ceil(1_000_000_000)))
    }

    /// A host says that it is there, and how far it has heard.
    pub fn renew(&mut self, host: HostId, seen: u64, now: u64) -> Result<()> {
        let until = now + self.lease_ns;
        let known = self.members.get_mut(&host).ok_or_else(|| unknown(&host.to_string()))?;
        known.until = until;
        known.seen = known.seen.max(seen.min(self.number));
        Ok(())
    }

    /// Those whose leases are over are lost.
    pub fn expire(&mut self, now: u64) {
        let over = |standing: &&Standing| standing.until <= now;
        let over: Vec<HostId> = self.members.values().filter(over).map(|s| s.member.host).collect();
        over.into_iter().for_each(|host| self.lose(host));
    }

    /// A host is lost, and its names with it.
    pub fn lose(&mut self, host: HostId) {
        if self.members.remove(&host).is_none() {
            return;
        }
        self.names.retain(|_, (owner, _)| *owner != host);
        self.number += 1;
        self.lost.note(self.number, host);
    }

    /// What happened up to now.
    pub fn news(&self) -> News {
        News {
            epoch: self.epoch,
            number: self.number,
            settled: self.settled(),
            members: self.members(),
            lost: self.lost.told(),
        }
    }

    /// Up to this change all have heard.
    pub fn settled(&self) -> u64 {
        self.members.values().map(|standing| standing.seen).min().unwrap_or(self.number)
    }

    /// The number of the last loss.
    pub fn last_loss(&self) -> u64 {
        self.lost.last()
    }

    /// Who belongs.
    fn members(&self) -> Vec<Member> {
        self.members.values().map(|standing| standing.member.clone()).collect()
    }

    /// Gives a name to a host, unless another has it.
    pub fn claim(&mut self, host: HostId, claim: Claim) -> Result<()> {
        if !self.members.contains_key(&host) {
            return Err(out_of_reach()); // it would have the name for ever
        }
        if let Some(home) = self.home_of(claim.object).filter(|home| *home != host) {
            return Err(self.not_its(&claim, home));
        }
        match self.names.get(&claim.name) {
            Some((owner, object)) if (*owner, *object) != (host, claim.object) => {
                let owner = self.members.get(owner).map_or("another host", |s| s.member.name.as_str());
                Err(is_taken(&claim.name, owner))
            }
            _ => {
                self.names.insert(claim.name, (host, claim.object));
                Ok(())
            }
        }
    }

    fn not_its(&self, claim: &Claim, home: HostId) -> Error {
        let home = self.members.get(&home).map_or("another host", |s| s.member.name.as_str());
        let words = format!("the object that is to be {} is {home}'s: only its home names it", claim.name);
        Error::new(ErrorKind::Permission, words)
    }

    /// A member says which its names are.
    pub fn replace_own(&mut self, host: HostId, claims: Vec<Claim>) -> Result<()> {
        if !self.members.contains_key(&host) {
            return Err(out_of_reach()); // it would have them for ever
        }
        self.replace(host, claims);
        Ok(())
    }

    /// These are all the names of a host now. Where two have one, who was first keeps it; the other's object is its own
    /// alone until one is renamed. Nobody is the home of what another is the home of.
    pub fn replace(&mut self, host: HostId, claims: Vec<Claim>) {
        self.names.retain(|_, (owner, _)| *owner != host);
        let of_others: HashSet<u128> = self.names.values().map(|(_, object)| *object).collect();
        for claim in claims.into_iter().filter(|claim| !of_others.contains(&claim.object)) {
            self.names.entry(claim.name).or_insert((host, claim.object));
        }
    }

    /// Which host has the object of that identity.
    pub fn home_of(&self, object: u128) -> Option<HostId> {
        self.names.values().find(|(_, id)| *id == object).map(|(host, _)| *host)
    }

    /// Whose a name is.
    pub fn lookup(&self, name: &Name) -> Option<HostId> {
        self.names.get(name).map(|(host, _)| *host)
    }
}

fn unknown(name: &str) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("{name} is lost to the others: its lease ended, or the registry is another one"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: u64 = 100;

    fn joining(number: u32, name: &str, port: u16, claims: Vec<Claim>) -> Joining {
        let member = Member {
            host: HostId(number),
            name: name.into(),
            address: ([127, 0, 0, 1], port).into(),
            former: Vec::new(),
        };
        Joining { member, claims, before: None }
    }

    fn claim(name: &str, object: u128) -> Claim {
        Claim { name: Name::new(name).unwrap(), object, moving: None }
    }

    fn lost(list: &List) -> Vec<u32> {
        list.news().lost.iter().map(|(_, host)| host.0).collect()
    }

    #[test]
    fn a_name_has_one_owner_until_it_is_free_or_its_host_lost() {
        let mut list = List::new(9, LEASE);
        list.join(joining(1, "a", 1, vec![claim("/x", 10)]), 0).unwrap();
        list.join(joining(2, "b", 2, vec![claim("/x", 20), claim("/y", 21)]), 0).unwrap();
        assert_eq!(list.lookup(&Name::new("/x").unwrap()), Some(HostId(1)));
        assert_eq!(list.claim(HostId(2), claim("/x", 20)).unwrap_err().kind, ErrorKind::Exists);
        list.claim(HostId(1), claim("/x", 10)).unwrap();
        list.replace(HostId(2), vec![claim("/x", 20), claim("/y", 21)]);
        assert!(list.claim(HostId(2), claim("/x", 20)).is_err(), "not its to take");
        list.replace(HostId(1), Vec::new());
        list.claim(HostId(2), claim("/x", 20)).unwrap();
        list.lose(HostId(2));
        assert_eq!(list.lookup(&Name::new("/y").unwrap()), None);
        assert_eq!(lost(&list), [2]);
    }

    #[test]
    fn an_object_has_one_home_however_many_claim_it() {
        let mut list = List::new(9, LEASE);
        list.join(joining(1, "a", 1, vec![claim("/x", 10)]), 0).unwrap();
        list.join(joining(2, "b", 2, vec![claim("/a", 10), claim("/b", 20)]), 0).unwrap();
        assert_eq!((list.home_of(10), list.home_of(20)), (Some(HostId(1)), Some(HostId(2))));
        let why = list.claim(HostId(2), claim("/!a", 10)).unwrap_err();
        assert!(why.kind == ErrorKind::Permission && why.message.contains("is a's"), "{why}");
        list.replace(HostId(2), vec![claim("/!a", 10)]);
        assert_eq!(list.lookup(&Name::new("/!a").unwrap()), None);
        // Its own home names it as often as it likes, and what is free is whose it is next.
        list.claim(HostId(1), claim("/y", 10)).unwrap();
        list.lose(HostId(1));
        list.claim(HostId(2), claim("/!a", 10)).unwrap();
        assert_eq!(list.home_of(10), Some(HostId(2)));
    }

    #[test]
    fn a_host_is_lost_when_its_lease_is_over_and_not_before() {
        let mut list = List::new(9, LEASE);
        list.join(joining(1, "a", 1, Vec::new()), 0).unwrap();
        list.join(joining(2, "b", 2, Vec::new()), 10).unwrap();
        list.renew(HostId(1), 2, 50).unwrap();
        list.expire(109);
        assert_eq!(lost(&list), [0u32; 0]);
        list.expire(110);
        assert_eq!(lost(&list), [2]);
        assert_eq!(list.renew(HostId(2), 2, 111).unwrap_err().kind, ErrorKind::NotFound);
        let again = list.join(joining(2, "b", 2, Vec::new()), 111);
        assert_eq!(again.unwrap_err().kind, ErrorKind::NotFound, "it had not heard that it had joined");
        list.expire(150);
        assert_eq!(lost(&list), [2, 1]);
        let numbers: Vec<u64> = list.news().lost.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [3, 4]);
    }

    #[test]
    fn a_successor_takes_the_place_and_a_namesake_elsewhere_does_not() {
        let mut list = List::new(9, LEASE);
        list.join(joining(1, "a", 1, vec![claim("/x", 10)]), 0).unwrap();
        assert_eq!(list.join(joining(3, "a", 2, Vec::new()), 0).unwrap_err().kind, ErrorKind::Exists);
        // Its answer was lost: it asks again.
        list.join(joining(1, "a", 1, vec![claim("/x", 10)]), 5).unwrap();
        assert_eq!(lost(&list), [0u32; 0]);
        list.join(joining(2, "a", 1, vec![claim("/x", 10)]), 5).unwrap();
        assert_eq!(lost(&list), [1]);
        list.join(joining(4, "a", 1, vec![claim("/x", 10)]), 5).unwrap();
        list.join(joining(4, "a", 1, vec![claim("/x", 10)]), 6).unwrap();
        assert_eq!(list.news().members[0].former, [HostId(1), HostId(2)], "whom it follows, both times");
        list.lose(HostId(4));
        list.join(joining(5, "a", 1, vec![claim("/x", 10)]), 7).unwrap();
        assert!(list.news().members[0].former.is_empty(), "the others went on without the one before");
        assert_eq!(list.home_of(10), Some(HostId(5)));
    }

    #[test]
    fn a_loss_is_settled_when_all_have_heard_of_it_or_are_lost() {
        let mut list = List::new(9, LEASE);
        for (number, name) in [(1, "a"), (2, "b"), (3, "c")] {
            list.join(joining(number, name, number as u16, Vec::new()), 0).unwrap();
        }
        list.join(joining(4, "a", 1, Vec::new()), 0).unwrap();
        let loss = list.last_loss();
        assert!(list.settled() < loss);
        list.renew(HostId(4), list.number(), 50).unwrap();
        list.renew(HostId(2), list.number(), 50).unwrap();
        assert!(list.settled() < loss);
        list.expire(LEASE);
        assert_eq!(lost(&list), [1, 3]);
        assert!(list.settled() >= loss);
    }

    #[test]
    fn who_had_a_lease_before_the_list_was_another_process_has_it_for_its_length() {
        let mut list = List::new(9, LEASE);
        list.join(joining(1, "a", 1, vec![claim("/x", 10)]), 0).unwrap();
        list.join(joining(2, "b", 2, Vec::new()), 0).unwrap();
        let mut list = List::restored(list.saved(), 30, 1000);
        let back = |epoch| Joining {
            before: Some(Before { epoch, seen: 2 }),
            ..joining(1, "a", 1, vec![claim("/x", 10)])
        };
        assert_eq!(list.join(back(8), 1010).unwrap_err().kind, ErrorKind::NotFound);
        list.join(back(9), 1010).unwrap();
        assert_eq!(list.home_of(10), Some(HostId(1)));
        list.renew(HostId(1), 2, 1095).unwrap();
        list.expire(1099);
        assert_eq!(lost(&list), [0u32; 0]);
        list.expire(1100);
        assert_eq!(lost(&list), [2], "presumed, and never came: after the longer lease");
    }
}
