//! A whole cluster as one value: the real state machines, the channels between them, memory, and programs that use it.
//! The model checker and the random runs both step it.

use commonhold_coherence::central::OnLoss;
use commonhold_coherence::{Access, Action, Event, HostId, Scheduler, Span};
use std::collections::{BTreeMap, VecDeque};

/// The host that is the home.
pub const HOME: usize = 0;
/// What a frame holds that was given up: nobody may read it.
const GONE: u32 = u32::MAX;

/// One access of a program: `pages` scheduler pages from `first`, all at once.
pub type Op = (Span, Access);

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
    /// A host is lost.
    Lose(usize),
}

/// How a run is bounded.
#[derive(Clone, Debug)]
pub struct Limits {
    pub scripts: Vec<Vec<Op>>,
    pub pages: u32,
    pub evictions: u8,
    pub losses: u8,
    /// What a loss means; it is the schedulers' too.
    pub on_loss: OnLoss,
}

/// A message under way, with the versions of the pages that it carries.
type Letter<M> = (M, Vec<u32>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World<N: Scheduler> {
    pub nodes: Vec<N>,
    /// Version in each host's frame of each page. The home's are the saved copies too.
    frames: Vec<Vec<u32>>,
    /// The newest version of each page.
    latest: Vec<u32>,
    channels: BTreeMap<(usize, usize), VecDeque<Letter<N::Message>>>,
    scripts: Vec<VecDeque<Op>>,
    /// The program runs: it does not sleep in a fault.
    awake: Vec<bool>,
    holds: Vec<Vec<u8>>,
    lost: Vec<bool>,
    evictions: u8,
    losses: u8,
    on_loss: OnLoss,
    /// Accesses that ended in an error.
    pub failed: u32,
    /// Faults taken, where nothing else bounds a run.
    pub faults: u32,
    /// What went wrong.
    pub violation: Option<String>,
}

impl<N: Scheduler> World<N>
where
    N::Message: Clone,
{
    /// Hosts that have not done anything; the first is the home, or where the object begins.
    pub fn new(limits: &Limits, nodes: Vec<N>) -> World<N> {
        let (hosts, pages) = (nodes.len(), limits.pages as usize);
        World {
            nodes,
            frames: (0..hosts).map(|host| vec![if host == HOME { 0 } else { GONE }; pages]).collect(),
            latest: vec![0; pages],
            channels: BTreeMap::new(),
            scripts: limits.scripts.iter().map(|script| script.iter().copied().collect()).collect(),
            awake: vec![true; hosts],
            holds: vec![vec![0; pages]; hosts],
            lost: vec![false; hosts],
            evictions: limits.evictions,
            losses: limits.losses,
            on_loss: limits.on_loss,
            failed: 0,
            faults: 0,
            violation: None,
        }
    }

    fn may(&self, host: usize, (span, access): Op) -> bool {
        span.pages().all(|page| self.nodes[host].access(page) >= access)
    }

    /// All that may happen next.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = self.channels.keys().map(|(from, to)| Step::Deliver(*from, *to)).collect();
        for host in (0..self.nodes.len()).filter(|host| !self.lost[*host]) {
            let next = self.scripts[host].front().copied();
            if self.awake[host] && next.is_some() {
                steps.push(Step::Run(host));
            }
            for page in 0..self.latest.len() as u32 {
                // The hold is long enough for an instruction that can go on.
                let retires =
                    self.awake[host] && next.is_some_and(|op| op.0.contains(page) && self.may(host, op));
                if self.holds[host][page as usize] > 0 && !retires {
                    steps.push(Step::HoldOver(host, page));
                }
                if self.evictions > 0 && self.nodes[host].access(page) != Access::None {
                    steps.push(Step::Evict(host, page));
                }
            }
            if self.losses > 0 && host != HOME {
                steps.push(Step::Lose(host));
            }
        }
        steps
    }

    /// Whether every program has come to its end.
    pub fn is_done(&self) -> bool {
        self.scripts.iter().all(VecDeque::is_empty)
            && self.nodes.iter().zip(&self.lost).all(|(node, lost)| *lost || !node.is_waiting())
    }

    pub fn step(&mut self, step: &Step) {
        match *step {
            Step::Deliver(from, to) => self.deliver(from, to),
            Step::Run(host) => self.run(host),
            Step::HoldOver(host, page) => {
                self.holds[host][page as usize] -= 1;
                self.happens(host, Event::HoldOver { page });
            }
            Step::Evict(host, page) => {
                self.evictions -= 1;
                self.happens(host, Event::Evict { page });
            }
            Step::Lose(host) => self.lose(host),
        }
        self.check_access();
    }

    fn deliver(&mut self, from: usize, to: usize) {
        let channel = self.channels.get_mut(&(from, to)).expect("a channel with a message");
        let (message, data) = channel.pop_front().expect("a message");
        if channel.is_empty() {
            self.channels.remove(&(from, to));
        }
        let mut actions = Vec::new();
        self.nodes[to].handle(Event::Message { from: HostId(from as u32), message }, &mut actions);
        self.perform(to, actions, &data);
    }

    fn happens(&mut self, host: usize, event: Event<N::Message>) {
        let mut actions = Vec::new();
        self.nodes[host].handle(event, &mut actions);
        self.perform(host, actions, &[]);
    }

    /// Does what a state machine of `host` wants; `data` came with the message at hand.
    fn perform(&mut self, host: usize, actions: Vec<Action<N::Message>>, data: &[u32]) {
        let mut given_up = Vec::new();
        for action in actions {
            match action {
                Action::Send { to, message } => {
                    let carried = self.carried(host, &message);
                    let to = to.0 as usize;
                    if !self.lost[to] {
                        self.channels.entry((host, to)).or_default().push_back((message, carried));
                    }
                }
                Action::Install { span, with_data, .. } => {
                    if with_data {
                        for (page, version) in span.pages().zip(data) {
                            self.frames[host][page as usize] = *version;
                        }
                        self.expect(data.len() == span.count as usize, "a grant without its bytes");
                    }
                    self.awake[host] = true;
                }
                Action::Restrict { page, access } => {
                    if access == Access::None && host != HOME {
                        given_up.push(page);
                    }
                }
                Action::Save { page } => self.frames[HOME][page as usize] = data[0],
                Action::Keep | Action::TakeKept | Action::Synced { .. } => {
                    unreachable!("not of these schedulers")
                }
                Action::Hold { page } => self.holds[host][page as usize] += 1,
                Action::Fail { page, .. } => {
                    if self.scripts[host].front().is_some_and(|op| op.0.contains(page)) {
                        self.scripts[host].pop_front();
                        self.failed += 1;
                    }
                    self.awake[host] = true;
                }
            }
        }
        given_up.into_iter().for_each(|page| self.frames[host][page as usize] = GONE);
    }

    fn carried(&self, host: usize, message: &N::Message) -> Vec<u32> {
        N::carries(message).pages().into_iter().map(|page| self.frames[host][page as usize]).collect()
    }

    /// The next access of a program.
    fn run(&mut self, host: usize) {
        let op = *self.scripts[host].front().expect("an access to come");
        let (span, access) = op;
        if !self.may(host, op) {
            self.awake[host] = false;
            self.faults += 1;
            self.happens(host, Event::Fault { span, access });
            return;
        }
        for page in span.pages().map(|page| page as usize) {
            let fresh = self.frames[host][page] == self.latest[page];
            self.expect(fresh, "an access found an old version");
            if access == Access::Write {
                self.latest[page] += 1;
                self.frames[host][page] = self.latest[page];
            }
        }
        self.scripts[host].pop_front();
    }

    fn lose(&mut self, host: usize) {
        self.losses -= 1;
        self.lost[host] = true;
        self.scripts[host].clear();
        // What it had written and nobody else had yet is gone: the newest version is what the home has then.
        for page in 0..self.latest.len() as u32 {
            let beside =
                (0..self.nodes.len()).any(|h| h != host && self.nodes[h].access(page) == Access::Write);
            if self.on_loss == OnLoss::Revert && !beside && self.is_under_way(host, page) {
                self.latest[page as usize] = self.frames[HOME][page as usize];
            }
        }
        self.channels.retain(|(from, to), _| *from != host && *to != host);
        self.happens(HOME, Event::Lost { host: HostId(host as u32) });
    }

    /// Whether a host may write a page, or has sent it, or is sent it: then its newest version goes with the host.
    fn is_under_way(&self, host: usize, page: u32) -> bool {
        let letters = self.channels.iter().filter(|((from, to), _)| *from == host || *to == host);
        let mut carried =
            letters.flat_map(|(_, letters)| letters).flat_map(|(message, _)| N::carries(message).pages());
        self.nodes[host].access(page) == Access::Write || carried.any(|carried| carried == page)
    }

    /// One writer, or many readers.
    fn check_access(&mut self) {
        for page in 0..self.latest.len() as u32 {
            let alive = || (0..self.nodes.len()).filter(|host| !self.lost[*host]);
            let users = alive().filter(|host| self.nodes[*host].access(page) != Access::None).count();
            let writers = alive().filter(|host| self.nodes[*host].access(page) == Access::Write).count();
            self.expect(writers == 0 || users == 1, "a writer beside others");
        }
    }

    fn expect(&mut self, holds: bool, what: &str) {
        if !holds && self.violation.is_none() {
            self.violation = Some(what.to_owned());
        }
    }
}
