//! How a host comes to take part, and how losses come to be known to all who do.
//!
//! The home admits newcomers and gives each its rank, and with it the list of all before it. The newcomer makes itself
//! known to those, and asks for nothing before all of them know it: so whoever has a page is known to every other member,
//! and no loss is settled without it.

use super::members::{Epoch, MOST_HOSTS, View};
use super::message::Message;
use super::node::{Actions, Node, Phase};
use super::round::Round;
use crate::event::{Action, Why};
use crate::span::HostId;

impl Node {
    /// This host wants to take part.
    pub(super) fn ask_to_join(&mut self, actions: &mut Actions) {
        if self.phase == (Phase::Outside { has_asked: false }) {
            self.phase = Phase::Outside { has_asked: true };
            actions.push(Action::Send { to: self.home, message: Message::Join });
        }
    }

    /// A host wants to take part. Others than the home answer those whom it admitted before it was lost.
    pub(super) fn asked_to_join(&mut self, who: HostId, actions: &mut Actions) {
        if self.me == self.home && !self.view.ranks.contains_key(&who) && self.view.ranks.len() < MOST_HOSTS {
            self.view.ranks.insert(who, self.view.next_rank());
        }
        if self.view.ranks.contains_key(&who) {
            actions.push(Action::Send { to: who, message: Message::Welcome(self.view.clone()) });
        }
    }

    /// A member is known from now on. Its loss may be known already.
    fn admit(&mut self, who: HostId, rank: u32, actions: &mut Actions) {
        self.view.ranks.insert(who, rank);
        if let Some(followed_by) = self.gone.remove(&who) {
            self.learn(&Epoch::of_loss(who, followed_by), actions);
        } else if self.phase == Phase::Frozen && who != self.me {
            let message = Message::Flush(self.view.epoch.clone());
            actions.push(Action::Send { to: who, message });
        }
    }

    fn learn_view(&mut self, view: &View, actions: &mut Actions) {
        self.learn(&view.epoch, actions);
        if self.me == self.home {
            return; // who takes part it says itself
        }
        for (host, rank) in &view.ranks {
            if !self.view.ranks.contains_key(host) && self.view.ranks.len() < MOST_HOSTS {
                self.admit(*host, *rank, actions);
            }
        }
    }

    /// What is heard of losses. If it is news, a round begins.
    fn learn(&mut self, epoch: &Epoch, actions: &mut Actions) {
        if self.view.epoch.is_too_long_with(epoch) {
            return;
        }
        let mut is_news = self.view.epoch.join(epoch);
        let mut new = self.view.admit_followers();
        // Those may be lost, too.
        while let Some(next) = new.pop() {
            if let Some(followed_by) = self.gone.remove(&next) {
                is_news |= self.view.epoch.join(&Epoch::of_loss(next, followed_by));
                new.extend(self.view.admit_followers());
            }
        }
        if is_news {
            self.freeze(actions);
        }
    }

    /// From now on this host asks for nothing and gives nothing, and says so to every member.
    fn freeze(&mut self, actions: &mut Actions) {
        self.flushed.clear();
        self.inbox.clear();
        self.round = Round::default();
        if matches!(self.phase, Phase::Outside { .. }) {
            return; // nobody is known here yet
        }
        self.phase = Phase::Frozen;
        let message = Message::Flush(self.view.epoch.clone());
        let others = self.view.living().filter(|host| *host != self.me);
        actions.extend(others.map(|to| Action::Send { to, message: message.clone() }));
    }

    /// The home, or somebody who is told of this host by another, says who takes part.
    pub(super) fn welcomed(&mut self, from: HostId, view: &View, actions: &mut Actions) {
        let is_outside = matches!(self.phase, Phase::Outside { .. });
        if is_outside && view.ranks.contains_key(&self.me) {
            self.learn_view(view, actions); // nothing is sent yet
            let hello = Message::Hello(self.view.clone());
            // All of lower rank; and where this process follows another, those who know of it by that. What they said
            // before it began they say again.
            let others = self.view.living().filter(|host| *host != self.me);
            actions.extend(others.map(|to| Action::Send { to, message: hello.clone() }));
            self.phase = Phase::Meeting;
            if !self.view.epoch.is_first() {
                self.freeze(actions);
            }
        }
        self.met.insert(from);
        self.heard(from, &view.epoch, actions);
    }

