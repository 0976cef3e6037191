//! How a loss is settled: everybody stops, what is under way arrives, everybody says what he has, and one of them says who
//! owns which page from then on.

use super::decide::{Verdict, decide};
use super::message::{Fate, Message, Restored, Settled, Standing};
use super::node::{Actions, Node, Phase};
use super::page::Page;
use crate::event::{Access, Action};
use crate::span::{HostId, Span};
use std::collections::{BTreeMap, BTreeSet};

/// Pages and copies in one message: it stays below 64 KiB.
const PART: usize = 1024;

/// What a member reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Report {
    pub pages: Vec<Standing>,
    pub settled_reverts: u32,
    /// See [`Message::Report`].
    pub speaks_for: Vec<HostId>,
    pub is_complete: bool,
}

/// What has come in of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Round {
    /// This host said what it has; until the end nothing of that changes but what programs write to pages they may.
    has_reported: bool,
    /// At the leader.
    reports: BTreeMap<HostId, Report>,
    /// Parts of the leader's answer.
    settled: Vec<Settled>,
    /// Pages of which hosts that have settled already sent versions to be kept.
    pub replicas: BTreeSet<u32>,
}

impl Node {
    /// When all are flushed, this host reports; when all have reported, the leader settles.
    pub(super) fn go_on_settling(&mut self, actions: &mut Actions) {
        let me = self.me;
        let is_flushed = self.view.living().all(|host| host == me || self.flushed.contains(&host));
        if is_flushed && !self.round.has_reported {
            self.round.has_reported = true;
            self.report(actions);
        }
        if self.view.leader() == Some(me) && self.has_all_reports() {
            self.lead(actions);
        }
    }

    fn has_all_reports(&self) -> bool {
        let reports = &self.round.reports;
        self.view.living().all(|host| reports.get(&host).is_some_and(|report| report.is_complete))
    }

    fn report(&mut self, actions: &mut Actions) {
        let is_home = self.me == self.home;
        let all = self.pages.glances().map(|(number, page)| Standing {
            page: number,
            owned: page.owned,
            number: page.number,
            has_copy: !page.owned && page.access != Access::None,
            kept: page.kept,
            sent_to: page.sent_to,
            lost: page.lost,
        });
        // A hint is worth nothing now; but the home says of which pages it knows, because of others it is the owner.
        let has = |s: &Standing| {
            is_home || s.owned || s.has_copy || s.kept.is_some() || s.lost.is_some() || s.number != 0
        };
        let pages: Vec<Standing> = all.filter(has).collect();
        let (settled_reverts, speaks_for) = (self.settled_reverts, self.speaks_for.clone());
        let Some(to) = self.view.leader() else { return };
        if to == self.me {
            let report = Report { pages, settled_reverts, speaks_for, is_complete: true };
            self.round.reports.insert(to, report);
            return;
        }
        let mut parts: Vec<Vec<Standing>> = pages.chunks(PART).map(<[Standing]>::to_vec).collect();
        let last = parts.pop().unwrap_or_default();
        let message = |pages, is_last| {
            let speaks_for = speaks_for.clone();
            Message::Report { pages, settled_reverts, speaks_for, is_last }
        };
        let messages = parts.into_iter().map(|part| message(part, false)).chain([message(last, true)]);
        actions.extend(messages.map(|message| Action::Send { to, message }));
    }

    /// A part of a report came to the leader.
    pub(super) fn reported(&mut self, from: HostId, part: Report, actions: &mut Actions) {
        let Report { pages, settled_reverts, speaks_for, is_complete: is_last } = part;
        if self.phase != Phase::Frozen {
            // A newcomer, which the round was settled without: it has nothing.
            if is_last {
                let message = Message::Settle { pages: Vec::new(), is_last };
                actions.push(Action::Send { to: from, message });
            }
            return;
        }
        let report = self.round.reports.entry(from).or_default();
        // In order, and so each once: who never comes to an end does not fill this host's memory.
        let last = report.pages.last().map(|standing| standing.page);
        let all = last.into_iter().chain(pages.iter().map(|standing| standing.page));
        if report.is_complete || !all.is_sorted_by(|a, b| a < b) {
            return;
        }
        report.pages.extend(pages);
        (report.settled_reverts, report.speaks_for) = (settled_reverts, speaks_for);
        report.is_complete = is_last;
        self.go_on(actions);
    }

    /// Everybody has said what he has.
    fn lead(&mut self, actions: &mut Actions) {
        let reports = std::mem::take(&mut self.round.reports);
        let verdicts = decide(&reports, self.home, &self.view.epoch, self.options);
        for (host, report) in reports.iter().filter(|(host, _)| **host != self.me) {
            let pages = report.pages.iter().map(|standing| verdicts[&standing.page].told(*host));
            for message in in_parts(pages) {
                actions.push(Action::Send { to: *host, message });
            }
        }
        let me = self.me;
        self.settle(verdicts.values().map(|verdict: &Verdict| verdict.told(me)).collect(), actions);
    }

