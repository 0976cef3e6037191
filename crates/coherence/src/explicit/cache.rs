//! A host that shares: what it has, what it wrote, what others changed meanwhile.

use super::message::Message;
use crate::event::{Access, Action, Event, Why};
use crate::span::{HostId, Span};
use std::collections::{BTreeMap, VecDeque};

/// One page at one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Page {
    /// Processes here may read and write it.
    present: bool,
    /// It was asked for.
    asked: bool,
    /// Written here, and not sent.
    dirty: bool,
    /// Syncs under way that have it.
    syncing: u32,
    locked: bool,
    /// Another host synced it after it came here.
    stale: bool,
}

/// A sync that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sync {
    pages: Vec<u32>,
    conflicts: u32,
}

/// One host's part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cache {
    home: HostId,
    pages: BTreeMap<u32, Page>,
    syncs: VecDeque<Sync>,
    asked: u32,
    /// Nothing can be fetched or synced any more.
    home_lost: bool,
}

impl Cache {
    pub fn new(home: HostId) -> Cache {
        Cache { home, pages: BTreeMap::new(), syncs: VecDeque::new(), asked: 0, home_lost: false }
    }

    pub fn access(&self, page: u32) -> Access {
        if self.pages.get(&page).is_some_and(|page| page.present) { Access::Write } else { Access::None }
    }

    pub fn is_waiting(&self) -> bool {
        self.asked > 0 || !self.syncs.is_empty()
    }

    /// Whether what is here is not what the home has, and known not to be.
    pub fn is_own(&self, page: u32) -> bool {
        self.pages.get(&page).is_some_and(|page| page.dirty || page.syncing > 0 || page.stale)
    }

    pub fn handle(&mut self, event: Event<Message>, actions: &mut Vec<Action<Message>>) {
        match event {
            Event::Fault { span, access, .. } => self.fault(span, access, actions),
            Event::Written { span } => {
                for page in span.pages() {
                    let page = self.page(page);
                    page.dirty |= page.present;
                }
            }
            Event::Sync { pages } => self.sync(&pages, actions),
            Event::Lock { span } => span.pages().for_each(|page| self.page(page).locked = true),
            Event::Unlock { span } => {
                for page in span.pages() {
                    self.page(page).locked = false;
                    self.drop_if_stale(page, actions);
                }
            }
            Event::Evict { page } => self.evict(page, actions),
            Event::Message { message, .. } => self.message(message, actions),
            Event::Lost { host, .. } if host == self.home => self.home_lost(actions),
            Event::Lost { .. } | Event::HoldOver { .. } | Event::Join | Event::Leave | Event::Revert => {}
        }
        self.pages.retain(|_, page| *page != Page::default());
    }

    fn page(&mut self, page: u32) -> &mut Page {
        self.pages.entry(page).or_default()
    }

    fn fault(&mut self, span: Span, access: Access, actions: &mut Vec<Action<Message>>) {
        if span.pages().all(|page| self.access(page) != Access::None) {
            actions.push(Action::Install { span, access, with_data: false });
            return;
        }
        if self.home_lost {
            let missing = span.pages().filter(|page| self.access(*page) == Access::None);
            actions.extend(missing.map(|page| Action::Fail { page, why: Why::HomeLost }));
            return;
        }
        let missing: Vec<u32> =
            span.pages().filter(|page| self.pages.get(page).is_none_or(|p| !p.present && !p.asked)).collect();
        for run in missing.chunk_by(|a, b| a + 1 == *b) {
            let span = Span::new(run[0], run.len() as u32);
            run.iter().for_each(|page| self.page(*page).asked = true);
            self.asked += 1;
            actions.push(Action::Send { to: self.home, message: Message::Fetch { span } });
        }
    }

    /// Sends what was written, all in one message. A sync of nothing is done at once.
    fn sync(&mut self, wanted: &[u32], actions: &mut Vec<Action<Message>>) {
        if self.home_lost {
            actions.push(Action::SyncFailed { why: Why::HomeLost });
            return;
        }
        let mut sync = Sync { pages: Vec::new(), conflicts: 0 };
        for number in wanted {
            if let Some(page) = self.pages.get_mut(number).filter(|page| page.dirty) {
                page.dirty = false;
                page.syncing += 1;
                sync.conflicts += u32::from(page.stale);
                page.stale = false;
                sync.pages.push(*number);
            }
        }
        if sync.pages.is_empty() && self.syncs.is_empty() {
            actions.push(Action::Synced { pages: 0, conflicts: 0 });
            return;
        }
        // After a sync under way also one of nothing waits: what that one sends must be seen when this one is done.
        actions.push(Action::Send { to: self.home, message: Message::Sync { pages: sync.pages.clone() } });
        self.syncs.push_back(sync);
    }

