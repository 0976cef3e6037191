//! A host among its fellows: the paper's pager with Figures 6 and 7, and its kernel.

use super::message::Message;
use super::page::{Page, Purpose};
use crate::event::{Access, Action, Carried, Event, Kind, Scheduler};
use crate::span::{HostId, Span};
use std::collections::BTreeMap;

/// Where to.
type Actions = Vec<Action<Message>>;

/// One host's part of an object that is scheduled by forwarding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    me: HostId,
    /// From whom this host copied the object: the first hint of every page. Any host that has the object will do.
    origin: HostId,
    /// Whether pages stay for a minimum hold.
    has_hold: bool,
    /// How often a request to read is forwarded before it becomes one to write, which none can outrun.
    patience: u32,
    pages: BTreeMap<u32, Page>,
}

impl Node {
    /// The host `me`, which copies the object from `origin`; the host where the object begins is its own origin.
    pub fn new(me: HostId, origin: HostId, has_hold: bool, patience: u32) -> Node {
        Node { me, origin, has_hold, patience, pages: BTreeMap::new() }
    }

    /// Who owns a page, as far as this host knows (Figure 8 of the paper).
    pub fn hint(&self, page: u32) -> HostId {
        self.pages.get(&page).map_or(self.origin, |page| page.hint)
    }

    /// Whether this host owns a page.
    pub fn owns(&self, page: u32) -> bool {
        self.pages.get(&page).map_or(self.me == self.origin, |page| page.owned)
    }

    fn page(&mut self, number: u32) -> &mut Page {
        let (me, origin) = (self.me, self.origin);
        let new = || if me == origin { Page::origin(me) } else { Page::unknown(origin) };
        self.pages.entry(number).or_insert_with(new)
    }

    fn fault(&mut self, span: Span, access: Access, actions: &mut Actions) {
        for number in span.pages() {
            self.want(number, access, actions);
        }
    }

    /// A process here wants a page (Figures 2 and 3 for the host's own kernel).
    fn want(&mut self, number: u32, access: Access, actions: &mut Actions) {
        let me = self.me;
        let page = self.page(number);
        if page.access >= access {
            actions.push(Action::Install { span: Span::one(number), access: page.access, with_data: false });
            return;
        }
        page.wants = page.wants.max(access);
        if page.asked != Access::None {
            return;
        }
        page.asked = page.wants;
        if page.owned && page.purpose.is_none() {
            self.invalidate(number, Purpose::Write, me, actions);
        } else if access == Access::Write {
            let to = std::mem::replace(&mut page.hint, me);
            actions.push(Action::Send { to, message: Message::Write { page: number, who: me } });
        } else {
            let message = Message::Read { page: number, who: me, hops: 0 };
            actions.push(Action::Send { to: page.hint, message });
        }
    }

    fn message(&mut self, from: HostId, message: Message, actions: &mut Actions) {
        match message {
            Message::Read { page, who, hops } => self.read_request(page, who, hops, actions),
            Message::Write { page, who } => self.write_request(page, who, actions),
            Message::Insist { page } => self.insist(page, actions),
            Message::Copy { page } => self.received(page, Access::Read, actions),
            Message::HandOver { page } => self.received(page, Access::Write, actions),
            Message::Invalidate { page, owner } => self.invalidated(page, from, owner, actions),
            Message::Invalidated { page } => {
                let known = self.page(page);
                known.expected.remove(&from);
                if known.expected.is_empty() {
                    self.all_gone(page, actions);
                }
            }
        }
    }

    /// `page_fault()` of Figure 7, for a read: forwarded only by who has no interest in the page.
    fn read_request(&mut self, number: u32, who: HostId, hops: u32, actions: &mut Actions) {
        let patience = self.patience;
        let page = self.page(number);
        if page.can_supply() {
            self.supply(number, who, actions);
        } else if page.asked == Access::Write
            || page.owned && !matches!(page.purpose, Some(Purpose::HandOver(_)))
        {
            page.readers.push(who);
        } else if hops >= patience {
            actions.push(Action::Send { to: who, message: Message::Insist { page: number } });
        } else {
            let message = Message::Read { page: number, who, hops: hops + 1 };
            actions.push(Action::Send { to: page.hint, message });
        }
    }

