//! What a host does with an object whose home schedules it: the paper's kernel.

use super::message::Message;
use super::pages::{Page, Pages, Wanted};
use crate::event::{Access, Action, Event};
use crate::span::{HostId, Span};
use std::collections::{BTreeMap, BTreeSet};

/// One host's part of a centrally scheduled object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cache {
    home: HostId,
    /// Whether the object has a minimum hold.
    holds: bool,
    pages: Pages,
    /// The requests under way, by their first page: a refusal or grant is for the whole of one.
    spans: BTreeMap<u32, Span>,
    /// Nothing can be asked for any more.
    home_lost: bool,
    /// Pages that a process here holds: others may read them, and get them when they are let.
    locked: BTreeSet<u32>,
}

impl Cache {
    /// A host that has no page yet.
    pub fn new(home: HostId, holds: bool) -> Cache {
        Cache {
            home,
            holds,
            pages: Pages::default(),
            spans: BTreeMap::new(),
            home_lost: false,
            locked: BTreeSet::new(),
        }
    }

    /// What processes of this host may do with a page.
    pub fn access(&self, page: u32) -> Access {
        self.pages.access(page)
    }

    /// Whether the home wants the page gone, and it is not yet.
    pub fn is_wanted(&self, page: u32) -> bool {
        self.pages.get(page).wanted.is_some_and(|wanted| wanted != Wanted::Back(Access::Read))
    }

    /// Whether the home has to answer something.
    pub fn is_waiting(&self) -> bool {
        !self.spans.is_empty()
    }

    /// Something happened.
    pub fn handle(&mut self, event: Event<Message>, actions: &mut Vec<Action<Message>>) {
        let touched = match &event {
            Event::Fault { span, .. } | Event::Lock { span } | Event::Unlock { span } => *span,
            Event::Evict { page } | Event::HoldOver { page } => Span::one(*page),
            Event::Message { message, .. } => message.span(),
            _ => Span::new(0, u32::MAX), // rare: a loss
        };
        match event {
            Event::Fault { span, access, .. } => self.fault(span, access, actions),
            Event::Evict { page } => self.evict(page, actions),
            Event::HoldOver { page } => self.hold_over(page, actions),
            Event::Message { message, .. } => self.message(message, actions),
            Event::Lost { host, .. } if host == self.home => {
                self.home_lost = true;
                let spans: Vec<Span> = self.spans.values().copied().collect();
                spans.into_iter().for_each(|span| self.refused(span, crate::Why::HomeLost, actions));
            }
            Event::Lock { span } => self.locked.extend(span.pages()),
            Event::Unlock { span } => span.pages().for_each(|page| self.unlock(page, actions)),
            Event::Lost { .. }
            | Event::Written { .. }
            | Event::Sync { .. }
            | Event::Join
            | Event::Leave
            | Event::Revert => {}
        }
        self.pages.tidy(touched);
    }

    fn page(&mut self, page: u32) -> &mut Page {
        self.pages.get_mut(page)
    }

    fn fault(&mut self, span: Span, access: Access, actions: &mut Vec<Action<Message>>) {
        if span.pages().all(|page| self.access(page) >= access) {
            actions.push(Action::Install { span, access, with_data: false });
            return;
        }
        if self.home_lost {
            actions.extend(span.pages().map(|page| Action::Fail { page, why: crate::Why::HomeLost }));
            return;
        }
        for page in span.pages() {
            let page = self.page(page);
            page.wants = page.wants.max(access);
        }
        self.ask_for_wanted(span, actions);
        // What this host waits for itself it does not keep: who wants it may be before us.
        span.pages().for_each(|page| self.give_up_late(page, actions));
    }

    /// Asks for what is wanted in `span`, in one request for all of it: two hosts that get their pages in parts can take
    /// the parts from each other for ever. (That a part is under way already happens only to a host whose requests are not
    /// aligned to its own page size.)
    fn ask_for_wanted(&mut self, span: Span, actions: &mut Vec<Action<Message>>) {
        let pages: Vec<Page> = span.pages().map(|page| self.pages.get(page)).collect();
        if pages.iter().any(|page| page.asked != Access::None) {
            return self.ask_in_parts(span, actions);
        }
        let wants = pages.iter().map(|page| page.wants).max().unwrap_or(Access::None);
        if pages.iter().all(|page| page.access >= wants) {
            return;
        }
        // All of the request comes with bytes or nothing does, and the home's are old where this host has written: what
        // is not alike is made so first.
        let least = pages.iter().map(|page| page.access).min().unwrap_or(Access::None);
        for (number, page) in span.pages().zip(pages).filter(|(_, page)| page.access > least) {
            self.lower(number, page.access, least, actions);
        }
        self.ask(span, wants, actions);
    }

    /// Gives a page up, or the right to write it, unasked.
    fn lower(&mut self, number: u32, from: Access, to: Access, actions: &mut Vec<Action<Message>>) {
        self.page(number).access = to;
        actions.push(Action::Restrict { page: number, access: to });
        if from == Access::Write {
            let message = Message::PageOut { page: number, answers: false, keeps: to };
            actions.push(Action::Send { to: self.home, message });
        }
    }

