//! Who takes part in an object, and who of them is lost.

use crate::span::HostId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What a round of settling was about. Epochs only grow, and of any two the union is one: hosts that learn of losses in
/// different orders come to the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Epoch {
    /// The members that are lost.
    pub lost: BTreeSet<HostId>,
    /// How often somebody wanted lost pages back.
    pub reverts: u32,
}

impl Epoch {
    /// Whether nothing has happened yet.
    pub fn is_first(&self) -> bool {
        self.lost.is_empty() && self.reverts == 0
    }

    /// Takes over what the other knows. Whether that is news.
    pub fn join(&mut self, other: &Epoch) -> bool {
        let before = (self.lost.len(), self.reverts);
        self.lost.extend(&other.lost);
        self.reverts = self.reverts.max(other.reverts);
        before != (self.lost.len(), self.reverts)
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
        self.ranks.keys().copied().filter(|host| !self.epoch.lost.contains(host))
    }

    /// Who settles what a loss leaves: the home, or who was admitted first of those who live. All agree on it, because
    /// all know all before them.
    pub fn leader(&self) -> Option<HostId> {
        self.living().min_by_key(|host| self.ranks[host])
    }

    /// The next rank, at the home.
    pub fn next_rank(&self) -> u32 {
        self.ranks.values().max().map_or(0, |rank| rank.saturating_add(1))
    }
}
