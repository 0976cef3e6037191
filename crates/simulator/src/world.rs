//! A cluster under strict coherence as one value: the real state machines, the channels between them, memory, and programs
//! that use it. The model checker and the virtual clock both step it.

use crate::news::Notes;
use commonhold_coherence::central::OnLoss;
use commonhold_coherence::{Access, Action, Event, HostId, Scheduler, Span};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

mod joined;
mod limits;
mod losses;
mod not_read;
mod searched;

pub use joined::Joined;
pub use limits::Limits;

/// The host that is the home, or where the object begins.
pub const HOME: usize = 0;
/// What a frame holds that was given up: nobody may read it.
const GONE: u32 = u32::MAX;

/// One access of a program: the pages, all at once, and what for.
pub type Op = (Span, Access);

/// What the driver does for a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// The home's frames are the saved copies, and a loss concerns the home alone, or all if it is the home's.
    Central,
    /// All hosts are alike.
    Forwarding,
}

/// What may happen next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The oldest message from one host to another arrives.
    Deliver(usize, usize),
    /// A program's next access: done if the host may, else a fault.
    Run(usize),
    /// The minimum hold of a page ends.
    HoldOver(usize, u32),
    /// A host gives a page up on its own.
    Evict(usize, u32),
    /// A host dies. What it sent is still under way.
    Lose(usize),
    /// The process of a host dies, and the next one follows it (forwarding).
    Restart(usize),
    /// A host learns of the next loss that it does not know of: from then on nothing comes from that one.
    Learn(usize),
    /// No process of a host uses the object for now (forwarding).
    Leave(usize),
    /// Somebody at a host wants lost pages back (forwarding).
    Revert(usize),
    /// A host is told once more of a loss that it knows of.
    LearnAgain(usize, usize),
    /// The home cannot read the pages that it sends next.
    CannotRead,
}

impl Step {
    /// Whether it need never happen.
    pub fn is_chance(&self) -> bool {
        use Step::{CannotRead, Evict, LearnAgain, Leave, Lose, Restart, Revert};
        matches!(self, Lose(_) | Restart(_) | Evict(..) | Leave(_) | Revert(_) | LearnAgain(..) | CannotRead)
    }
}

/// A message under way, with the versions of the pages that it carries.
type Letter<M> = (M, Vec<u32>);

/// The cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World<N: Scheduler> {
    /// The state machines.
    pub nodes: Vec<N>,
    /// Version in each host's frame of each page.
    frames: Vec<Vec<u32>>,
    /// What each host keeps of what it handed over.
    kept: Vec<Vec<u32>>,
    /// The newest version of each page: the sequential memory beside the cluster.
    latest: Vec<u32>,
    /// How many versions of each page there were.
    written: Vec<u32>,
    /// The version of each page when it last came to somebody who may write.
    handed: Vec<u32>,
    /// Users of each page, and writers among them.
    users: Vec<(u32, u32)>,
    rights: Vec<Vec<Access>>,
    channels: BTreeMap<(usize, usize), VecDeque<Letter<N::Message>>>,
    scripts: Vec<VecDeque<Op>>,
    /// The program runs: it does not sleep in a fault.
    awake: Vec<bool>,
    holds: Vec<Vec<u8>>,
    /// In the order in which they died.
    dead: Vec<usize>,
    /// Who follows a host that died, if only its process did.
    followers: BTreeMap<usize, usize>,
    /// Hosts that follow others, and are not heard of yet: their predecessor's loss comes first.
    beginning: BTreeSet<usize>,
    /// Which of them each host knows of.
    known: Vec<BTreeSet<usize>>,
    evictions: u8,
    losses: u8,
    restarts: u8,
    lessons: u8,
    leaves: u8,
    reverts: u8,
    unreadable: u8,
    /// The home cannot read what it sends next.
    cannot_read: bool,
    /// It could not once.
    was_unreadable: bool,
    /// Somebody wanted lost pages back.
    was_reverted: bool,
    /// Hosts that do not use the object for now.
    left: Vec<bool>,
    home_may_die: bool,
    on_loss: OnLoss,
    replicas: u32,
    /// The newest version of each page that a host found which had not written it.
    read: Vec<Option<u32>>,
    /// Who wrote the newest version of each page.
    writer: Vec<usize>,
    shape: Shape,
    /// Accesses that ended in an error.
    pub failed: u32,
    /// Faults taken, where nothing else bounds a run.
    pub faults: u32,
    /// What went wrong.
    pub violation: Option<String>,
    /// For drivers.
    pub notes: Notes,
}