    /// A part of the leader's answer.
    pub(super) fn settle_part(
        &mut self,
        from: HostId,
        pages: Vec<Settled>,
        is_last: bool,
        actions: &mut Actions,
    ) {
        if self.phase != Phase::Frozen || !self.round.has_reported || self.view.leader() != Some(from) {
            return;
        }
        // In order, as with reports.
        let last = self.round.settled.last().map(|settled| settled.page);
        let all = last.into_iter().chain(pages.iter().map(|settled| settled.page));
        if !all.is_sorted_by(|a, b| a < b) {
            return;
        }
        self.round.settled.extend(pages);
        if is_last {
            let settled = std::mem::take(&mut self.round.settled);
            self.settle(settled, actions);
        }
    }

    /// From now on things are so. All that was asked for is asked for again.
    fn settle(&mut self, settled: Vec<Settled>, actions: &mut Actions) {
        for (number, page) in self.pages.busy().filter(|(_, page)| page.wants > page.access) {
            let wanted = self.pending.entry(number).or_insert(page.wants);
            *wanted = page.wants.max(*wanted);
        }
        self.settled_reverts = self.view.epoch.reverts;
        self.first_hint = self.view.leader().unwrap_or(self.home);
        self.filling.clear();
        self.to_fill.clear();
        let mut before = std::mem::take(&mut self.pages);
        for entry in settled {
            let was = before.remove(entry.page).unwrap_or_else(|| self.untouched());
            let (number, page) = (entry.page, self.settled(was, entry, actions));
            self.pages.insert(number, page);
        }
        for number in std::mem::take(&mut self.round.replicas) {
            if let Some(was) = before.remove(number) {
                self.pages.insert(number, Page { kept: was.kept, ..Page::unknown(self.first_hint) });
            }
        }
        // What was not reported was a hint, and the first hint is better.
        self.run(actions);
    }

    fn settled(&mut self, was: Page, entry: Settled, actions: &mut Actions) -> Page {
        let (me, number, needs_keepers) = (self.me, entry.page, self.keepers_needed() > 0);
        let mut page =
            Page { access: was.access, holds: was.holds, kept: was.kept, ..Page::unknown(self.first_hint) };
        let goes_on = entry.keepers.contains(&me) || self.round.replicas.contains(&number);
        let (mut needs_kept, mut is_restored) = (me == self.home || goes_on, false);
        match entry.fate {
            Fate::Lost(at) => {
                if page.lost.replace(at).is_none() && me == self.home {
                    actions.push(Action::NewestLost { page: entry.page, older_serves: false });
                }
            }
            Fate::Owned { owner, number, copies, restored } => {
                if restored == Some(Restored::Older) && me == self.home {
                    actions.push(Action::NewestLost { page: entry.page, older_serves: true });
                }
                page.hint = owner;
                if owner == me {
                    if restored.is_none() && page.kept.take().is_some() {
                        actions.push(Action::DropKept { page: entry.page });
                    }
                    page.owned = true;
                    page.number = number;
                    let has_all = was.owned && was.keepers.is_subset(&entry.keepers);
                    page.published = was.published && has_all;
                    if needs_keepers && !has_all {
                        self.to_fill.insert(entry.page);
                    }
                    page.keepers = entry.keepers;
                    page.supplied = copies.into_iter().collect();
                    (needs_kept, is_restored) = (false, restored.is_some());
                    actions.push(Action::Own { page: entry.page, number });
                }
            }
        }
        if is_restored {
            page.kept = None;
            actions.push(Action::Restore { page: number });
        }
        if page.owned && page.access == Access::None {
            // What fewer keep than there shall be, nobody finds before more do.
            if needs_keepers {
                self.to_fill.insert(number);
                return page;
            }
            page.access = Access::Read;
            let span = Span::one(number);
            actions.push(Action::Install { span, access: Access::Read, with_data: false });
        } else if !needs_kept && page.kept.take().is_some() {
            actions.push(Action::DropKept { page: number });
        } else if page.kept.is_some() && was.sent_to.is_some() {
            actions.push(Action::KeepOld { page: number });
        }
        page
    }
}

fn in_parts(pages: impl Iterator<Item = Settled>) -> Vec<Message> {
    let (mut parts, mut part, mut weight) = (Vec::new(), Vec::new(), 0);
    for settled in pages {
        weight += settled.weight();
        part.push(settled);
        if weight >= PART {
            parts.push(Message::Settle { pages: std::mem::take(&mut part), is_last: false });
            weight = 0;
        }
    }
    parts.push(Message::Settle { pages: part, is_last: true });
    parts
}

impl Settled {
    fn weight(&self) -> usize {
        match &self.fate {
            Fate::Owned { copies, .. } => 1 + self.keepers.len() + copies.len(),
            Fate::Lost(_) => 1 + self.keepers.len(),
        }
    }
}