    /// Asks for what is wanted in `span` and not under way: in one request, as far as it lies together.
    fn ask_in_parts(&mut self, span: Span, actions: &mut Vec<Action<Message>>) {
        let missing =
            |page: &Page| (page.asked == Access::None && page.wants > page.access).then_some(page.wants);
        let mut run: Option<(Span, Access)> = None;
        for number in span.pages() {
            let wants = missing(&self.pages.get(number));
            run = match (run, wants) {
                (Some((span, access)), Some(wants)) if access == wants => {
                    Some((Span::new(span.first, span.count + 1), access))
                }
                (before, wants) => {
                    if let Some((span, access)) = before {
                        self.ask(span, access, actions);
                    }
                    wants.map(|wants| (Span::one(number), wants))
                }
            };
        }
        if let Some((span, access)) = run {
            self.ask(span, access, actions);
        }
    }

    fn ask(&mut self, span: Span, access: Access, actions: &mut Vec<Action<Message>>) {
        let has_copy = span.pages().all(|page| self.access(page) >= Access::Read);
        span.pages().for_each(|page| self.page(page).asked = access);
        self.spans.insert(span.first, span);
        actions.push(Action::Send { to: self.home, message: Message::Request { span, access, has_copy } });
    }

    fn message(&mut self, message: Message, actions: &mut Vec<Action<Message>>) {
        match message {
            Message::Grant { span, access, with_data } => self.granted(span, access, with_data, actions),
            Message::Recall { page, keep } => self.give_up(page, Wanted::Back(keep), actions),
            Message::Invalidate { page } => self.give_up(page, Wanted::Gone, actions),
            Message::Refuse { span, why } => self.refused(span, why, actions),
            Message::Request { .. } | Message::PageOut { .. } | Message::Done { .. } => {}
        }
    }

    fn granted(&mut self, span: Span, access: Access, with_data: bool, actions: &mut Vec<Action<Message>>) {
        self.spans.remove(&span.first);
        for number in span.pages() {
            let holds = u8::from(self.holds);
            let page = self.page(number);
            page.access = page.access.max(access);
            page.asked = Access::None;
            page.holds = page.holds.saturating_add(holds);
        }
        actions.push(Action::Install { span, access, with_data });
        if self.holds {
            actions.extend(span.pages().map(|page| Action::Hold { page }));
        }
        // A write may have come while a read was asked for.
        self.ask_for_wanted(span, actions);
        for number in span.pages() {
            let page = self.page(number);
            if page.asked == Access::None {
                page.wants = Access::None;
            }
        }
    }

    fn refused(&mut self, span: Span, why: crate::Why, actions: &mut Vec<Action<Message>>) {
        self.spans.remove(&span.first);
        if why != crate::Why::HomeLost && span.count > 1 {
            // Some of them can be had: each is asked for by itself.
            for number in span.pages() {
                let page = self.page(number);
                let access = std::mem::replace(&mut page.asked, Access::None);
                self.ask(Span::one(number), access, actions);
            }
            return;
        }
        for number in span.pages() {
            let page = self.page(number);
            page.asked = Access::None;
            page.wants = Access::None;
            actions.push(Action::Fail { page: number, why });
        }
    }

    /// The home wants a page back, or a copy gone. Answered once, now or when the minimum hold is over.
    fn give_up(&mut self, number: u32, wanted: Wanted, actions: &mut Vec<Action<Message>>) {
        let home = self.home;
        let locked = self.locked.contains(&number);
        let page = self.page(number);
        let kept = locked && page.asked == Access::None && wanted != Wanted::Back(Access::Read);
        if (page.holds > 0 || kept) && page.access != Access::None {
            page.wanted = Some(wanted);
            return;
        }
        let (left, answer) = match wanted {
            Wanted::Back(keep) if page.access == Access::Write => {
                (keep, Message::PageOut { page: number, answers: true, keeps: keep })
            }
            // It went out unasked, and crossed the recall; a copy that was left is counted as gone.
            Wanted::Back(_) | Wanted::Gone => (Access::None, Message::Done { page: number }),
        };
        if left < page.access {
            page.access = left;
            actions.push(Action::Restrict { page: number, access: left });
        }
        actions.push(Action::Send { to: home, message: answer });
    }

    fn hold_over(&mut self, number: u32, actions: &mut Vec<Action<Message>>) {
        let page = self.page(number);
        page.holds = page.holds.saturating_sub(1);
        self.give_up_late(number, actions);
    }

    /// What the home wants, if nothing keeps it any more.
    fn give_up_late(&mut self, number: u32, actions: &mut Vec<Action<Message>>) {
        let page = self.page(number);
        let wanted = if page.holds == 0 { page.wanted.take() } else { None };
        if let Some(wanted) = wanted {
            self.give_up(number, wanted, actions);
        }
    }

    fn unlock(&mut self, number: u32, actions: &mut Vec<Action<Message>>) {
        self.locked.remove(&number);
        self.give_up_late(number, actions);
    }

    /// Memory is short here. A copy that an upgrade counts on stays, and so does what is held.
    fn evict(&mut self, number: u32, actions: &mut Vec<Action<Message>>) {
        let locked = self.locked.contains(&number);
        let page = self.page(number);
        if page.holds > 0 || locked || page.asked != Access::None || page.access == Access::None {
            return;
        }
        let access = page.access;
        if access == Access::Write && self.home_lost {
            return; // nobody else would have it then
        }
        self.lower(number, access, Access::None, actions);
    }
}
