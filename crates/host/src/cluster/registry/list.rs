//! The list: who belongs to the cluster and until when, how far each has heard, and who is lost, in order. Pure: the time is
//! told to it.

use super::departures::{Departures, followed, is_elsewhere};
use super::{Before, Joining, News};
use crate::cluster::wire::Member;
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// A member that renews, and says for so many leases that it has not heard of a loss, is deaf: it is lost itself.
const DEAF_LEASES: u64 = 8;
/// The same of one that has heard of it, and says that it has not done what follows: that may take as long as it takes to
/// copy what is newest there.
const STUCK_LEASES: u64 = 64;
/// Losses of which it is known when they were.
const TIMED: usize = 4096;

/// The list.
#[derive(Clone, Debug)]
pub(super) struct List {
    epoch: u128,
    number: u64,
    lease_ns: u64,
    members: BTreeMap<HostId, Standing>,
    lost: Departures,
    /// The number of each loss, and when it was.
    lost_at: VecDeque<(u64, u64)>,
}

/// One member.
#[derive(Clone, Debug)]
struct Standing {
    member: Member,
    /// End of the lease.
    until: u64,
    /// The last change that it heard of, and the last of which it has done what follows.
    heard: u64,
    seen: u64,
}

/// What is written down of a list.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Saved {
    pub(super) epoch: u128,
    pub(super) number: u64,
    pub(super) lease_ns: u64,
    pub(super) members: Vec<Member>,
    pub(super) lost: Vec<(u64, HostId)>,
}

impl List {
    /// An empty list.
    pub fn new(epoch: u128, lease_ns: u64) -> List {
        List {
            epoch,
            number: 0,
            lease_ns,
            members: BTreeMap::new(),
            lost: Departures::default(),
            lost_at: VecDeque::new(),
        }
    }

