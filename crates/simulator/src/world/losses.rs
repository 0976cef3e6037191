//! What a loss does to a cluster, and what it may do to its pages.

use super::{GONE, HOME, Letter, Shape, World};
use commonhold_coherence::central::OnLoss;
use commonhold_coherence::{Access, Event, HostId, Scheduler, Why};
use std::collections::VecDeque;

impl<N: Scheduler> World<N>
where
    N::Message: Clone,
{
    pub(super) fn fail(&mut self, host: usize, page: u32, why: Why) {
        if self.scripts[host].front().is_some_and(|op| op.0.contains(page)) {
            self.scripts[host].pop_front();
            self.failed += 1;
        }
        let dead = match why {
            Why::HomeLost => self.is_dead(HOME),
            Why::NewestLost => self.dead.len() > self.followers.len(),
            Why::NotRead => self.was_unreadable,
            Why::NotStored => false, // nothing is stored here
        };
        self.expect(dead, "an error where nobody died");
        if why == Why::NewestLost && self.shape == Shape::Forwarding {
            self.expect(!self.is_anywhere(page as usize), "an error where somebody has the page");
            let is_kept = self.living().any(|host| self.kept[host][page as usize] != GONE);
            self.expect(self.on_loss == OnLoss::Error || !is_kept, "an error where a version is kept");
            let kept =
                self.living().map(|host| self.kept[host][page as usize]).filter(|kept| *kept != GONE).max();
            self.expect_replica(page as usize, kept);
        }
        self.wake(host);
    }

    fn living(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|host| !self.is_dead(*host))
    }

    /// Whether a living host may use a page, or another has sent it to one.
    fn is_anywhere(&self, page: usize) -> bool {
        let carries =
            |(message, _): &Letter<N::Message>| N::carries(message).pages().contains(&(page as u32));
        let is_sent = |((from, _), letters): (&(usize, usize), &VecDeque<Letter<N::Message>>)| {
            !self.is_dead(*from) && letters.iter().any(carries)
        };
        self.living().any(|host| self.rights[host][page] != Access::None) || self.channels.iter().any(is_sent)
    }

    /// A lost page is what a host kept of it from now on: of what living hosts keep the newest, and not older than what
    /// the only host that died was given.
    pub(super) fn restore(&mut self, host: usize, page: usize) {
        let version = self.kept[host][page];
        let newest = self.living().map(|host| self.kept[host][page]).filter(|kept| *kept != GONE).max();
        self.expect(newest == Some(version), "not the newest version that is kept was restored");
        self.expect(!self.is_anywhere(page), "a page was restored that somebody has");
        let is_newest = !self.followers.is_empty() && version == self.latest[page];
        let is_lost = self.dead.len() > self.followers.len();
        let is_wanted = is_newest || is_lost && (self.on_loss == OnLoss::Revert || self.was_reverted);
        self.expect(is_wanted, "a page was restored that was not lost");
        let is_old = self.dead.len() == 1 && self.on_loss == OnLoss::Revert && version < self.handed[page];
        self.expect(!is_old, "what was restored is more than one hand-over old");
        self.expect_replica(page, Some(version));
        self.kept[host][page] = GONE;
        self.frames[host][page] = version;
        self.latest[page] = version;
    }

    /// What somebody else has read is not lost while no more hosts have died than there are replicas.
    fn expect_replica(&mut self, page: usize, left: Option<u32>) {
        if self.dead.len() <= self.replicas as usize {
            self.expect(left >= self.read[page], "a version is lost that somebody else had read");
        }
    }

    pub(super) fn lose(&mut self, host: usize) {
        if self.is_dead(host) {
            return;
        }
        self.losses = self.losses.saturating_sub(1);
        self.beginning.remove(&host);
        self.dead.push(host);
        self.scripts[host].clear();
        self.channels.retain(|(_, to), _| *to != host);
        self.count_rights(host, |_| Access::None);
    }

    /// A host learns of the next loss.
    pub(super) fn learn(&mut self, host: usize) {
        // Under forwarding hosts may learn of losses in different orders.
        let is_backwards = self.shape == Shape::Forwarding && host % 2 == 1;
        let next = if is_backwards { self.unknown(host).next_back() } else { self.unknown(host).next() };
        let Some(lost) = next else { return };
        self.known[host].insert(lost);
        if self.shape == Shape::Central && host == HOME {
            self.revert(lost);
        }
        self.channels.remove(&(lost, host));
        self.happens(host, self.loss_of(lost));
        if host == HOME
            && let Some(next) = self.followers.get(&lost).copied().filter(|next| self.beginning.remove(next))
            && !self.is_dead(next)
        {
            self.happens(next, Event::Join);
        }
    }

    pub(super) fn loss_of(&self, lost: usize) -> Event<N::Message> {
        let followed_by = self.followers.get(&lost).map(|next| HostId(*next as u32));
        Event::Lost { host: HostId(lost as u32), followed_by }
    }

    /// The process of a host dies; its frames, what it kept and its programs are the next one's.
    pub(super) fn restart(&mut self, host: usize) {
        let me = HostId(self.nodes.len() as u32);
        let Some(node) = self.nodes[host].next_process(me).filter(|_| !self.is_dead(host)) else { return };
        self.restarts = self.restarts.saturating_sub(1);
        let script = std::mem::take(&mut self.scripts[host]);
        let losses = self.losses;
        self.lose(host);
        self.losses = losses;
        let next = self.join(node, script.into());
        let (frames, kept) = (self.frames[host].clone(), self.kept[host].clone());
        (self.frames[next], self.kept[next]) = (frames, kept);
        self.writer.iter_mut().filter(|writer| **writer == host).for_each(|writer| *writer = next);
        self.followers.insert(host, next);
        self.beginning.insert(next);
    }

    /// What a host had written and nobody else had yet is gone: the newest version is what the home has then.
    fn revert(&mut self, lost: usize) {
        for page in 0..self.pages() {
            let beside = (0..self.nodes.len())
                .any(|host| !self.is_dead(host) && self.nodes[host].access(page) == Access::Write);
            if self.on_loss == OnLoss::Revert && !beside && self.is_under_way(lost, page) {
                self.latest[page as usize] = self.frames[HOME][page as usize];
            }
        }
    }

    /// Whether a host could write a page when it died, or has sent it: then its newest version goes with the host.
    fn is_under_way(&self, host: usize, page: u32) -> bool {
        let letters = self.channels.get(&(host, HOME)).into_iter().flatten();
        let mut carried = letters.flat_map(|(message, _)| N::carries(message).pages());
        self.nodes[host].access(page) == Access::Write || carried.any(|carried| carried == page)
    }
}
