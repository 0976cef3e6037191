//! What fellows ask for, and what comes: Figures 6 and 7 of the paper at a server.

use super::members::MOST_HOSTS;
use super::message::Message;
use super::node::{Actions, Node, Phase};
use super::page::{Page, Purpose};
use crate::event::{Access, Action, Why};
use crate::span::{HostId, Span};
use commonhold_points as points;
use std::collections::BTreeSet;

impl Node {
    /// A message of a fellow, while requests are served.
    pub(super) fn serve(&mut self, from: HostId, message: Message, actions: &mut Actions) {
        match message {
            // It was under way when the page turned out not to be readable, and the answer was that.
            Message::Read { page, who, .. } | Message::Write { page, who, .. }
                if who == self.me && self.owns(page) => {}
            Message::Read { page, who, hops } => self.read_request(page, who, hops, actions),
            Message::Write { page, who, keeps_copy } => self.write_request(page, who, keeps_copy, actions),
            Message::Insist { page } => self.insist(page, actions),
            Message::Copy { page } => {
                if self.has_asked(page, Access::Read) {
                    self.received(page, false, Access::Read, actions);
                }
            }
            Message::HandOver { page, number, keepers, before } => {
                if self.has_asked(page, Access::Write) {
                    self.handed_over(page, number, keepers, before, actions);
                }
            }
            Message::Invalidate { page, owner, number } => {
                self.invalidated(page, from, (owner, number), actions)
            }
            Message::Invalidated { page } => {
                let known = self.page(page);
                if known.expected.remove(&from) && known.expected.is_empty() {
                    self.all_gone(page, actions);
                }
            }
            Message::Forget { page, number } => self.forget(page, number, actions),
            Message::Held { page } => self.held(from, page, actions),
            Message::Take { page } => self.take(page, actions),
            Message::Missing { page } => self.missing(page, actions),
            Message::NotRead { page } => self.not_read(page, actions),
            // Of members and rounds, and what comes with bytes unasked: heard before this.
            Message::Replica { .. }
            | Message::Join
            | Message::Welcome(_)
            | Message::Hello(_)
            | Message::Known(_)
            | Message::Flush(_)
            | Message::Report { .. }
            | Message::Settle { .. } => {}
        }
    }

    /// `page_fault()` of Figure 7, for a read: forwarded only by who has no interest in the page.
    fn read_request(&mut self, number: u32, who: HostId, hops: u32, actions: &mut Actions) {
        let (patience, published) = (self.options.patience, self.options.replicas > 0);
        let page = self.page(number);
        if page.lost.is_some() {
            actions.push(Action::Send { to: who, message: Message::Missing { page: number } });
        } else if page.can_supply(published) {
            self.supply(number, who, actions);
        } else if page.asked == Access::Write
            || page.owned && !matches!(page.purpose, Some(Purpose::HandOver(_)))
        {
            if !page.readers.contains(&who) {
                page.readers.push(who);
            }
            self.pass_on(number, actions);
        } else if hops >= patience {
            actions.push(Action::Send { to: who, message: Message::Insist { page: number } });
        } else {
            let message = Message::Read { page: number, who, hops: hops + 1 };
            actions.push(Action::Send { to: page.hint, message });
        }
    }

    /// Our request to read ran after the page in vain: one to write has its place in the order.
    fn insist(&mut self, number: u32, actions: &mut Actions) {
        if !self.has_asked(number, Access::Read) {
            return;
        }
        self.ask_to_write(number, actions);
    }

    fn supply(&mut self, number: u32, who: HostId, actions: &mut Actions) {
        let page = self.page(number);
        if page.access == Access::Write {
            page.access = Access::Read;
            actions.push(Action::Restrict { page: number, access: Access::Read });
        }
        page.supplied.insert(who);
        actions.push(Action::Send { to: who, message: Message::Copy { page: number } });
    }

    /// `page_fault()` for a write: who asked last is asked next, here or further on.
    fn write_request(&mut self, number: u32, who: HostId, keeps_copy: bool, actions: &mut Actions) {
        let me = self.me;
        let page = self.page(number);
        if page.lost.is_some() {
            actions.push(Action::Send { to: who, message: Message::Missing { page: number } });
            return;
        }
        let before = std::mem::replace(&mut page.hint, who);
        if before == me {
            (page.next, page.next_keeps_copy) = (Some(who), keeps_copy);
            self.pass_on(number, actions);
        } else {
            let message = Message::Write { page: number, who, keeps_copy };
            actions.push(Action::Send { to: before, message });
        }
    }

