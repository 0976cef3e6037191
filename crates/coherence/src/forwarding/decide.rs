//! What a leader makes of the reports. A function of them alone.

use super::members::Epoch;
use super::message::{Fate, Restored, Settled, Standing};
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
struct Circumstances<'e> {
    home: Option<HostId>,
    epoch: &'e Epoch,
    /// Who reported.
    reporters: BTreeSet<HostId>,
    /// The most reverts that anybody has settled before.
    settled_reverts: u32,
    options: Options,
}

/// Names the owner of each page that anybody reported.
pub(super) fn decide(
    reports: &BTreeMap<HostId, Report>,
    home: HostId,
    epoch: &Epoch,
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
    let reporters = reports.keys().copied().collect();
    let circumstances = Circumstances { home, epoch, reporters, settled_reverts, options };
    pages.iter().map(|(page, standings)| (*page, circumstances.judge(*page, standings))).collect()
}

impl Circumstances<'_> {
    fn judge(&self, page: u32, standings: &[(HostId, Standing)]) -> Verdict {
        let mut copies: Vec<HostId> =
            standings.iter().filter(|(_, s)| s.has_copy).map(|(host, _)| *host).collect();
        let mut keepers: Vec<(u64, HostId)> =
            standings.iter().filter_map(|(host, s)| Some((s.kept?, *host))).collect();
        keepers.sort_unstable();
        // The next hand-over has a greater number than any that somebody may speak of.
        let seen = standings.iter().map(|(_, s)| s.number).max().unwrap_or(0);
        let owned = standings.iter().find(|(_, s)| s.owned).map(|(host, s)| (*host, s.number));
        let (owner, number, restored) = if let Some((owner, number)) = owned {
            // More than its own: what it began to publish and did not end.
            (owner, keepers.last().map_or(number, |(kept, _)| number.max(*kept)), None)
        } else if let Some((keeper, number)) = self.never_came(standings, keepers.last()) {
            keepers.retain(|(_, host)| *host != keeper);
            (keeper, number.max(seen), Some(Restored::Newest))
        } else if !copies.is_empty() {
            // Beside a dead owner they are the newest version: one that could write had no copies beside it.
            let number = keepers.last().map_or(0, |(kept, _)| kept.saturating_add(1));
            (copies.remove(0), number.max(seen), None)
        } else if let Some((number, keeper)) = keepers.last().copied().filter(|_| self.may_revert(standings))
        {
            keepers.pop();
            (keeper, number.max(seen), Some(Restored::Older))
        } else {
            let keepers = self.go_on_keeping(&keepers, None);
            return Verdict(Settled { page, fate: Fate::Lost(self.epoch.reverts), keepers });
        };
        copies.retain(|copy| *copy != owner);
        let keepers = self.go_on_keeping(&keepers, Some(owner));
        Verdict(Settled { page, fate: Fate::Owned { owner, number, copies, restored }, keepers })
    }

    /// Of a page without owner and copies, who keeps the newest version, because it was on its way to a host that has not got it:
    /// then nobody has written since. That host says so, or the process that has what it had.
    fn never_came(
        &self,
        standings: &[(HostId, Standing)],
        newest: Option<&(u64, HostId)>,
    ) -> Option<(HostId, u64)> {
        let newest = newest?.0;
        let (keeper, to) = standings.iter().find_map(|(host, s)| {
            let is_newest = s.kept == Some(newest) && !s.has_copy;
            Some((*host, s.sent_to.filter(|_| is_newest)?))
        })?;
        let to = self.epoch.speaker_for(to).filter(|to| self.reporters.contains(to))?;
        let came = standings.iter().any(|(host, s)| *host == to && s.number >= newest || s.has_copy);
        (!came).then_some((keeper, newest))
    }

    /// Whether the version before serves: by the object's choice, or because somebody wants it since the page was lost.
    fn may_revert(&self, standings: &[(HostId, Standing)]) -> bool {
        let lost = standings.iter().filter_map(|(_, s)| s.lost).max();
        self.options.on_loss == OnLoss::Revert
            || lost.is_some_and(|at| at >= self.settled_reverts && at < self.epoch.reverts)
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