    /// A newcomer makes itself known.
    pub(super) fn greeted(&mut self, from: HostId, view: &View, actions: &mut Actions) {
        let is_new = !self.met.contains(&from);
        if matches!(self.phase, Phase::Outside { .. }) {
            self.welcomed(from, view, actions);
        } else {
            self.learn_view(view, actions);
            self.met.insert(from);
            self.heard(from, &view.epoch, actions);
        }
        actions.push(Action::Send { to: from, message: Message::Known(self.view.clone()) });
        if is_new {
            self.has_one_more_host(actions);
        }
    }

    /// A member knows of this host now.
    pub(super) fn known(&mut self, from: HostId, view: &View, actions: &mut Actions) {
        if !view.epoch.lost.contains_key(&self.me) {
            self.learn_view(view, actions);
            self.met.insert(from);
            self.heard(from, &view.epoch, actions);
        }
    }

    /// Nothing of an epoch before comes from that host any more.
    pub(super) fn flush(&mut self, from: HostId, epoch: &Epoch, actions: &mut Actions) {
        if epoch.lost.contains_key(&self.me) {
            return; // whoever thinks so does not listen either
        }
        self.learn(epoch, actions);
        if matches!(self.phase, Phase::Outside { .. }) {
            // Admitted, and not told yet: who knows of it says who else takes part.
            actions.push(Action::Send { to: from, message: Message::Join });
        }
        self.heard(from, epoch, actions);
    }

    /// A host is at that epoch. It may have nothing of the object, and say only that: so it is not met by it.
    fn heard(&mut self, from: HostId, epoch: &Epoch, actions: &mut Actions) {
        if *epoch == self.view.epoch {
            self.flushed.insert(from);
        }
        self.go_on(actions);
    }

    /// A host is lost. One that is no member as far as is known here may turn out to be one.
    pub(super) fn lost(&mut self, host: HostId, followed_by: Option<HostId>, actions: &mut Actions) {
        if self.view.ranks.contains_key(&host) {
            self.learn(&Epoch::of_loss(host, followed_by), actions);
            return self.go_on(actions);
        }
        let known = self.gone.entry(host).or_insert(followed_by);
        *known = (*known).max(followed_by);
        if host == self.home {
            // Who is not admitted by now will not be.
            let pages = std::mem::take(&mut self.pending);
            actions.extend(pages.into_keys().map(|page| Action::Fail { page, why: Why::HomeLost }));
        }
    }

    /// Somebody wants lost pages to be what they were before.
    pub(super) fn revert(&mut self, actions: &mut Actions) {
        let epoch = Epoch { reverts: self.view.epoch.reverts + 1, ..Epoch::default() };
        if !matches!(self.phase, Phase::Outside { .. }) {
            self.learn(&epoch, actions);
            self.go_on(actions);
        }
    }

    /// Takes the next step if what it waits for is there.
    pub(super) fn go_on(&mut self, actions: &mut Actions) {
        match self.phase {
            Phase::Meeting if self.is_known_to_all_before() => self.run(actions),
            Phase::Frozen => self.go_on_settling(actions),
            Phase::Outside { .. } | Phase::Meeting | Phase::Running => {}
        }
    }

    fn is_known_to_all_before(&self) -> bool {
        let rank = self.view.ranks[&self.me];
        self.view.living().all(|host| self.view.ranks[&host] >= rank || self.met.contains(&host))
    }

    /// Asks for what was wanted meanwhile, and serves what came.
    pub(super) fn run(&mut self, actions: &mut Actions) {
        self.phase = Phase::Running;
        for (page, access) in std::mem::take(&mut self.pending) {
            self.want(page, access, actions);
        }
        for (from, message) in std::mem::take(&mut self.inbox) {
            self.serve(from, message, actions);
        }
        if self.has_left {
            self.leave(actions);
        }
        self.fill_up(actions);
    }
}
