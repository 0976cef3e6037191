//! What a leader makes of the reports. A function of them alone.

use super::message::{Fate, Settled, Standing};
use super::round::Report;
use crate::central::OnLoss;
use crate::span::HostId;
use std::collections::BTreeMap;

/// What becomes of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict(Settled);

impl Verdict {
    /// What one host is told of it: only the owner needs to know the copies.
    pub fn told(&self, host: HostId) -> Settled {
        let mut settled = self.0.clone();
        if let Fate::Owned { owner, copies, .. } = &mut settled.fate
            && *owner != host
        {
            copies.clear();
        }
        settled
    }
}

/// What is common to all pages of a round.
struct Circumstances {
    home: Option<HostId>,
    reverts: u32,
    /// The most reverts that anybody has settled before.
    settled_reverts: u32,
    on_loss: OnLoss,
}

/// Names the owner of each page that anybody reported.
pub(super) fn decide(
    reports: &BTreeMap<HostId, Report>,
    home: HostId,
    reverts: u32,
    on_loss: OnLoss,
) -> BTreeMap<u32, Verdict> {
    let mut pages: BTreeMap<u32, Vec<(HostId, Standing)>> = BTreeMap::new();
    for (host, report) in reports {
        for standing in &report.pages {
            pages.entry(standing.page).or_default().push((*host, *standing));
        }
    }
    let settled_reverts = reports.values().map(|report| report.settled_reverts).max().unwrap_or(0);
    let home = Some(home).filter(|home| reports.contains_key(home));
    let circumstances = Circumstances { home, reverts, settled_reverts, on_loss };
    pages.iter().map(|(page, standings)| (*page, circumstances.judge(*page, standings))).collect()
}

impl Circumstances {
    fn judge(&self, page: u32, standings: &[(HostId, Standing)]) -> Verdict {
        let mut copies: Vec<HostId> =
            standings.iter().filter(|(_, s)| s.has_copy).map(|(host, _)| *host).collect();
        let mut keepers: Vec<(u64, HostId)> =
            standings.iter().filter_map(|(host, s)| Some((s.kept?, *host))).collect();
        keepers.sort_unstable();
        let owned = standings.iter().find_map(|(host, s)| Some((*host, s.owned?)));
        let (owner, number, is_restored) = if let Some((owner, number)) = owned {
            (owner, number, false)
        } else if !copies.is_empty() {
            // Beside a dead owner they are the newest version: one that could write had no copies beside it.
            let after = u64::from(self.on_loss == OnLoss::Revert);
            (copies.remove(0), keepers.last().map_or(0, |(kept, _)| kept + after), false)
        } else if let Some((number, keeper)) = keepers.last().copied().filter(|_| self.may_revert(standings))
        {
            keepers.pop();
            (keeper, number, true)
        } else {
            let before = self.last_keeper(&keepers, None);
            return Verdict(Settled { page, fate: Fate::Lost(self.reverts), before });
        };
        copies.retain(|copy| *copy != owner);
        let before = self.last_keeper(&keepers, Some(owner));
        Verdict(Settled { page, fate: Fate::Owned { owner, number, copies, is_restored }, before })
    }

    /// Whether the version before serves: by the object's choice, or because somebody wants it since the page was lost.
    fn may_revert(&self, standings: &[(HostId, Standing)]) -> bool {
        let lost = standings.iter().filter_map(|(_, s)| s.lost).max();
        self.on_loss == OnLoss::Revert
            || lost.is_some_and(|at| at >= self.settled_reverts && at < self.reverts)
    }

    /// Who goes on keeping what it sent. The home does so in any case.
    fn last_keeper(&self, keepers: &[(u64, HostId)], owner: Option<HostId>) -> Option<HostId> {
        let others = keepers.iter().rev().map(|(_, keeper)| *keeper);
        others.into_iter().find(|keeper| Some(*keeper) != owner && Some(*keeper) != self.home)
    }
}
