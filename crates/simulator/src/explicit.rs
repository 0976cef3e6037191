//! A cluster under explicit coherence: what a sync shows to whom, and that nothing written is dropped.

use crate::clock::Cluster;
use crate::news::{News, Notes};
use commonhold_coherence::explicit::{Message, Node};
use commonhold_coherence::{Access, Action, Carried, Event, HostId, Scheduler, Span};
use std::collections::{BTreeMap, VecDeque};

mod searched;

const HOME: usize = 0;
const GONE: u32 = u32::MAX;

/// What a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Reads a page.
    Read(u32),
    /// Writes a page.
    Write(u32),
    /// Syncs all pages.
    Sync,
    /// Locks a page.
    Lock(u32),
    /// Unlocks it.
    Unlock(u32),
}

/// A message under way, with its bytes.
type Letter = (Message, Vec<u32>);

/// How a search is bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// How many pages may be given up unasked.
    pub evictions: u8,
    /// How many hosts may die.
    pub losses: u8,
    /// How often a host may be told of a loss that it knows of.
    pub lessons: u8,
}

/// Hosts, what is in their frames, and what is under way. Every write makes a version of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct World {
    /// The state machines.
    pub nodes: Vec<Node>,
    frames: Vec<Vec<u32>>,
    saved: Vec<u32>,
    kept: VecDeque<Vec<u32>>,
    channels: BTreeMap<(usize, usize), VecDeque<Letter>>,
    /// Written since the scheduler was told last.
    untold: Vec<Vec<bool>>,
    /// Written since the last sync was sent: may not be dropped.
    unsent: Vec<Vec<bool>>,
    /// Pages of each sync that is under way.
    syncing: Vec<VecDeque<Vec<u32>>>,
    scripts: Vec<VecDeque<Op>>,
    awake: Vec<bool>,
    dead: Vec<usize>,
    known: Vec<usize>,
    /// Programs of hosts that come later.
    pub newcomers: VecDeque<Vec<Op>>,
    /// What may still happen of what need not, in a search.
    pub bounds: Bounds,
    versions: u32,
    /// Versions that a sync replaced though its host had not seen them.
    pub conflicts: u32,
    /// Accesses and syncs that ended in an error.
    pub failed: u32,
    violation: Option<String>,
    /// For drivers.
    pub notes: Notes,
}

impl World {
    /// Hosts that have not done anything; the first is the home.
    pub fn new(pages: usize, scripts: Vec<Vec<Op>>) -> World {
        let mut world = World { saved: vec![0; pages], ..World::default() };
        for script in scripts {
            world.add(script);
        }
        world
    }

    /// One more host.
    pub fn add(&mut self, script: Vec<Op>) -> usize {
        let (host, pages) = (self.nodes.len(), self.saved.len());
        self.nodes.push(Node::new(HostId(host as u32), HostId(HOME as u32)));
        self.frames.push(vec![GONE; pages]);
        self.untold.push(vec![false; pages]);
        self.unsent.push(vec![false; pages]);
        self.syncing.push(VecDeque::new());
        self.scripts.push(script.into());
        self.awake.push(true);
        self.known.push(self.dead.len());
        host
    }

    /// More for a host's program to do.
    pub fn extend(&mut self, host: usize, op: Op) {
        self.scripts[host].push_back(op);
    }

    /// What a host has of a page; none: it has none.
    pub fn version(&self, host: usize, page: u32) -> Option<u32> {
        Some(self.frames[host][page as usize]).filter(|version| *version != GONE)
    }

    /// What the home has saved of a page.
    pub fn saved(&self, page: u32) -> u32 {
        self.saved[page as usize]
    }

    /// Whether a host is dead.
    pub fn is_dead(&self, host: usize) -> bool {
        self.dead.contains(&host)
    }