    /// The list that another process kept before. Its members may still have leases, of which nothing is known but their
    /// length.
    pub fn restored(saved: Saved, lease_ns: u64, now: u64) -> Option<List> {
        const NO_LEASE_NS: u64 = 1 << 62;
        // Numbers must be there to be counted on, and each loss has one that was.
        let is_sound = saved.number < 1 << 62
            && saved.lease_ns < NO_LEASE_NS
            && saved.lost.iter().is_sorted_by(|(one, _), (next, _)| one <= next)
            && saved.lost.last().is_none_or(|(number, _)| *number <= saved.number);
        if !is_sound {
            return None;
        }
        let until = now + lease_ns.max(saved.lease_ns);
        let standing = |member: Member| (member.host, Standing { member, until, heard: 0, seen: 0 });
        Some(List {
            number: saved.number,
            lost_at: saved.lost.iter().map(|(number, _)| (*number, now)).collect(),
            members: saved.members.into_iter().map(standing).collect(),
            lost: Departures::restored(saved.lost),
            ..List::new(saved.epoch, lease_ns)
        })
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
        let Joining { mut member, before, .. } = joining;
        let host = member.host;
        match before {
            Some(Before { epoch, .. }) if epoch != self.epoch => return Err(unknown(&member.name)),
            Some(before) => self.renew(host, before, now).map_err(|_| unknown(&member.name))?,
            // It joined, did not hear it in time, and was lost: the others never hear that number again.
            None if self.lost.contains(host) => return Err(unknown(&member.name)),
            None => {
                member.former = self.make_room(&member, now)?;
                let (until, heard) = (now + self.lease_ns, self.number);
                if self.members.insert(host, Standing { member, until, heard, seen: heard }).is_none() {
                    self.number += 1;
                }
            }
        }
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
            self.lose(host, now);
            return Ok(former);
        }
        Err(is_elsewhere(other, until.saturating_sub(now).div_ceil(1_000_000_000)))
    }

    /// A host says that it is there, and how far it has heard. Of a lease that is over nothing is renewed: its host's loss
    /// may be written down just now.
    pub fn renew(&mut self, host: HostId, before: Before, now: u64) -> Result<()> {
        let until = now + self.lease_ns;
        let number = self.number;
        let known = self.members.get_mut(&host).filter(|known| known.until > now);
        let known = known.ok_or_else(|| unknown(&host.to_string()))?;
        known.until = known.until.max(until); // a list before this one may have given a longer lease
        known.seen = known.seen.max(before.seen.min(number));
        known.heard = known.heard.max(before.heard.min(number)).max(known.seen);
        Ok(())
    }

    /// What was renewed while this list, which was a copy of that one, changed.
    pub fn take_renewals(&mut self, of: &List) {
        for (host, known) in &mut self.members {
            if let Some(other) = of.members.get(host) {
                known.until = known.until.max(other.until);
                known.heard = known.heard.max(other.heard);
                known.seen = known.seen.max(other.seen);
            }
        }
    }

    /// Those whose leases are over are lost, and those that do not hear, or do nothing about what they hear: others wait for
    /// them. Gives the latter, for the log.
    pub fn expire(&mut self, now: u64) -> Vec<String> {
        let is_over = |standing: &&Standing| standing.until <= now;
        let over: Vec<HostId> = self.members.values().filter(is_over).map(|s| s.member.host).collect();
        over.into_iter().for_each(|host| self.lose(host, now));
        let is_deaf = |standing: &&Standing| {
            self.waited_ns(standing.heard, now) >= DEAF_LEASES.saturating_mul(self.lease_ns)
                || self.waited_ns(standing.seen, now) >= STUCK_LEASES.saturating_mul(self.lease_ns)
        };
        let deaf: Vec<Member> = self.members.values().filter(is_deaf).map(|s| s.member.clone()).collect();
        deaf.iter().for_each(|member| self.lose(member.host, now));
        deaf.into_iter().map(|member| member.name).collect()
    }

    /// How long ago the first loss was that who has heard so far has not heard of.
    fn waited_ns(&self, heard: u64, now: u64) -> u64 {
        let next = self.lost_at.partition_point(|(number, _)| *number <= heard);
        self.lost_at.get(next).map_or(0, |(_, at)| now.saturating_sub(*at))
    }

    /// A host is lost.
    pub fn lose(&mut self, host: HostId, now: u64) {
        if self.members.remove(&host).is_none() {
            return;
        }
        self.number += 1;
        self.lost.note(self.number, host);
        self.lost_at.push_back((self.number, now));
        if self.lost_at.len() > TIMED {
            self.lost_at.pop_front();
        }
    }

    /// Whether a host belongs.
    pub fn is_member(&self, host: HostId) -> bool {
        self.members.contains_key(&host)
    }

    /// What a host is called, for people.
    pub fn called(&self, host: HostId) -> String {
        self.members.get(&host).map_or("another host", |s| s.member.name.as_str()).to_owned()
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

    /// Whether somebody has not done yet what follows from the last loss.
    pub fn waits_for_somebody(&self) -> bool {
        self.settled() < self.last_loss()
    }

    /// The number of the last loss.
    pub fn last_loss(&self) -> u64 {
        self.lost.last()
    }

    /// Who belongs.
    fn members(&self) -> Vec<Member> {
        self.members.values().map(|standing| standing.member.clone()).collect()
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

    fn joining(number: u32, name: &str, port: u16) -> Joining {
        let member = Member {
            host: HostId(number),
            name: name.into(),
            address: ([127, 0, 0, 1], port).into(),
            former: Vec::new(),
        };
        Joining { member, claims: Vec::new(), before: None }
    }

    /// That far it has heard, and done what follows.
    fn at(seen: u64) -> Before {
        Before { epoch: 9, heard: seen, seen }
    }

    fn lost(list: &List) -> Vec<u32> {
        list.news().lost.iter().map(|(_, host)| host.0).collect()
    }

    #[test]
    fn a_host_is_lost_when_its_lease_is_over_and_not_before() {
        let mut list = List::new(9, LEASE);
        list.join(joining(1, "a", 1), 0).unwrap();
        list.join(joining(2, "b", 2), 10).unwrap();
        list.renew(HostId(1), at(2), 50).unwrap();
        list.expire(109);
        assert_eq!(lost(&list), [0u32; 0]);
        list.expire(110);
        assert_eq!(lost(&list), [2]);
        assert_eq!(list.renew(HostId(2), at(2), 111).unwrap_err().kind, ErrorKind::NotFound);
        let again = list.join(joining(2, "b", 2), 111);
        assert_eq!(again.unwrap_err().kind, ErrorKind::NotFound, "it had not heard that it had joined");
        list.expire(150);
        assert_eq!(lost(&list), [2, 1]);
        let numbers: Vec<u64> = list.news().lost.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [3, 4]);
    }

    #[test]
    fn a_successor_takes_the_place_and_a_namesake_elsewhere_does_not() {
        let mut list = List::new(9, LEASE);
        list.join(joining(1, "a", 1), 0).unwrap();
        assert_eq!(list.join(joining(3, "a", 2), 0).unwrap_err().kind, ErrorKind::Exists);
        // Its answer was lost: it asks again.
        list.join(joining(1, "a", 1), 5).unwrap();
        assert_eq!(lost(&list), [0u32; 0]);
        list.join(joining(2, "a", 1), 5).unwrap();
        assert_eq!(lost(&list), [1]);
        list.join(joining(4, "a", 1), 5).unwrap();
        list.join(joining(4, "a", 1), 6).unwrap();
        assert_eq!(list.news().members[0].former, [HostId(1), HostId(2)], "whom it follows, both times");
        list.lose(HostId(4), 6);
        list.join(joining(5, "a", 1), 7).unwrap();
        assert!(list.news().members[0].former.is_empty(), "the others went on without the one before");
    }

    #[test]
    fn a_loss_is_settled_when_all_have_heard_of_it_or_are_lost() {
        let mut list = List::new(9, LEASE);
        for (number, name) in [(1, "a"), (2, "b"), (3, "c")] {
            list.join(joining(number, name, number as u16), 0).unwrap();
        }
        list.join(joining(4, "a", 1), 0).unwrap();
        let loss = list.last_loss();
        assert!(list.settled() < loss);
        list.renew(HostId(4), at(list.number()), 50).unwrap();
        list.renew(HostId(2), at(list.number()), 50).unwrap();
        assert!(list.settled() < loss);
        list.expire(LEASE);
        assert_eq!(lost(&list), [1, 3]);
        assert!(list.settled() >= loss);
    }

    #[test]
    fn who_had_a_lease_before_the_list_was_another_process_has_it_for_its_length() {
        let mut list = List::new(9, LEASE);
        list.join(joining(1, "a", 1), 0).unwrap();
        list.join(joining(2, "b", 2), 0).unwrap();
        let mut list = List::restored(list.saved(), 30, 1000).unwrap();
        let back = |epoch| Joining { before: Some(Before { epoch, ..at(2) }), ..joining(1, "a", 1) };
        assert_eq!(list.join(back(8), 1010).unwrap_err().kind, ErrorKind::NotFound);
        list.join(back(9), 1010).unwrap();
        list.renew(HostId(1), at(2), 1095).unwrap();
        list.expire(1099);
        assert_eq!(lost(&list), [0u32; 0]);
        list.expire(1100);
        assert_eq!(lost(&list), [2], "presumed, and never came: after the longer lease");
    }

    #[test]
    fn who_renews_and_never_hears_or_never_follows_is_lost_and_who_is_busy_is_not() {
        let mut list = List::new(9, LEASE);
        for (number, name) in [(1, "deaf"), (2, "stuck"), (3, "busy"), (4, "gone")] {
            list.join(joining(number, name, number as u16), 0).unwrap();
        }
        list.lose(HostId(4), 0);
        let (loss, begun) = (list.last_loss(), list.number());
        let mut now = 0;
        let mut told = Vec::new();
        let (mut deaf_at, mut stuck_at) = (0, 0);
        while list.settled() < loss || now < 70 * LEASE {
            now += LEASE / 2;
            // A later loss does not begin the wait anew.
            if now == 5 * LEASE {
                list.join(joining(5, "brief", 5), now).unwrap();
                list.lose(HostId(5), now);
            }
            let heard = list.number();
            let _ = list.renew(HostId(1), Before { heard: begun - 1, ..at(begun - 1) }, now);
            let _ = list.renew(HostId(2), Before { heard, ..at(begun - 1) }, now);
            // Half of the time that it has.
            let done = if now < 32 * LEASE { begun - 1 } else { heard };
            list.renew(HostId(3), Before { heard, ..at(done) }, now).unwrap();
            let lost = list.expire(now);
            deaf_at = if lost.contains(&"deaf".to_owned()) { now } else { deaf_at };
            stuck_at = if lost.contains(&"stuck".to_owned()) { now } else { stuck_at };
            told.extend(lost);
        }
        assert_eq!(told, ["deaf", "stuck"]);
        assert_eq!((deaf_at, stuck_at), (DEAF_LEASES * LEASE, STUCK_LEASES * LEASE));
        assert!(list.settled() >= loss && list.is_member(HostId(3)));
    }

    #[test]
    fn what_is_renewed_while_a_change_is_written_down_is_not_forgotten() {
        let mut list = List::new(9, LEASE);
        list.join(joining(1, "a", 1), 0).unwrap();
        list.join(joining(2, "b", 2), 0).unwrap();
        let mut next = list.clone();
        assert!(next.expire(LEASE - 1).is_empty());
        next.lose(HostId(2), 50);
        list.renew(HostId(1), at(2), 60).unwrap();
        list.renew(HostId(2), at(2), 60).unwrap();
        next.take_renewals(&list);
        next.expire(150);
        assert!(next.is_member(HostId(1)) && !next.is_member(HostId(2)));
        // Whose lease is over is lost by then, or about to be.
        assert_eq!(next.renew(HostId(1), at(2), 160).unwrap_err().kind, ErrorKind::NotFound);
    }
}
