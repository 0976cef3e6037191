//! Replicas: a version leaves its owner, to be read or owned elsewhere, only when N other hosts keep it.
//!
//! A version is *published* when they do, and until its owner writes again. Publishing comes before the first copy of a
//! version and before a hand-over; for a hand-over one keeper less is needed, because the old owner keeps what it sends.

use super::message::Message;
use super::node::{Actions, Node, Phase};
use super::page::Purpose;
use crate::event::{Access, Action};
use crate::span::{HostId, Span};
use std::collections::BTreeSet;

/// Pages that an owner publishes at once after a loss.
const FILLED_AT_ONCE: usize = 32;

impl Node {
    /// Hosts that can keep versions. Whoever was not heard of yet might not take what is sent for what is said now.
    fn possible_keepers(&self) -> impl Iterator<Item = HostId> {
        self.view.living().filter(|host| *host != self.me && self.met.contains(host))
    }

    /// How many keepers a version needs: fewer than were asked for, where there are not so many hosts.
    pub(super) fn keepers_needed(&self) -> usize {
        self.possible_keepers().take(self.options.replicas as usize).count()
    }

    /// Whether there are too few hosts for as many replicas as were asked for.
    pub fn is_short_of_keepers(&self) -> bool {
        self.keepers_needed() < self.options.replicas as usize
    }

    /// The home, and those who were admitted first: mostly the same for all pages.
    fn choose_keepers(&self, count: usize, successor: Option<HostId>) -> BTreeSet<HostId> {
        let may = |host: &HostId| Some(*host) != successor;
        let mut ranked: Vec<(u32, HostId)> =
            self.possible_keepers().filter(may).map(|host| (self.view.ranks[&host], host)).collect();
        ranked.sort_unstable();
        ranked.into_iter().take(count).map(|(_, host)| host).collect()
    }

    /// Publishes what others wait for. Whether that is under way now: until it is done nobody gets anything.
    pub(super) fn publishes_first(&mut self, number: u32, actions: &mut Actions) -> bool {
        let is_to_be_filled = self.filling.contains(&number);
        let locked = self.locked.contains(&number);
        let page = self.page(number);
        if !page.owned
            || page.published
            || page.purpose.is_some()
            || page.access == Access::Write && page.holds > 0
        {
            return false;
        }
        if !page.readers.is_empty() || is_to_be_filled {
            self.publish(number, None, actions);
        } else if page.holds == 0
            && !locked
            && let Some(next) = page.take_next()
        {
            self.publish(number, Some(next), actions);
        } else {
            return false;
        }
        true
    }

    fn publish(&mut self, number: u32, successor: Option<HostId>, actions: &mut Actions) {
        let needed = self.keepers_needed();
        let count = if successor.is_some() { needed.saturating_sub(1) } else { needed };
        let keepers = self.choose_keepers(count, successor);
        let page = self.page(number);
        page.purpose = Some(Purpose::Publish(successor));
        page.expected = keepers.clone();
        page.fresh = keepers;
        if page.expected.is_empty() {
            return self.is_published(number, actions);
        }
        if page.access == Access::Write {
            page.access = Access::Read;
            actions.push(Action::Restrict { page: number, access: Access::Read });
        }
        let message = Message::Replica { page: number, number: page.number.saturating_add(1) };
        actions.extend(page.expected.iter().map(|to| Action::Send { to: *to, message: message.clone() }));
    }

    /// A version that this host is to keep.
    pub(super) fn replica(&mut self, number: u32, version: u64, actions: &mut Actions) {
        let page = self.page(number);
        if !page.owned {
            (page.kept, page.sent_to) = (Some(version), None);
            actions.push(Action::KeepCame { page: number, number: version });
        }
    }

    /// The same from a host that settled all that this one has, and maybe more. Its bytes are here now, and later not.
    pub(super) fn replica_now(&mut self, from: HostId, number: u32, version: u64, actions: &mut Actions) {
        if self.phase == Phase::Frozen {
            self.round.replicas.insert(number);
        }
        self.replica(number, version, actions);
        actions.push(Action::Send { to: from, message: Message::Held { page: number } });
    }

    /// A host keeps what it was sent.
    pub(super) fn held(&mut self, from: HostId, number: u32, actions: &mut Actions) {
        let page = self.page(number);
        let is_publishing = matches!(page.purpose, Some(Purpose::Publish(_)));
        if is_publishing && page.expected.remove(&from) && page.expected.is_empty() {
            self.is_published(number, actions);
        }
    }

