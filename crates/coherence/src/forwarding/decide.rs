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
    /// Who reported, and for which processes before it.
    reporters: BTreeMap<HostId, &'e [HostId]>,
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
    let reporters = reports.iter().map(|(host, report)| (*host, &report.speaks_for[..])).collect();
    let circumstances = Circumstances { home, epoch, reporters, settled_reverts, options };
    pages.iter().map(|(page, standings)| (*page, circumstances.judge(*page, standings))).collect()
}

impl Circumstances<'_> {
    fn judge(&self, page: u32, standings: &[(HostId, Standing)]) -> Verdict {
        let mut copies: Vec<HostId> =
            standings.iter().filter(|(_, s)| s.has_copy).map(|(host, _)| *host).collect();
        let mut keepers: Vec<(u64, HostId)> =
            standings.iter().filter_map(|(host, s)| Some((s.kept?, *host))).collect();
        // What the home keeps of a hand-over it has sent, or read since.
        keepers.sort_unstable_by_key(|(number, host)| (*number, Some(*host) == self.home, *host));
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
        let to = self.who_answers_for(to)?;
        let came = standings.iter().any(|(host, s)| *host == to && s.number >= newest || s.has_copy);
        (!came).then_some((keeper, newest))
    }

    /// Who knows of all that came to that host: itself, or a process that follows it and has its notes.
    fn who_answers_for(&self, host: HostId) -> Option<HostId> {
        let speaker = self.epoch.speaker_for(host)?;
        let speaks_for = self.reporters.get(&speaker)?;
        (speaker == host || speaks_for.contains(&host)).then_some(speaker)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forwarding::Standing;

    const HOME: HostId = HostId(0);

    fn reports(of: &[(u32, Standing)]) -> BTreeMap<HostId, Report> {
        // Numbers of hosts are in no order; here those from 5 on follow 2, and have its notes, but for 9.
        let before = |host: u32| (host > 4 && host != 9).then_some([2, 6].map(HostId)).into_iter().flatten();
        let report = |host| Report { speaks_for: before(host).collect(), ..Report::default() };
        let of = of.iter().map(|(host, standing)| (*host, *standing));
        of.map(|(host, standing)| (HostId(host), Report { pages: vec![standing], ..report(host) })).collect()
    }

    /// What becomes of page 7, by what these hosts say of it.
    fn fate(of: &[(u32, Standing)], lost: &[(u32, Option<u32>)], on_loss: OnLoss) -> Fate {
        let lost = lost.iter().map(|(host, next)| (HostId(*host), next.map(HostId))).collect();
        let options = Options { on_loss, ..Options::default() };
        let verdicts = decide(&reports(of), HOME, &Epoch { lost, reverts: 0 }, options);
        verdicts[&7].told(HOME).fate
    }

    #[test]
    fn what_never_came_is_the_newest_and_what_came_is_not() {
        let nothing = Standing::nothing(7);
        let seen = |number| Standing { number, ..nothing };
        let sent = |number, to| Standing { kept: Some(number), sent_to: Some(HostId(to)), number, ..nothing };
        let kept = |number| Standing { kept: Some(number), ..nothing };
        let is_newest = |fate: Fate| match fate {
            Fate::Owned { owner, restored: Some(Restored::Newest), .. } => Some(owner.0),
            _ => None,
        };
        let of = |of: &[(u32, Standing)], lost: &[(u32, Option<u32>)]| fate(of, lost, OnLoss::Error);
        // 1 handed it over to 2, which died and is followed by 5; the home keeps what it sent to 1 before.
        let home = (0, sent(3, 1));
        let followed = [(2, Some(5))];
        assert_eq!(is_newest(of(&[home, (1, sent(4, 2)), (5, nothing)], &followed)), Some(1));
        assert_eq!(is_newest(of(&[home, (1, sent(4, 2)), (5, seen(2))], &followed)), Some(1));
        // It came, and went down with a host that nobody follows.
        assert_eq!(of(&[home, (1, sent(4, 2)), (5, seen(4))], &followed), Fate::Lost(0));
        // Nobody says whether it came, or somebody who does not know it.
        assert_eq!(of(&[home, (1, sent(4, 2)), (9, nothing)], &[(2, Some(9))]), Fate::Lost(0));
        assert_eq!(of(&[home, (1, sent(4, 2))], &[(2, None)]), Fate::Lost(0));
        assert_eq!(of(&[home, (1, sent(4, 2))], &followed), Fate::Lost(0));
        // By way of two processes that follow each other.
        let twice = [(2, Some(5)), (5, Some(6))];
        assert_eq!(is_newest(of(&[home, (1, sent(4, 2)), (6, nothing)], &twice)), Some(1));
        // Who heard late heard only that the last of three follows the first: what was sent to the one between did not come.
        let late = [(2, Some(7)), (6, Some(7))];
        assert_eq!(is_newest(of(&[home, (1, sent(4, 6)), (7, nothing)], &late)), Some(1));
        assert_eq!(of(&[home, (1, sent(4, 6)), (7, seen(4))], &late), Fate::Lost(0));
        // A version before it, and one that somebody keeps for others.
        assert_eq!(of(&[home, (1, kept(4)), (5, nothing)], &followed), Fate::Lost(0));
        assert_eq!(of(&[home, (1, nothing), (3, kept(4))], &followed), Fate::Lost(0));
        // Who owns it has it, whatever others keep.
        let owned = Standing { owned: true, number: 4, ..nothing };
        let Fate::Owned { owner, restored, .. } = of(&[home, (1, sent(4, 2)), (5, owned)], &followed) else {
            panic!("somebody owns it")
        };
        assert_eq!((owner, restored), (HostId(5), None));
        // Where older versions serve, that is said.
        let older = fate(&[home, (1, sent(4, 2))], &[(2, None)], OnLoss::Revert);
        assert!(matches!(older, Fate::Owned { restored: Some(Restored::Older), .. }), "{older:?}");
    }
}