impl<N: Scheduler> World<N>
where
    N::Message: Clone,
{
    /// Hosts that have not done anything; the first is the home, or where the object begins.
    pub fn new(limits: &Limits, nodes: Vec<N>) -> World<N> {
        let (hosts, pages) = (nodes.len(), limits.pages as usize);
        let mut world = World {
            nodes,
            frames: (0..hosts).map(|host| vec![if host == HOME { 0 } else { GONE }; pages]).collect(),
            kept: vec![vec![GONE; pages]; hosts],
            latest: vec![0; pages],
            written: vec![0; pages],
            handed: vec![0; pages],
            users: vec![(0, 0); pages],
            rights: vec![vec![Access::None; pages]; hosts],
            channels: BTreeMap::new(),
            scripts: limits.scripts.iter().map(|script| script.iter().copied().collect()).collect(),
            awake: vec![true; hosts],
            holds: vec![vec![0; pages]; hosts],
            dead: Vec::new(),
            followers: BTreeMap::new(),
            beginning: BTreeSet::new(),
            known: vec![BTreeSet::new(); hosts],
            evictions: limits.evictions,
            losses: limits.losses,
            restarts: limits.restarts,
            lessons: limits.lessons,
            leaves: limits.leaves,
            reverts: limits.reverts,
            unreadable: limits.unreadable,
            cannot_read: false,
            was_unreadable: false,
            was_reverted: false,
            left: vec![false; hosts],
            home_may_die: limits.home_may_die,
            on_loss: limits.on_loss,
            replicas: limits.replicas,
            read: vec![None; pages],
            writer: vec![HOME; pages],
            shape: limits.shape,
            failed: 0,
            faults: 0,
            violation: None,
            notes: Notes::default(),
        };
        (0..hosts).for_each(|host| world.note_rights(host));
        world
    }

    /// A host that comes later, or comes back under a new number. Under forwarding it is told of the losses before its time.
    pub fn join(&mut self, node: N, script: Vec<Op>) -> usize {
        let pages = self.latest.len();
        self.nodes.push(node);
        self.frames.push(vec![GONE; pages]);
        self.kept.push(vec![GONE; pages]);
        self.left.push(false);
        self.rights.push(vec![Access::None; pages]);
        self.scripts.push(script.into());
        self.awake.push(true);
        self.holds.push(vec![0; pages]);
        let known =
            if self.shape == Shape::Central { self.dead.iter().copied().collect() } else { BTreeSet::new() };
        self.known.push(known);
        self.nodes.len() - 1
    }

    /// Whether a host is dead.
    pub fn is_dead(&self, host: usize) -> bool {
        self.dead.contains(&host)
    }

    /// Pages of the object.
    pub fn pages(&self) -> u32 {
        self.latest.len() as u32
    }

    /// Accesses that a host's program has still to do.
    pub fn left(&self, host: usize) -> usize {
        self.scripts[host].len()
    }

    /// Whether a host's program is not asleep in a fault.
    pub fn is_awake(&self, host: usize) -> bool {
        self.awake[host]
    }

    /// More for a host's program to do.
    pub fn extend(&mut self, host: usize, op: Op) {
        self.scripts[host].push_back(op);
    }

    /// Whether a host is concerned by a loss that it does not know of.
    pub fn has_to_learn(&self, host: usize) -> bool {
        let concerned =
            self.shape == Shape::Forwarding || host == HOME || self.unknown(host).any(|lost| lost == HOME);
        !self.is_dead(host) && self.unknown_losses(host) > 0 && concerned
    }

    /// Losses that a host does not know of.
    pub fn unknown_losses(&self, host: usize) -> usize {
        self.unknown(host).count()
    }

    fn unknown(&self, host: usize) -> impl DoubleEndedIterator<Item = usize> {
        self.dead.iter().copied().filter(move |lost| !self.known[host].contains(lost))
    }

    /// Whether no process of a host uses the object for now.
    pub fn has_left(&self, host: usize) -> bool {
        self.left[host]
    }

    fn may(&self, host: usize, (span, access): Op) -> bool {
        span.pages().all(|page| self.nodes[host].access(page) >= access)
    }

    /// Whether the next access of a host's program can be done now, on that page: the minimum hold is long enough for it.
    pub fn retires(&self, host: usize, page: u32) -> bool {
        let next = self.scripts[host].front().copied();
        self.awake[host] && next.is_some_and(|op| op.0.contains(page) && self.may(host, op))
    }

    /// All that may happen next.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = self.channels.keys().map(|(from, to)| Step::Deliver(*from, *to)).collect();
        if self.unreadable > 0 && !self.cannot_read {
            steps.push(Step::CannotRead);
        }
        for host in (0..self.nodes.len()).filter(|host| !self.is_dead(*host)) {
            if self.awake[host] && !self.scripts[host].is_empty() && !self.beginning.contains(&host) {
                steps.push(Step::Run(host));
            }
            for page in 0..self.pages() {
                if self.holds[host][page as usize] > 0 && !self.retires(host, page) {
                    steps.push(Step::HoldOver(host, page));
                }
                if self.evictions > 0 && self.nodes[host].access(page) != Access::None {
                    steps.push(Step::Evict(host, page));
                }
            }
            if self.losses > 0 && (host != HOME || self.home_may_die) {
                steps.push(Step::Lose(host));
            }
            if self.restarts > 0 && host != HOME {
                steps.push(Step::Restart(host));
            }
            if self.has_to_learn(host) {
                steps.push(Step::Learn(host));
            }
            if self.lessons > 0 {
                steps.extend(self.known[host].iter().map(|lost| Step::LearnAgain(host, *lost)));
            }
            if self.leaves > 0 && self.awake[host] && !self.left[host] {
                steps.push(Step::Leave(host));
            }
            if self.reverts > 0 && !self.dead.is_empty() {
                steps.push(Step::Revert(host));
            }
        }
        steps
    }

    /// Whether every program has come to its end.
    pub fn is_done(&self) -> bool {
        let at_rest = |host: usize| self.is_dead(host) || !self.nodes[host].is_waiting();
        self.scripts.iter().all(VecDeque::is_empty) && (0..self.nodes.len()).all(at_rest)
    }

    /// Something happens. What cannot happen any more, because a host died, does nothing.
    pub fn step(&mut self, step: &Step) {
        match *step {
            Step::Deliver(from, to) => self.deliver(from, to),
            Step::Lose(host) => self.lose(host),
            Step::Restart(host) => self.restart(host),
            Step::CannotRead => {
                self.unreadable = self.unreadable.saturating_sub(1);
                self.cannot_read = true;
            }
            Step::Run(host)
            | Step::HoldOver(host, _)
            | Step::Evict(host, _)
            | Step::Learn(host)
            | Step::LearnAgain(host, _)
            | Step::Leave(host)
            | Step::Revert(host)
                if self.is_dead(host) => {}
            Step::Run(host) => self.run(host),
            Step::HoldOver(host, page) => {
                self.holds[host][page as usize] -= 1;
                self.happens(host, Event::HoldOver { page });
            }
            Step::Evict(host, page) => {
                self.evictions = self.evictions.saturating_sub(1);
                self.happens(host, Event::Evict { page });
            }
            Step::Learn(host) => self.learn(host),
            Step::LearnAgain(host, lost) => {
                self.lessons = self.lessons.saturating_sub(1);
                self.happens(host, self.loss_of(lost));
            }
            Step::Leave(host) => {
                self.leaves = self.leaves.saturating_sub(1);
                if self.awake[host] {
                    self.left[host] = true;
                    self.happens(host, Event::Leave);
                }
            }
            Step::Revert(host) => {
                self.reverts = self.reverts.saturating_sub(1);
                self.was_reverted = true;
                self.happens(host, Event::Revert);
            }
        }
    }

    fn deliver(&mut self, from: usize, to: usize) {
        let Some(channel) = self.channels.get_mut(&(from, to)) else { return };
        let (message, data) = channel.pop_front().expect("an empty channel is taken away");
        if channel.is_empty() {
            self.channels.remove(&(from, to));
        }
        if self.beginning.contains(&to) {
            return; // it begins without what came before
        }
        let mut actions = Vec::new();
        let pages = N::carries(&message).pages();
        self.nodes[to].handle(Event::Message { from: HostId(from as u32), message }, &mut actions);
        let is_owner = |action: &Action<N::Message>| {
            let may_write = matches!(action, Action::Install { access: Access::Write, with_data: true, .. });
            may_write || matches!(action, Action::Own { .. })
        };
        if actions.iter().any(is_owner) {
            pages.iter().zip(&data).for_each(|(page, version)| self.handed[*page as usize] = *version);
        }
        self.perform(to, actions, &data);
    }

    fn happens(&mut self, host: usize, event: Event<N::Message>) {
        let mut actions = Vec::new();
        self.nodes[host].handle(event, &mut actions);
        self.perform(host, actions, &[]);
    }

    /// Does what a state machine of `host` wants; `data` came with the message at hand.
    fn perform(&mut self, host: usize, actions: Vec<Action<N::Message>>, data: &[u32]) {
        let (mut given_up, mut heard) = (Vec::new(), Vec::new());
        for action in actions {
            match action {
                Action::Send { to, message } => match self.is_not_read(host, to.0 as usize, &message) {
                    Some(not_read) => {
                        if !not_read.heard.is_empty() {
                            given_up.retain(|page| !N::carries(&message).pages().contains(page));
                        }
                        not_read.told.into_iter().for_each(|told| self.send(host, to.0 as usize, told));
                        heard.extend(not_read.heard);
                    }
                    None => self.send(host, to.0 as usize, message),
                },
                Action::Install { span, with_data, .. } => {
                    if with_data {
                        given_up.retain(|page| !span.contains(*page));
                        for (page, version) in span.pages().zip(data) {
                            self.frames[host][page as usize] = *version;
                        }
                        self.expect(data.len() == span.count as usize, "a grant without its bytes");
                    }
                    self.wake(host);
                }
                Action::Restrict { page, access } => {
                    let saved_too = host == HOME && self.shape == Shape::Central;
                    if access == Access::None && !saved_too {
                        given_up.push(page);
                    }
                }
                Action::Save { page } => self.frames[host][page as usize] = data[0],
                Action::KeepSent { page, .. } | Action::KeepRead { page, .. } => {
                    self.kept[host][page as usize] = self.frames[host][page as usize];
                }
                Action::Own { .. } | Action::KeepOld { .. } => {}
                Action::KeepCame { page, .. } => self.kept[host][page as usize] = data[0],
                Action::DropKept { page } => self.kept[host][page as usize] = GONE,
                Action::Restore { page } => self.restore(host, page as usize),
                Action::NewestLost { .. } => {
                    self.expect(host == HOME, "who is not the home says what was lost")
                }
                Action::Keep | Action::TakeKept | Action::Synced { .. } | Action::SyncFailed { .. } => {
                    self.expect(false, "an action of explicit coherence");
                }
                Action::Hold { page } => {
                    self.holds[host][page as usize] += 1;
                    self.notes.news.held.push((host, page));
                }
                Action::Fail { page, why } => self.fail(host, page, why),
            }
        }
        given_up.into_iter().for_each(|page| self.frames[host][page as usize] = GONE);
        self.note_rights(host);
        self.hear(heard);
    }

    fn send(&mut self, from: usize, to: usize, message: N::Message) {
        let carried = self.carried(from, &message);
        self.expect(!carried.contains(&GONE), "a page was sent that is not there");
        if !self.is_dead(to) {
            self.notes.sent(from, to, N::kind(&message));
            self.channels.entry((from, to)).or_default().push_back((message, carried));
        }
    }

    fn carried(&self, host: usize, message: &N::Message) -> Vec<u32> {
        N::carries(message).pages().into_iter().map(|page| self.frames[host][page as usize]).collect()
    }

    fn wake(&mut self, host: usize) {
        if !std::mem::replace(&mut self.awake[host], true) {
            self.notes.news.woken.push(host);
        }
    }

    /// The next access of a program.
    fn run(&mut self, host: usize) {
        let Some(op) = self.scripts[host].front().copied().filter(|_| self.awake[host]) else { return };
        let (span, access) = op;
        if !self.may(host, op) {
            self.awake[host] = false;
            self.faults += 1;
            self.left[host] = false;
            self.notes.traffic.faults += 1;
            self.happens(host, Event::Fault { span, access, may_write: true });
            return;
        }
        for page in span.pages().map(|page| page as usize) {
            let fresh = self.frames[host][page] == self.latest[page];
            self.expect(fresh, "an access found an old version");
            if self.writer[page] != host {
                self.read[page] = Some(self.latest[page]);
            }
            if access == Access::Write {
                self.writer[page] = host;
                self.written[page] += 1;
                self.latest[page] = self.written[page];
                self.frames[host][page] = self.latest[page];
            }
        }
        self.notes.traffic.accesses += 1;
        self.scripts[host].pop_front();
    }

    fn note_rights(&mut self, host: usize) {
        let rights: Vec<Access> = (0..self.pages()).map(|page| self.nodes[host].access(page)).collect();
        self.count_rights(host, |page| rights[page]);
    }

    /// One writer, or many readers.
    fn count_rights(&mut self, host: usize, rights: impl Fn(usize) -> Access) {
        for page in 0..self.latest.len() {
            let now = rights(page);
            let before = std::mem::replace(&mut self.rights[host][page], now);
            let (users, writers) = &mut self.users[page];
            *users = *users + u32::from(now != Access::None) - u32::from(before != Access::None);
            *writers = *writers + u32::from(now == Access::Write) - u32::from(before == Access::Write);
            let alone = *writers == 0 || *users == 1;
            self.expect(alone, "a writer beside others");
        }
    }

    fn expect(&mut self, holds: bool, what: &str) {
        if !holds && self.violation.is_none() {
            self.violation = Some(what.to_owned());
        }
    }
}