    /// Something happens at a host that lives.
    pub fn happens(&mut self, host: usize, event: Event<Message>, data: Vec<u32>) {
        let mut actions = Vec::new();
        for page in 0..self.saved.len() {
            if std::mem::take(&mut self.untold[host][page]) {
                self.nodes[host].handle(Event::Written { span: Span::one(page as u32) }, &mut actions);
            }
        }
        self.nodes[host].handle(event, &mut actions);
        let mut data = VecDeque::from(data);
        for action in actions {
            match action {
                Action::Send { to, message } => self.send(host, to.0 as usize, message),
                Action::Install { span, with_data, .. } => {
                    for page in span.pages().filter(|_| with_data) {
                        let version = self.bytes(&mut data);
                        self.frames[host][page as usize] = version;
                    }
                    self.wake(host);
                }
                Action::Restrict { page, .. } => {
                    let unsent = self.unsent[host][page as usize];
                    self.expect(!unsent, || format!("what host {host} wrote to page {page} is dropped"));
                    self.frames[host][page as usize] = GONE;
                }
                Action::Save { page } => self.saved[page as usize] = self.bytes(&mut data),
                Action::Keep => self.kept.push_back(std::mem::take(&mut data).into()),
                Action::TakeKept => data = self.kept.pop_front().unwrap_or_default().into(),
                Action::Synced { conflicts, .. } => self.conflicts += conflicts,
                Action::SyncFailed { .. } => {
                    for page in self.syncing[host].pop_front().into_iter().flatten() {
                        self.unsent[host][page as usize] = true;
                    }
                    self.failed += 1;
                }
                Action::Fail { .. } => {
                    self.scripts[host].pop_front();
                    self.failed += 1;
                    self.wake(host);
                }
                Action::Own { .. }
                | Action::KeepSent { .. }
                | Action::KeepOld { .. }
                | Action::KeepCame { .. }
                | Action::KeepRead { .. }
                | Action::DropKept { .. }
                | Action::Restore { .. }
                | Action::NewestLost { .. } => {
                    self.expect(false, || "an action of the distributed scheduler".to_owned());
                }
                Action::Hold { .. } => self.expect(false, || "nothing is held here".to_owned()),
            }
        }
    }

    fn bytes(&mut self, data: &mut VecDeque<u32>) -> u32 {
        let next = data.pop_front();
        self.expect(next.is_some(), || "a page without its bytes".to_owned());
        next.unwrap_or(GONE)
    }

    fn wake(&mut self, host: usize) {
        if !std::mem::replace(&mut self.awake[host], true) {
            self.notes.news.woken.push(host);
        }
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        let frames = match Node::carries(&message) {
            Carried::Saved(_) => &self.saved,
            Carried::Nothing | Carried::Frames(_) => &self.frames[from],
        };
        let bytes: Vec<u32> =
            Node::carries(&message).pages().into_iter().map(|page| frames[page as usize]).collect();
        if message == Message::Synced && !self.is_dead(to) {
            self.check_done(to);
        }
        if let Message::Sync { pages } = &message {
            pages.iter().for_each(|page| self.unsent[from][*page as usize] = false);
            self.syncing[from].push_back(pages.clone());
        }
        if !self.is_dead(to) {
            self.notes.sent(from, to, message.kind());
            self.channels.entry((from, to)).or_default().push_back((message, bytes));
        }
    }

    /// When the home says that a sync is done nobody finds what was there before it, except in pages that he wrote or
    /// locked himself.
    fn check_done(&mut self, host: usize) {
        let alive: Vec<usize> = (0..self.nodes.len()).filter(|host| !self.is_dead(*host)).collect();
        for page in self.syncing[host].pop_front().unwrap_or_default() {
            for other in alive.iter().copied().filter(|other| *other != host) {
                let own = self.nodes[other].is_own(page) || self.untold[other][page as usize];
                let version = self.version(other, page);
                let same = version.is_none_or(|version| version == self.saved(page));
                self.expect(own || same, || format!("host {other} still has {version:?} of page {page}"));
                if self.violation.is_some() {
                    return;
                }
            }
        }
    }

    /// Whether all programs have ended, nobody waits, and everybody has what the home has, or nothing.
    pub fn check_end(&mut self) {
        let home_lives = !self.is_dead(HOME);
        for host in (0..self.nodes.len()).filter(|host| !self.dead.contains(host)).collect::<Vec<_>>() {
            let done = self.scripts[host].is_empty() && !self.nodes[host].is_waiting();
            self.expect(done, || format!("host {host} waits for ever"));
            for page in (0..self.saved.len() as u32).filter(|_| home_lives) {
                let version = self.version(host, page);
                let same = version.is_none_or(|version| version == self.saved(page));
                self.expect(same, || format!("in the end host {host} has {version:?} of page {page}"));
            }
        }
    }

    fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.violation.is_none() {
            self.violation = Some(what());
        }
    }

    fn touch(&mut self, host: usize, page: u32, writes: bool) -> bool {
        if self.nodes[host].access(page) == Access::None {
            self.awake[host] = false;
            self.notes.traffic.faults += 1;
            let access = if writes { Access::Write } else { Access::Read };
            self.happens(host, Event::Fault { span: Span::one(page), access, may_write: false }, Vec::new());
            return false;
        }
        if writes {
            self.versions += 1;
            self.frames[host][page as usize] = self.versions;
            self.untold[host][page as usize] = true;
            self.unsent[host][page as usize] = true;
        }
        true
    }
}

impl Cluster for World {
    fn deliver(&mut self, from: usize, to: usize) {
        let Some(channel) = self.channels.get_mut(&(from, to)) else { return };
        let Some((message, bytes)) = channel.pop_front() else { return };
        if channel.is_empty() {
            self.channels.remove(&(from, to));
        }
        self.happens(to, Event::Message { from: HostId(from as u32), message }, bytes);
    }

    fn act(&mut self, host: usize) -> bool {
        let Some(op) = self.scripts[host].front().copied().filter(|_| self.awake[host]) else { return false };
        let done = match op {
            Op::Read(page) => self.touch(host, page, false),
            Op::Write(page) => self.touch(host, page, true),
            Op::Sync => {
                let pages = (0..self.saved.len() as u32).collect();
                self.happens(host, Event::Sync { pages }, Vec::new());
                true
            }
            Op::Lock(page) => {
                self.happens(host, Event::Lock { span: Span::one(page) }, Vec::new());
                true
            }
            Op::Unlock(page) => {
                self.happens(host, Event::Unlock { span: Span::one(page) }, Vec::new());
                true
            }
        };
        if done {
            self.scripts[host].pop_front();
            self.notes.traffic.accesses += 1;
        }
        self.awake[host] && !self.scripts[host].is_empty()
    }

    fn hold_over(&mut self, _: usize, _: u32) {}

    fn evict(&mut self, host: usize, page: u32) {
        if !self.is_dead(host) {
            self.happens(host, Event::Evict { page }, Vec::new());
        }
    }

    fn lose(&mut self, host: usize) {
        if !self.is_dead(host) {
            self.dead.push(host);
            self.scripts[host].clear();
            self.channels.retain(|(_, to), _| *to != host);
        }
    }

    fn learn(&mut self, host: usize) {
        if self.is_dead(host) {
            return;
        }
        let Some(lost) = self.dead.get(self.known[host]).copied() else { return };
        self.known[host] += 1;
        self.channels.remove(&(lost, host));
        self.happens(host, Event::Lost { host: HostId(lost as u32), followed_by: None }, Vec::new());
    }

    fn join(&mut self) -> Option<usize> {
        let script = self.newcomers.pop_front()?;
        Some(self.add(script))
    }

    fn hosts(&self) -> usize {
        self.nodes.len()
    }

    fn news(&mut self) -> News {
        std::mem::take(&mut self.notes.news)
    }

    fn violation(&self) -> Option<String> {
        self.violation.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, Times};
    use crate::dice::Dice;

    fn settle(world: World) -> World {
        let times = Times { delay: (1, 9), think: (1, 1), hold: 0, lease: 1000 };
        let mut clock = Clock::new(world, times, Dice::new(1), Vec::new());
        clock.run(u64::MAX);
        clock.cluster
    }

    #[test]
    fn what_was_written_here_survives_anothers_sync_and_the_last_sync_wins() {
        let mut world = settle(World::new(1, vec![vec![], vec![Op::Write(0)], vec![Op::Write(0)]]));
        let (first, second) = (world.version(1, 0), world.version(2, 0));
        assert!(first.is_some() && second.is_some() && first != second);
        world.extend(1, Op::Sync);
        let mut world = settle(world);
        assert_eq!((Some(world.saved(0)), world.version(2, 0), world.conflicts), (first, second, 0));
        world.extend(2, Op::Sync);
        let mut world = settle(world);
        assert_eq!((Some(world.saved(0)), world.version(1, 0), world.conflicts), (second, None, 1));
        world.check_end();
        assert_eq!(world.violation(), None);
    }
}