    /// A copy, or the page itself, came (`pageout()` of the paper, at a fellow server).
    pub(super) fn received(&mut self, number: u32, owned: bool, access: Access, actions: &mut Actions) {
        let holds = u8::from(self.options.has_hold);
        let page = self.page(number);
        (page.owned, page.access) = (owned, access);
        page.asked = Access::None;
        page.holds = page.holds.saturating_add(holds);
        let wants = std::mem::replace(&mut page.wants, Access::None);
        actions.push(Action::Install { span: Span::one(number), access, with_data: true });
        self.installed(number, access, wants, actions);
    }

    /// The page came with its ownership, to be written if anybody here wants that already. Who kept a version before the one
    /// that is kept now is told.
    pub(super) fn handed_over(
        &mut self,
        number: u32,
        version: u64,
        keepers: BTreeSet<HostId>,
        before: BTreeSet<HostId>,
        actions: &mut Actions,
    ) {
        let is_running = self.phase == Phase::Running;
        let page = self.page(number);
        if page.access != Access::None {
            page.access = Access::None; // the copy that it kept until now
            actions.push(Action::Restrict { page: number, access: Access::None });
        }
        page.number = version;
        page.keepers = keepers;
        (page.published, page.sent_to) = (false, None);
        if page.kept.take().is_some() {
            actions.push(Action::DropKept { page: number });
        }
        actions.push(Action::Own { page: number, number: version });
        if is_running && !before.is_empty() {
            self.tell_to_forget(number, version.saturating_sub(1), before, actions);
        }
        let page = self.page(number);
        page.is_unwritten = page.wants != Access::Write;
        let access = if page.is_unwritten { Access::Read } else { Access::Write };
        self.received(number, true, access, actions);
    }

    /// A later version is kept: what is kept of it here need not be. The home's stays, so that there is something as long as
    /// there is a home.
    pub(super) fn forget(&mut self, number: u32, version: u64, actions: &mut Actions) {
        let is_home = self.me == self.home;
        let Some(page) =
            self.pages.get_mut(number).filter(|page| page.kept.is_some_and(|kept| kept <= version))
        else {
            return;
        };
        page.sent_to = None;
        if !is_home {
            page.kept = None;
            actions.push(Action::DropKept { page: number });
        }
    }

    /// Processes here may use the page from now on: until the hold is over nobody takes it.
    fn installed(&mut self, number: u32, access: Access, wants: Access, actions: &mut Actions) {
        if self.options.has_hold {
            actions.push(Action::Hold { page: number });
        }
        if wants > access {
            self.want(number, wants, actions);
        }
        self.pass_on(number, actions);
        if self.has_left {
            self.retire(number, actions);
        }
    }

    /// What others wait for here, as far as it can be had now: copies first, then the page.
    pub(super) fn pass_on(&mut self, number: u32, actions: &mut Actions) {
        if self.phase != Phase::Running || self.options.replicas > 0 && self.publishes_first(number, actions)
        {
            return;
        }
        self.supply_waiting(number, actions);
        let locked = self.locked.contains(&number) && !points::mutant("coherence.locked_pages_go");
        let page = self.page(number);
        let goes = page.owned && !locked && page.holds == 0 && page.purpose.is_none();
        if goes && let Some(next) = page.take_next() {
            self.invalidate_owned(number, Purpose::HandOver(next), next, actions);
        }
    }

    pub(super) fn supply_waiting(&mut self, number: u32, actions: &mut Actions) {
        let published = self.options.replicas > 0;
        let page = self.page(number);
        if page.can_supply(published) {
            for who in std::mem::take(&mut page.readers) {
                self.supply(number, who, actions);
            }
        }
    }

    /// Has all copies dropped of a page that this host owns, before `next` writes.
    pub(super) fn invalidate_owned(
        &mut self,
        number: u32,
        purpose: Purpose,
        next: HostId,
        actions: &mut Actions,
    ) {
        let version = self.page(number).number;
        self.invalidate(number, purpose, (next, version), actions);
    }

    /// Has all copies dropped that this host supplied (line 7 of Figure 7): of that version, for that owner.
    fn invalidate(
        &mut self,
        number: u32,
        purpose: Purpose,
        (owner, version): (HostId, u64),
        actions: &mut Actions,
    ) {
        let page = self.page(number);
        page.purpose = Some(purpose);
        page.expected = std::mem::take(&mut page.supplied);
        let message = Message::Invalidate { page: number, owner, number: version };
        actions.extend(page.expected.iter().map(|to| Action::Send { to: *to, message: message.clone() }));
        if page.expected.is_empty() {
            self.all_gone(number, actions);
        }
    }