    /// Our request to read ran after the page in vain: one to write has its place in the order.
    fn insist(&mut self, number: u32, actions: &mut Actions) {
        let me = self.me;
        let page = self.page(number);
        page.asked = Access::Write;
        let to = std::mem::replace(&mut page.hint, me);
        actions.push(Action::Send { to, message: Message::Write { page: number, who: me } });
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
    fn write_request(&mut self, number: u32, who: HostId, actions: &mut Actions) {
        let me = self.me;
        let page = self.page(number);
        let before = std::mem::replace(&mut page.hint, who);
        if before == me {
            page.next = Some(who);
            self.pass_on(number, actions);
        } else {
            actions.push(Action::Send { to: before, message: Message::Write { page: number, who } });
        }
    }

    /// A copy, or the page itself, came (`pageout()` of the paper, at a fellow server).
    fn received(&mut self, number: u32, access: Access, actions: &mut Actions) {
        let holds = u8::from(self.has_hold);
        let page = self.page(number);
        page.owned = access == Access::Write;
        page.access = access;
        page.asked = Access::None;
        page.holds = page.holds.saturating_add(holds);
        let wants = std::mem::replace(&mut page.wants, Access::None);
        actions.push(Action::Install { span: Span::one(number), access, with_data: true });
        self.installed(number, access, wants, actions);
    }

    /// Processes here may use the page from now on: until the hold is over nobody takes it.
    fn installed(&mut self, number: u32, access: Access, wants: Access, actions: &mut Actions) {
        if self.has_hold {
            actions.push(Action::Hold { page: number });
        }
        if wants > access {
            self.want(number, wants, actions);
        }
        self.pass_on(number, actions);
    }

    /// What others wait for here, as far as it can be had now: copies first, then the page.
    fn pass_on(&mut self, number: u32, actions: &mut Actions) {
        let page = self.page(number);
        if page.can_supply() {
            for who in std::mem::take(&mut page.readers) {
                self.supply(number, who, actions);
            }
        }
        let page = self.page(number);
        if let Some(next) = page.next
            && page.owned
            && page.holds == 0
            && page.purpose.is_none()
        {
            page.next = None;
            self.invalidate(number, Purpose::HandOver(next), next, actions);
        }
    }

    /// Has all copies dropped that this host supplied (line 7 of Figure 7).
    fn invalidate(&mut self, number: u32, purpose: Purpose, owner: HostId, actions: &mut Actions) {
        let page = self.page(number);
        page.purpose = Some(purpose);
        page.expected = std::mem::take(&mut page.supplied);
        let message = Message::Invalidate { page: number, owner };
        actions.extend(page.expected.iter().map(|to| Action::Send { to: *to, message: message.clone() }));
        if page.expected.is_empty() {
            self.all_gone(number, actions);
        }
    }

    /// No copy is left of those that were supplied here, nor of those below them.
    fn all_gone(&mut self, number: u32, actions: &mut Actions) {
        let holds = u8::from(self.has_hold);
        let page = self.page(number);
        match page.purpose.take() {
            Some(Purpose::Supplier(to)) => {
                actions.push(Action::Send { to, message: Message::Invalidated { page: number } });
            }
            Some(Purpose::Write) => {
                page.access = Access::Write;
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
            None => {}
        }
    }

    fn hand_over(&mut self, number: u32, next: HostId, actions: &mut Actions) {
        let me = self.me;
        let page = self.page(number);
        page.owned = false;
        page.access = Access::None;
        actions.push(Action::Restrict { page: number, access: Access::None });
        actions.push(Action::Send { to: next, message: Message::HandOver { page: number } });
        let hint = page.hint;
        if hint == me {
            return; // asked for it again meanwhile: they get their copies then
        }
        // Copies that could not be given any more: whoever owns the page after us gives them.
        for who in std::mem::take(&mut page.readers) {
            actions.push(Action::Send { to: hint, message: Message::Read { page: number, who, hops: 0 } });
        }
    }

    /// `invalidate_page()` of Figure 7.
    fn invalidated(&mut self, number: u32, from: HostId, owner: HostId, actions: &mut Actions) {
        let page = self.page(number);
        if page.holds > 0 && page.access != Access::None {
            page.deferred.push_back((from, owner));
            return;
        }
        if page.access != Access::None {
            page.access = Access::None;
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
            self.invalidate(number, Purpose::Supplier(from), owner, actions);
        }
    }

    fn hold_over(&mut self, number: u32, actions: &mut Actions) {
        let page = self.page(number);
        page.holds = page.holds.saturating_sub(1);
        if page.holds > 0 {
            return;
        }
        for (from, owner) in std::mem::take(&mut page.deferred) {
            self.invalidated(number, from, owner, actions);
        }
        self.pass_on(number, actions);
    }

    /// Memory is short: a copy goes. Who supplied it and whom it supplied stay known. What is owned stays: the host puts
    /// it where it puts its own pages.
    fn evict(&mut self, number: u32, actions: &mut Actions) {
        let page = self.page(number);
        if !page.owned && page.holds == 0 && page.access != Access::None {
            page.access = Access::None;
            actions.push(Action::Restrict { page: number, access: Access::None });
        }
    }
}

impl Scheduler for Node {
    type Message = Message;

    fn kind(message: &Message) -> Kind {
        message.kind()
    }

    fn carries(message: &Message) -> Carried {
        match message {
            Message::Copy { page } | Message::HandOver { page } => Carried::Frames(vec![*page]),
            _ => Carried::Nothing,
        }
    }

    fn handle(&mut self, event: Event<Message>, actions: &mut Actions) {
        match event {
            Event::Fault { span, access } => self.fault(span, access, actions),
            Event::Evict { page } => self.evict(page, actions),
            Event::HoldOver { page } => self.hold_over(page, actions),
            Event::Message { from, message } => self.message(from, message, actions),
            Event::Lost { .. }
            | Event::Written { .. }
            | Event::Sync { .. }
            | Event::Lock { .. }
            | Event::Unlock { .. } => {}
        }
    }

    fn access(&self, page: u32) -> Access {
        let untouched = if self.me == self.origin { Access::Write } else { Access::None };
        self.pages.get(&page).map_or(untouched, |page| page.access)
    }

    fn is_waiting(&self) -> bool {
        let waits = |page: &Page| {
            page.asked != Access::None
                || page.purpose.is_some()
                || page.next.is_some()
                || !page.readers.is_empty()
        };
        self.pages.values().any(waits)
    }
}
