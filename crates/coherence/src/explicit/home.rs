//! The home: who shares, and one sync after the other.

use super::message::Message;
use crate::event::Action;
use crate::span::HostId;
use std::collections::{BTreeSet, VecDeque};

/// A sync that came and is not done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Turn {
    host: HostId,
    pages: Vec<u32>,
}

/// The home of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Home {
    sharing: BTreeSet<HostId>,
    /// Syncs that wait: their bytes are kept until it is their turn.
    turns: VecDeque<Turn>,
    /// Who has not yet said that it knows of the sync at the front.
    expected: BTreeSet<HostId>,
}

impl Home {
    pub fn is_waiting(&self) -> bool {
        !self.turns.is_empty()
    }

    /// A message from a host.
    pub fn handle(&mut self, from: HostId, message: Message, actions: &mut Vec<Action<Message>>) {
        match message {
            Message::Fetch { span } => {
                self.sharing.insert(from);
                actions.push(Action::Send { to: from, message: Message::Pages { span } });
            }
            Message::Sync { pages } => {
                self.sharing.insert(from);
                // One at a time: a host that is told of a sync while its own is not done knows that its own comes later.
                self.turns.push_back(Turn { host: from, pages });
                if self.turns.len() == 1 {
                    self.begin(true, actions);
                    self.go_on(actions);
                } else {
                    actions.push(Action::Keep);
                }
            }
            Message::Known => self.knows(from, actions),
            Message::Leave => {
                self.sharing.remove(&from);
                self.knows(from, actions);
            }
            Message::Pages { .. }
            | Message::NotRead { .. }
            | Message::Changed { .. }
            | Message::Synced
            | Message::NotSynced => {}
        }
    }

    /// Makes the pages of the sync at the front what everybody sees. `at_hand`: their bytes came with the message being
    /// handled; else they were kept.
    fn begin(&mut self, at_hand: bool, actions: &mut Vec<Action<Message>>) {
        let Some(turn) = self.turns.front() else { return };
        if !at_hand {
            actions.push(Action::TakeKept);
        }
        actions.extend(turn.pages.iter().map(|page| Action::Save { page: *page }));
        let host = turn.host;
        let concerned = |sharing: &HostId| *sharing != host && !turn.pages.is_empty();
        self.expected = self.sharing.iter().copied().filter(concerned).collect();
        let message = Message::Changed { pages: turn.pages.clone() };
        actions.extend(self.expected.iter().map(|to| Action::Send { to: *to, message: message.clone() }));
    }

    fn knows(&mut self, host: HostId, actions: &mut Vec<Action<Message>>) {
        if self.expected.remove(&host) {
            self.go_on(actions);
        }
    }

    /// Ends turns that all know of, one after the other: many that nobody has to know of may wait.
    fn go_on(&mut self, actions: &mut Vec<Action<Message>>) {
        while self.expected.is_empty()
            && let Some(turn) = self.turns.pop_front()
        {
            if self.sharing.contains(&turn.host) {
                actions.push(Action::Send { to: turn.host, message: Message::Synced });
            }
            self.begin(false, actions);
        }
    }

    /// A host is lost: what it synced is safe here, what it did not was its own.
    pub fn lose(&mut self, host: HostId, actions: &mut Vec<Action<Message>>) {
        self.sharing.remove(&host);
        self.knows(host, actions);
    }
}