    /// No copy is left of those that were supplied here, nor of those below them.
    fn all_gone(&mut self, number: u32, actions: &mut Actions) {
        let holds = u8::from(self.options.has_hold);
        let page = self.page(number);
        match page.purpose.take() {
            Some(Purpose::Supplier(to)) => {
                actions.push(Action::Send { to, message: Message::Invalidated { page: number } });
            }
            Some(Purpose::Write) => {
                page.access = Access::Write;
                page.is_unwritten = false;
                page.published = false;
                page.asked = Access::None;
                page.wants = Access::None;
                page.holds = page.holds.saturating_add(holds);
                actions.push(Action::Install {
                    span: Span::one(number),
                    access: Access::Write,
                    with_data: false,
                });
                self.installed(number, Access::Write, Access::None, actions);
            }
            Some(Purpose::HandOver(next)) => self.hand_over(number, next, actions),
            Some(Purpose::Publish(_)) | None => {}
        }
    }

    fn hand_over(&mut self, number: u32, next: HostId, actions: &mut Actions) {
        let me = self.me;
        let page = self.page(number);
        page.owned = false;
        page.is_offered = false;
        page.access = Access::None;
        if std::mem::take(&mut page.is_unwritten) {
            page.updates = 0;
        }
        // What is published is kept by enough others, and nothing else is.
        let is_new = !std::mem::take(&mut page.published);
        page.number = page.number.saturating_add(is_new.into());
        let fresh = std::mem::take(&mut page.fresh);
        let mut before = std::mem::take(&mut page.keepers);
        let mut keepers = if is_new { fresh } else { std::mem::take(&mut before) };
        keepers.remove(&next);
        keepers.insert(me);
        before.retain(|keeper| !keepers.contains(keeper) && *keeper != next);
        let version = page.number;
        actions.push(Action::Restrict { page: number, access: Access::None });
        (page.kept, page.sent_to) = (Some(version), Some(next));
        actions.push(Action::KeepSent { page: number, number: version, to: next });
        let message = Message::HandOver { page: number, number: version, keepers, before };
        actions.push(Action::Send { to: next, message });
        let hint = page.hint;
        // Copies that could not be given any more: whoever owns the page after us gives them. (If it was asked for again
        // meanwhile, they get their copies then.)
        let readers = if hint == me { Vec::new() } else { std::mem::take(&mut page.readers) };
        let forwarded = |who| Message::Read { page: number, who, hops: 0 };
        actions.extend(readers.into_iter().map(|who| Action::Send { to: hint, message: forwarded(who) }));
        if self.filling.remove(&number) {
            self.fill_up(actions);
        }
    }

    /// `invalidate_page()` of Figure 7.
    fn invalidated(
        &mut self,
        number: u32,
        from: HostId,
        (owner, version): (HostId, u64),
        actions: &mut Actions,
    ) {
        let (is_home, locked) = (self.me == self.home, self.locked.contains(&number));
        let page = self.page(number);
        let kept = page.holds > 0 || locked && page.asked == Access::None;
        if kept && page.access != Access::None {
            if page.deferred.len() < MOST_HOSTS {
                page.deferred.push_back((from, owner, version));
            }
            return;
        }
        if page.access != Access::None {
            if is_home && !page.owned {
                // Nobody wrote since it came: it is what is kept here, and newer than what others keep of that hand-over.
                (page.kept, page.sent_to) = (Some(version), None);
                page.number = page.number.max(version);
                actions.push(Action::KeepRead { page: number, number: version });
            }
            page.access = Access::None;
            if page.asked != Access::Write {
                page.updates = 0; // it was read alone
            }
            actions.push(Action::Restrict { page: number, access: Access::None });
        }
        // Who asked to write is in the order of owners: its hint is who asked after it.
        if page.asked != Access::Write {
            page.hint = owner;
        }
        if page.purpose.is_some() {
            // Two suppliers, one of them below the other: what is below us is being seen to already.
            actions.push(Action::Send { to: from, message: Message::Invalidated { page: number } });
        } else {
            self.invalidate(number, Purpose::Supplier(from), (owner, version), actions);
        }
    }

    pub(super) fn hold_over(&mut self, number: u32, actions: &mut Actions) {
        let Some(page) = self.pages.get_mut(number) else { return };
        page.holds = page.holds.saturating_sub(1);
        self.let_late_go(number, actions);
    }

    /// What others wait for, if nothing keeps it any more.
    pub(super) fn let_late_go(&mut self, number: u32, actions: &mut Actions) {
        let is_running = self.phase == Phase::Running;
        let Some(page) = self.pages.get_mut(number) else { return };
        if page.holds > 0 || !is_running {
            return;
        }
        for (from, owner, version) in std::mem::take(&mut page.deferred) {
            self.invalidated(number, from, (owner, version), actions);
        }
        self.pass_on(number, actions);
        if self.has_left {
            self.retire(number, actions);
        }
    }

