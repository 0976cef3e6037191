//! Who takes part in an object, and who of them is lost.

use crate::span::HostId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Processes of hosts that ever take part in an object, the lost ones among them, and most that one
/// message names. No more are listened to: whoever takes part is believed who else does.
pub const MOST_HOSTS: usize = 1024;

/// What a round of settling was about. Epochs only grow, and of any two the union is one: hosts that learn of losses in
/// different orders come to the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Epoch {
    /// The members that are lost; and the next process of the same machine, if it took that one's place: it has what was
    /// newest there, and says so where the other would have.
    pub lost: BTreeMap<HostId, Option<HostId>>,
    /// How often somebody wanted lost pages back.
    pub reverts: u32,
}

impl Epoch {
    /// Whether nothing has happened yet.
    pub fn is_first(&self) -> bool {
        self.lost.is_empty() && self.reverts == 0
    }

    /// Whether so many hosts would be lost with those of the other that it is not to be believed.
    pub fn is_too_long_with(&self, other: &Epoch) -> bool {
        let more = other.lost.keys().filter(|host| !self.lost.contains_key(host)).count();
        self.lost.len() + more > MOST_HOSTS
    }

    /// Takes over what the other knows. Whether that is news.
    pub fn join(&mut self, other: &Epoch) -> bool {
        let mut is_news = other.reverts > self.reverts;
        self.reverts = self.reverts.max(other.reverts);
        for (host, followed_by) in &other.lost {
            is_news |= self.lost.get(host).is_none_or(|known| known < followed_by);
            let known = self.lost.entry(*host).or_insert(*followed_by);
            // Who hears of it late may be told of the process after the next, which follows the next: any of them will do, if
            // all take the same.
            *known = (*known).max(*followed_by);
        }
        is_news
    }

    /// One host is lost.
    pub fn of_loss(host: HostId, followed_by: Option<HostId>) -> Epoch {
        Epoch { lost: [(host, followed_by)].into(), reverts: 0 }
    }

    /// Who speaks for that host: the host itself, or the process that has what it had.
    pub fn speaker_for(&self, host: HostId) -> Option<HostId> {
        self.followers(host).last().filter(|speaker| !self.lost.contains_key(speaker))
    }

    /// That host, who follows it, who follows that one, and so on.
    pub fn followers(&self, host: HostId) -> impl Iterator<Item = HostId> {
        let next = |host: &HostId| self.lost.get(host).copied().flatten();
        // Who says that they follow each other in a circle is not listened to for ever.
        std::iter::successors(Some(host), next).take(self.lost.len() + 1)
    }
}

/// Who takes part, as far as a host knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct View {
    /// The members, dead ones too, with their ranks: the order in which the home admitted them. The home's is 0. Who is a
    /// member knows all of lower ranks.
    pub ranks: BTreeMap<HostId, u32>,
    /// Losses.
    pub epoch: Epoch,
}

impl View {
    /// Members that are not lost.
    pub fn living(&self) -> impl Iterator<Item = HostId> {
        self.ranks.keys().copied().filter(|host| !self.epoch.lost.contains_key(host))
    }

    /// Who settles what a loss leaves: the home, or who was admitted first of those who live. All agree on it, because
    /// all know all before them.
    pub fn leader(&self) -> Option<HostId> {
        self.living().min_by_key(|host| self.ranks[host])
    }

    /// Whoever follows a member that is lost is a member in its place. Who of them is new.
    pub fn admit_followers(&mut self) -> Vec<HostId> {
        let mut new = Vec::new();
        let is_missing = |(host, next): (&HostId, &Option<HostId>)| {
            self.ranks.contains_key(host) && next.is_some_and(|next| !self.ranks.contains_key(&next))
        };
        if !self.epoch.lost.iter().any(is_missing) {
            return new; // as a rule: the rest looks at everybody for everybody
        }
        for (host, rank) in
            self.ranks.clone().into_iter().filter(|(host, _)| self.epoch.lost.contains_key(host))
        {
            for next in self.epoch.followers(host).skip(1) {
                if let Entry::Vacant(place) = self.ranks.entry(next) {
                    place.insert(rank);
                    new.push(next);
                }
            }
        }
        new
    }

    /// The next rank, at the home.
    pub fn next_rank(&self) -> u32 {
        self.ranks.values().max().map_or(0, |rank| rank.saturating_add(1))
    }
}