    fn is_published(&mut self, number: u32, actions: &mut Actions) {
        let me = self.me;
        let page = self.page(number);
        if let Some(Purpose::Publish(Some(next))) = page.purpose {
            // Those who keep the version before are needed until the successor has this one.
            return self.invalidate_owned(number, Purpose::HandOver(next), next, actions);
        }
        page.purpose = None;
        let was_hidden = page.access == Access::None;
        if page.access == Access::Write {
            page.access = Access::Read; // nobody keeps it, for want of hosts
            actions.push(Action::Restrict { page: number, access: Access::Read });
        }
        page.number = page.number.saturating_add(1);
        page.published = true;
        let version = page.number;
        let before = std::mem::replace(&mut page.keepers, std::mem::take(&mut page.fresh));
        if was_hidden {
            page.access = Access::Read;
            let span = Span::one(number);
            actions.push(Action::Install { span, access: Access::Read, with_data: false });
        }
        let wants_to_write = page.asked == Access::Write;
        if !wants_to_write {
            (page.asked, page.wants) = (Access::None, Access::None);
        }
        let not_any_more: BTreeSet<HostId> = before.difference(&page.keepers).copied().collect();
        self.tell_to_forget(number, version - 1, not_any_more, actions);
        self.supply_waiting(number, actions);
        if wants_to_write {
            self.invalidate_owned(number, Purpose::Write, me, actions);
        } else {
            self.pass_on(number, actions);
        }
        if was_hidden && self.has_left {
            self.retire(number, actions);
        }
        if self.filling.remove(&number) {
            self.fill_up(actions);
        }
    }

    /// The home keeps what it has in any case.
    pub(super) fn tell_to_forget(
        &self,
        page: u32,
        number: u64,
        keepers: impl IntoIterator<Item = HostId>,
        actions: &mut Actions,
    ) {
        let others = keepers.into_iter().filter(|keeper| *keeper != self.home && *keeper != self.me);
        actions.extend(others.map(|to| Action::Send { to, message: Message::Forget { page, number } }));
    }

    /// A host came where there were too few: what this host has published goes to it too.
    pub(super) fn has_one_more_host(&mut self, actions: &mut Actions) {
        let needed = self.keepers_needed();
        if self.phase != Phase::Running || needed == 0 || self.possible_keepers().count() > needed {
            return;
        }
        let owned: Vec<u32> =
            self.pages.glances().filter(|(_, page)| page.owned).map(|(number, _)| number).collect();
        for number in owned {
            let page = self.page(number);
            if page.purpose.is_none() && !page.keepers.is_empty() && page.keepers.len() < needed {
                page.published = false;
                self.to_fill.insert(number);
            }
            self.pages.tidy(); // not all of them at once
        }
        self.fill_up(actions);
    }

    /// After a loss: pages of this host that have too few keepers are published anew, some at a time.
    pub(super) fn fill_up(&mut self, actions: &mut Actions) {
        while self.phase == Phase::Running && self.filling.len() < FILLED_AT_ONCE {
            let Some(number) = self.to_fill.pop_first() else { return };
            let page = self.page(number);
            if page.owned && !page.published {
                self.fill(number, actions);
            }
        }
    }

    /// The same for one page.
    pub(super) fn fill(&mut self, number: u32, actions: &mut Actions) {
        self.filling.insert(number);
        self.pass_on(number, actions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, Scheduler};
    use crate::forwarding::Options;
    use std::collections::VecDeque;

    const HOSTS: u32 = 9;

    /// Something happens at one host, and then whatever follows from it anywhere.
    fn happens(nodes: &mut [Node], host: u32, event: Event<Message>) {
        let mut to_do = VecDeque::from([(HostId(host), event)]);
        while let Some((host, event)) = to_do.pop_front() {
            let mut actions = Vec::new();
            nodes[host.0 as usize].handle(event, &mut actions);
            to_do.extend(actions.into_iter().filter_map(|action| match action {
                Action::Send { to, message } => Some((to, Event::Message { from: host, message })),
                Action::Hold { page } => Some((host, Event::HoldOver { page })),
                _ => None,
            }));
        }
    }

    /// Whoever keeps a version, reads it and gave copies of it remembers all that in little room, as others do.
    #[test]
    fn a_page_that_is_kept_and_read_by_all_takes_few_bytes() {
        let members: Vec<HostId> = (0..HOSTS).map(HostId).collect();
        let options = Options { replicas: 2, ..Options::default() };
        for above in [|_| 0, |me: u32| me.saturating_sub(1) / 2] {
            let node = |me: &HostId| Node::founder(*me, HostId(above(me.0)), &members, options);
            let mut nodes: Vec<Node> = members.iter().map(node).collect();
            for (page, writers) in [(1, 0..0), (2, 1..3), (3, 1..HOSTS), (4, 3..4)] {
                let readers = (0..HOSTS).map(|host| (host, Access::Read));
                for (host, access) in writers.map(|host| (host, Access::Write)).chain(readers) {
                    happens(
                        &mut nodes,
                        host,
                        Event::Fault { span: Span::one(page), access, may_write: false },
                    );
                    assert!(nodes[host as usize].access(page) >= access, "host {host} has page {page}");
                }
            }
            let in_full = |node: &Node| node.pages.busy().map(|(page, _)| page).collect::<Vec<_>>();
            let in_full: Vec<Vec<u32>> = nodes.iter().map(in_full).collect();
            assert!(in_full.iter().all(Vec::is_empty), "pages in full: {in_full:?}");
        }
    }
}