    /// Memory is short, or nobody here uses the page. A copy goes: who supplied it and whom it supplied stay known. What
    /// is owned is offered to the home, which asks for it like anybody else; the home keeps it where it keeps its pages.
    pub(super) fn evict(&mut self, number: u32, actions: &mut Actions) {
        if self.phase == Phase::Running && self.pages.contains(number) {
            self.retire(number, actions);
        }
    }

    pub(super) fn retire(&mut self, number: u32, actions: &mut Actions) {
        let (home, is_home) = (self.home, self.me == self.home);
        let may_take = !is_home && !self.view.epoch.lost.contains_key(&home);
        let locked = self.locked.contains(&number);
        let page = self.page(number);
        if page.holds > 0 || locked || page.access == Access::None {
            return;
        }
        if !page.owned {
            page.access = Access::None;
            actions.push(Action::Restrict { page: number, access: Access::None });
        } else if may_take && !page.is_offered {
            page.is_offered = true;
            actions.push(Action::Send { to: home, message: Message::Take { page: number } });
        }
    }

    /// No process here uses the object any more.
    pub(super) fn leave(&mut self, actions: &mut Actions) {
        self.has_left = true;
        let pages: Vec<u32> = self.pages.numbers().collect();
        for page in pages {
            self.evict(page, actions);
            self.pages.tidy(); // not all of them at once
        }
    }

    /// A page that its owner would rather not have. It may be on its way here already.
    fn take(&mut self, number: u32, actions: &mut Actions) {
        if self.me == self.home && !self.page(number).owned {
            self.want(number, Access::Write, actions);
        }
    }

    /// The page that was asked for is lost. Those who asked here meanwhile learn it too.
    fn missing(&mut self, number: u32, actions: &mut Actions) {
        if !self.has_asked(number, Access::Read) && !self.has_asked(number, Access::Write) {
            return;
        }
        let at = self.settled_reverts;
        let page = self.page(number);
        let waiting: Vec<HostId> =
            page.next.take().into_iter().chain(std::mem::take(&mut page.readers)).collect();
        let Page { holds, kept, sent_to, number: seen, .. } = *page;
        *page = Page { holds, kept, sent_to, number: seen, ..Page::lost(page.hint, at) };
        actions.push(Action::Fail { page: number, why: Why::NewestLost });
        let message = Message::Missing { page: number };
        actions.extend(waiting.into_iter().map(|to| Action::Send { to, message: message.clone() }));
    }

    /// The page that was asked for could not be read: it stays with the home, and whoever asks for it asks there. Those who
    /// asked here meanwhile learn it too.
    fn not_read(&mut self, number: u32, actions: &mut Actions) {
        let home = self.home;
        let has_asked = self.has_asked(number, Access::Read) || self.has_asked(number, Access::Write);
        if !has_asked || self.me == home {
            return;
        }
        let page = self.page(number);
        (page.asked, page.wants, page.hint) = (Access::None, Access::None, home);
        actions.push(Action::Fail { page: number, why: Why::NotRead });
        self.refuse_waiting(number, None, actions);
    }

    /// At the home: a page could not be read that was to be handed over, or kept elsewhere. It is as if nobody had asked for it.
    pub(super) fn not_sent(&mut self, number: u32, actions: &mut Actions) {
        let me = self.me;
        let page = self.page(number);
        let (successor, published) = match page.purpose {
            Some(Purpose::Publish(successor)) if page.owned => (successor, true),
            _ if !page.owned => (None, false),
            _ => return, // done already
        };
        // It may have a copy still.
        page.supplied.extend(successor.or(page.sent_to));
        if page.asked != Access::None {
            actions.push(Action::Fail { page: number, why: Why::NotRead });
        }
        self.refuse_waiting(number, successor, actions);
        let page = self.page(number);
        // What some keep of a version that was not published is not to be taken for the next.
        let version = page.number.saturating_add(published.into());
        let access = if page.has_given() { Access::Read } else { Access::Write };
        *page = Page {
            access,
            holds: page.holds,
            supplied: std::mem::take(&mut page.supplied),
            number: version,
            keepers: std::mem::take(&mut page.keepers),
            ..Page::origin(me)
        };
        if self.filling.remove(&number) {
            self.fill_up(actions);
        }
    }

    fn refuse_waiting(&mut self, number: u32, more: Option<HostId>, actions: &mut Actions) {
        let page = self.page(number);
        page.next_keeps_copy = false;
        let waiting = page.next.take().into_iter().chain(std::mem::take(&mut page.readers)).chain(more);
        let message = Message::NotRead { page: number };
        actions.extend(waiting.map(|to| Action::Send { to, message: message.clone() }));
    }
}
