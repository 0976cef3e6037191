//! What a leader makes of the reports. A function of them alone.

use super::message::{Fate, Settled, Standing};
use super::node::Options;
use super::round::Report;
use crate::central::OnLoss;
use crate::span::HostId;
use std::collections::{BTreeMap, BTreeSet};

/// What becomes of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict(Settled);

impl Verdict {
    /// What one host is told of it: only the owner needs to know the copies and keepers.
    pub fn told(&self, host: HostId) -> Settled {
        let mut settled = self.0.clone();
        if let Fate::Owned { owner, copies, .. } = &mut settled.fate
            && *owner != host
        {
            copies.clear();
            settled.keepers.retain(|keeper| *keeper == host);
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
    options: Options,
}

/// Names the owner of each page that anybody reported.
pub(super) fn decide(
    reports: &BTreeMap<HostId, Report>,
    home: HostId,
    reverts: u32,
    options: Options,
) -> BTreeMap<u32, Verdict> {
    let mut pages: BTreeMap<u32, Vec<(HostId, Standing)>> = BTreeMap::new();
    for (host, report) in reports {
        for standing in &report.pages {
            pages.entry(standing.page).or_default().push((*host, *standing));
        }
    }
    let settled_reverts = reports.values().map(|report| report.settled_reverts).max().unwrap_or(0);
    let home = Some(home).filter(|home| reports.contains_key(home));
    let circumstances = Circumstances { home, reverts, settled_reverts, options };
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
            // More than its own: what it began to publish and did not end.
            (owner, keepers.last().map_or(number, |(kept, _)| number.max(*kept)), false)
        } else if !copies.is_empty() {
            // Beside a dead owner they are the newest version: one that could write had no copies beside it.
            let after = u64::from(self.options.keeps_versions());
            (copies.remove(0), keepers.last().map_or(0, |(kept, _)| kept.saturating_add(after)), false)
        } else if let Some((number, keeper)) = keepers.last().copied().filter(|_| self.may_revert(standings))
        {
            keepers.pop();
            (keeper, number, true)
        } else {
            let keepers = self.go_on_keeping(&keepers, None);
            return Verdict(Settled { page, fate: Fate::Lost(self.reverts), keepers });
        };
        copies.retain(|copy| *copy != owner);
        let keepers = self.go_on_keeping(&keepers, Some(owner));
        Verdict(Settled { page, fate: Fate::Owned { owner, number, copies, is_restored }, keepers })
    }

    /// Whether the version before serves: by the object's choice, or because somebody wants it since the page was lost.
    fn may_revert(&self, standings: &[(HostId, Standing)]) -> bool {
        let lost = standings.iter().filter_map(|(_, s)| s.lost).max();
        self.options.on_loss == OnLoss::Revert
            || lost.is_some_and(|at| at >= self.settled_reverts && at < self.reverts)
    }

    /// Who goes on keeping what it keeps. The home does so in any case.
    fn go_on_keeping(&self, keepers: &[(u64, HostId)], owner: Option<HostId>) -> BTreeSet<HostId> {
        let others = keepers.iter().rev().filter(|(_, keeper)| Some(*keeper) != owner);
        if self.options.replicas == 0 {
            let beside = others.map(|(_, keeper)| *keeper).find(|keeper| Some(*keeper) != self.home);
            return beside.into_iter().collect();
        }
        // As long as not enough hosts keep the newest that is kept, those who keep one before are needed.
        let newest: BTreeSet<HostId> = others
            .clone()
            .take_while(|(kept, _)| keepers.last().is_some_and(|(newest, _)| kept == newest))
            .map(|(_, keeper)| *keeper)
            .collect();
        if newest.len() >= self.options.replicas as usize {
            return newest;
        }
        others.map(|(_, keeper)| *keeper).collect()
    }
}