    fn message(&mut self, message: Message, actions: &mut Vec<Action<Message>>) {
        match message {
            Message::Pages { span } => {
                self.asked = self.asked.saturating_sub(1);
                for page in span.pages() {
                    let page = self.page(page);
                    *page = Page { present: true, locked: page.locked, ..Page::default() };
                }
                actions.push(Action::Install { span, access: Access::Write, with_data: true });
            }
            Message::NotRead { span } => self.not_read(span, actions),
            Message::Changed { pages } => {
                for page in pages {
                    self.changed(page, actions);
                }
                actions.push(Action::Send { to: self.home, message: Message::Known });
            }
            Message::Synced => self.synced(actions),
            Message::NotSynced => self.not_synced(actions),
            Message::Fetch { .. } | Message::Sync { .. } | Message::Known | Message::Leave => {}
        }
    }

    /// The home could not read what was asked for. Of several pages each is asked for by itself: some of them can be had.
    fn not_read(&mut self, span: Span, actions: &mut Vec<Action<Message>>) {
        self.asked = self.asked.saturating_sub(1);
        for number in span.pages() {
            if !self.pages.get(&number).is_some_and(|page| page.asked) {
                continue;
            }
            if span.count > 1 {
                self.asked += 1;
                let message = Message::Fetch { span: Span::one(number) };
                actions.push(Action::Send { to: self.home, message });
            } else {
                self.page(number).asked = false;
                actions.push(Action::Fail { page: number, why: Why::NotRead });
            }
        }
    }

    /// Another host's sync. One that has our page in a sync under way comes before ours at the home: ours will win.
    fn changed(&mut self, number: u32, actions: &mut Vec<Action<Message>>) {
        let page = self.page(number);
        if page.syncing > 0 {
            if let Some(sync) = self.syncs.iter_mut().find(|sync| sync.pages.contains(&number)) {
                sync.conflicts += 1;
            }
            return;
        }
        page.stale = page.present;
        self.drop_if_stale(number, actions);
    }

    /// What others changed goes, unless it was written or locked here.
    fn drop_if_stale(&mut self, number: u32, actions: &mut Vec<Action<Message>>) {
        let page = self.page(number);
        if page.stale && !page.dirty && !page.locked && page.syncing == 0 {
            page.present = false;
            page.stale = false;
            actions.push(Action::Restrict { page: number, access: Access::None });
        }
    }

    fn synced(&mut self, actions: &mut Vec<Action<Message>>) {
        let Some(sync) = self.syncs.pop_front() else { return };
        for page in &sync.pages {
            self.page(*page).syncing -= 1;
        }
        actions.push(Action::Synced { pages: sync.pages.len() as u32, conflicts: sync.conflicts });
    }

    /// The oldest sync is what everybody sees, and yet failed: it is to be tried again.
    fn not_synced(&mut self, actions: &mut Vec<Action<Message>>) {
        let Some(sync) = self.syncs.pop_front() else { return };
        for page in &sync.pages {
            let page = self.page(*page);
            page.syncing -= 1;
            page.dirty = true;
        }
        actions.push(Action::SyncFailed { why: Why::NotStored });
    }

    /// A host that begins anew, or finds its home again: all that it has is what was written here and not sent.
    pub fn anew(&self, written: impl IntoIterator<Item = u32>) -> Cache {
        let page = |number| (number, Page { present: true, dirty: true, ..Page::default() });
        Cache { pages: written.into_iter().map(page).collect(), ..Cache::new(self.home) }
    }

    /// Memory is short: what was not written goes.
    fn evict(&mut self, number: u32, actions: &mut Vec<Action<Message>>) {
        let page = self.page(number);
        if page.present && !page.dirty && !page.locked && page.syncing == 0 {
            page.present = false;
            page.stale = false;
            actions.push(Action::Restrict { page: number, access: Access::None });
        }
    }

    /// Nothing can be fetched or synced any more. What is here stays.
    fn home_lost(&mut self, actions: &mut Vec<Action<Message>>) {
        self.home_lost = true;
        self.asked = 0;
        for _ in std::mem::take(&mut self.syncs) {
            actions.push(Action::SyncFailed { why: Why::HomeLost });
        }
        for (number, page) in &mut self.pages {
            page.dirty |= page.syncing > 0;
            page.syncing = 0;
            if std::mem::take(&mut page.asked) {
                actions.push(Action::Fail { page: *number, why: Why::HomeLost });
            }
        }
    }
}
