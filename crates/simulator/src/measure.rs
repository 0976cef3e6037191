//! What the bench measures on simulated clusters: messages of hotspots, of syncs, and at a thousand hosts.

use crate::clock::{Clock, Cluster, Times};
use crate::dice::Dice;
use crate::explicit;
use crate::news::Traffic;
use crate::world::{Joined, Limits, Op, Shape, World};
use commonhold_coherence::central::{self, Options};
use commonhold_coherence::{Access, Event, HostId, Kind, Scheduler, Span, forwarding};
use std::collections::VecDeque;

const PAGE: u32 = 0;
const WRITE: Op = (Span { first: PAGE, count: 1 }, Access::Write);
const READ: Op = (Span { first: PAGE, count: 1 }, Access::Read);

/// Which scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strict {
    /// One home decides.
    Central,
    /// Every host schedules.
    Forwarding,
}

/// Programs that run a scheduler until they end.
type Driven<N> = Clock<Joined<N, Newcomer<N>>>;

/// Makes a host that comes later, and its program.
type Newcomer<N> = fn(&World<N>) -> Option<(N, Vec<Op>)>;

fn clock<N>(nodes: Vec<N>, shape: Shape, scripts: Vec<Vec<Op>>, times: Times, seed: u64) -> Driven<N>
where
    N: Scheduler,
    N::Message: Clone,
{
    let limits = Limits::new(shape, scripts, 1);
    let nobody: Newcomer<N> = |_| None;
    let mut cluster = Joined { world: World::new(&limits, nodes), newcomer: nobody };
    cluster.news();
    Clock::new(cluster, times, Dice::new(seed), Vec::new())
}

fn central_nodes(hosts: usize) -> Vec<central::Node> {
    let node = |me| central::Node::new(HostId(me), HostId(0), Options::default(), true);
    (0..hosts as u32).map(node).collect()
}

fn forwarding_nodes(hosts: usize) -> Vec<forwarding::Node> {
    let members: Vec<HostId> = (0..hosts as u32).map(HostId).collect();
    let options = forwarding::Options::default();
    members.iter().map(|me| forwarding::Node::founder(*me, HostId(0), &members, options)).collect()
}

/// What free-running hosts did.
#[derive(Clone, Debug)]
pub struct Free {
    /// Messages between hosts.
    pub traffic: Traffic,
    /// How often each host that took part got the page.
    pub acquisitions: Vec<u64>,
}

/// `hosts` hosts increment one word as fast as they can, until each has had the page
/// `rounds` times in the mean. Under the central scheduler
/// the home is one host more, which takes no part. All delays are drawn from the same range.
pub fn free_running(strict: Strict, hosts: usize, rounds: u64, seed: u64) -> Result<Free, String> {
    // Delays of a local network; a program that does nothing else; a hold of a few delays.
    let times = Times { delay: (40, 60), think: (20, 20), hold: 100, lease: 1_000_000 };
    match strict {
        Strict::Central => {
            let mut scripts = vec![Vec::new()];
            scripts.resize(hosts + 1, vec![WRITE; 3]);
            free(clock(central_nodes(hosts + 1), Shape::Central, scripts, times, seed), 1, rounds)
        }
        Strict::Forwarding => {
            let scripts = vec![vec![WRITE; 3]; hosts];
            free(clock(forwarding_nodes(hosts), Shape::Forwarding, scripts, times, seed), 0, rounds)
        }
    }
}

fn free<N>(mut clock: Driven<N>, first: usize, rounds: u64) -> Result<Free, String>
where
    N: Scheduler,
    N::Message: Clone,
{
    let hosts = clock.cluster.world.nodes.len();
    let mut acquisitions = vec![0u64; hosts];
    let mut had: Vec<bool> = vec![false; hosts];
    while acquisitions.iter().sum::<u64>() < rounds * (hosts - first) as u64 {
        if clock.run(1) == 0 {
            return Err("the programs stopped".to_owned());
        }
        for host in first..hosts {
            let has = clock.cluster.world.nodes[host].access(PAGE) == Access::Write;
            acquisitions[host] += u64::from(has && !had[host]);
            had[host] = has;
            if clock.cluster.world.left(host) < 3 {
                clock.cluster.world.extend(host, WRITE);
            }
        }
        if let Some(wrong) = clock.cluster.violation() {
            return Err(wrong);
        }
    }
    let traffic = clock.cluster.world.notes.traffic;
    Ok(Free { traffic, acquisitions: acquisitions.split_off(first) })
}

/// What the host that has the page at the beginning of a cycle does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HasPage {
    /// It uses it, as in the paper's example: its fault is served on its own host.
    Local,
    /// It comes too late, and faults as soon as it has the page no more: every party's fault is a remote one.
    Late,
}

/// Messages and faults of cycles in which every host faults once on one word, with a barrier between cycles.
#[derive(Clone, Debug)]
pub struct Cycles {
    /// Requests and pages of the first cycle, from the initial state.
    pub first: u64,
    /// Of the cycles after it.
    pub later: Traffic,
    /// Whom each host believes to have the page, after each cycle (forwarding).
    pub hints: Vec<Vec<u32>>,
}

/// One word that all hosts write once a cycle; messages take equal time, so all requests come before anybody is done.
struct Hotspot<N: Scheduler> {
    nodes: Vec<N>,
    under_way: VecDeque<(usize, usize, N::Message)>,
    held: Vec<usize>,
    traffic: Traffic,
}

impl<N: Scheduler> Hotspot<N>
where
    N::Message: Clone,
{
    fn new(nodes: Vec<N>) -> Hotspot<N> {
        Hotspot { nodes, under_way: VecDeque::new(), held: Vec::new(), traffic: Traffic::default() }
    }

    fn happens(&mut self, host: usize, event: Event<N::Message>) {
        let mut actions = Vec::new();
        self.nodes[host].handle(event, &mut actions);
        for action in actions {
            match action {
                commonhold_coherence::Action::Send { to, message } => {
                    if to.0 as usize != host {
                        match N::kind(&message) {
                            Kind::Acknowledgement => self.traffic.acknowledgements += 1,
                            Kind::Request | Kind::Page => self.traffic.messages += 1,
                        }
                    }
                    self.under_way.push_back((host, to.0 as usize, message));
                }
                commonhold_coherence::Action::Hold { .. } => self.held.push(host),
                _ => {}
            }
        }
    }

    /// Every one of `hosts` writes once, all at the same time; who has the page then is served on its own host.
    fn local_cycle(&mut self, hosts: impl Iterator<Item = usize>) {
        let faulting: Vec<usize> = hosts.filter(|host| !self.writes(*host)).collect();
        self.cycle(faulting.into_iter());
    }

    fn writes(&self, host: usize) -> bool {
        self.nodes[host].access(PAGE) == Access::Write
    }

    fn fault(&mut self, host: usize) {
        self.traffic.faults += 1;
        self.happens(host, Event::Fault { span: Span::one(PAGE), access: Access::Write, may_write: false });
    }

    /// Every one of `hosts` faults once. Whoever has the page at first does so as soon as it has it no more.
    fn cycle(&mut self, hosts: impl Iterator<Item = usize>) {
        let (owners, others): (Vec<usize>, Vec<usize>) = hosts.partition(|host| self.writes(*host));
        let mut late = owners.first().copied();
        others.into_iter().for_each(|host| self.fault(host));
        loop {
            if let Some(host) = late.filter(|host| !self.writes(*host)) {
                late = None;
                self.fault(host);
            } else if let Some((from, to, message)) = self.under_way.pop_front() {
                self.happens(to, Event::Message { from: HostId(from as u32), message });
            } else if let Some(host) = self.held.pop() {
                self.happens(host, Event::HoldOver { page: PAGE });
            } else {
                return;
            }
        }
    }
}

fn cycles_of<N>(
    nodes: Vec<N>,
    first: usize,
    cycles: usize,
    hint: impl Fn(&N) -> u32,
    shuffled: Option<u64>,
    has_page: HasPage,
) -> Cycles
where
    N: Scheduler,
    N::Message: Clone,
{
    let hosts = nodes.len();
    let mut hotspot = Hotspot::new(nodes);
    hotspot.local_cycle(first..hosts);
    let after_first = hotspot.traffic;
    let believed = |hotspot: &Hotspot<N>| hotspot.nodes.iter().map(&hint).collect::<Vec<u32>>();
    let mut hints = vec![believed(&hotspot)];
    let mut dice = shuffled.map(Dice::new);
    for _ in 0..cycles {
        let mut order: Vec<usize> = (first..hosts).collect();
        if let Some(dice) = &mut dice {
            (1..order.len()).rev().for_each(|last| order.swap(last, dice.roll(last + 1)));
        }
        match has_page {
            HasPage::Local => hotspot.local_cycle(order.into_iter()),
            HasPage::Late => hotspot.cycle(order.into_iter()),
        }
        hints.push(believed(&hotspot));
    }
    let faults = hotspot.traffic.faults - after_first.faults;
    let later = Traffic {
        messages: hotspot.traffic.messages - after_first.messages,
        acknowledgements: hotspot.traffic.acknowledgements - after_first.acknowledgements,
        faults,
        ..Traffic::default()
    };
    Cycles { first: after_first.messages, later, hints }
}

/// The hotspot of `hosts` parties. Central: the home is one host more and takes no part. Forwarding: host 0 has the page
/// at first, and is one of them. In each cycle they fault in the order of their numbers, as in the paper's example; with
/// `shuffled`, in any, drawn from that seed.
pub fn hotspot(
    strict: Strict,
    hosts: usize,
    cycles: usize,
    shuffled: Option<u64>,
    has_page: HasPage,
) -> Cycles {
    match strict {
        Strict::Central => cycles_of(central_nodes(hosts + 1), 1, cycles, |_| 0, shuffled, has_page),
        Strict::Forwarding => {
            cycles_of(forwarding_nodes(hosts), 0, cycles, |node| node.hint(PAGE).0, shuffled, has_page)
        }
    }
}

/// What `hosts` hosts say when each does `accesses` accesses, of which one in `writes_one_in` writes.
pub fn crowd(
    strict: Strict,
    hosts: usize,
    accesses: usize,
    writes: usize,
    seed: u64,
) -> Result<Traffic, String> {
    let times = Times { delay: (40, 400), think: (0, 5000), hold: 100, lease: 1_000_000 };
    let mut dice = Dice::new(seed);
    let mut script =
        || (0..accesses).map(|_| if dice.one_in(writes) { WRITE } else { READ }).collect::<Vec<Op>>();
    let scripts: Vec<Vec<Op>> = (0..hosts).map(|_| script()).collect();
    match strict {
        Strict::Central => end(clock(central_nodes(hosts), Shape::Central, scripts, times, seed)),
        Strict::Forwarding => end(clock(forwarding_nodes(hosts), Shape::Forwarding, scripts, times, seed)),
    }
}

fn end<N>(mut clock: Driven<N>) -> Result<Traffic, String>
where
    N: Scheduler,
    N::Message: Clone,
{
    clock.run(u64::MAX);
    let world = &clock.cluster.world;
    match &world.violation {
        Some(wrong) => Err(wrong.clone()),
        None if !world.is_done() => Err("somebody waits for ever".to_owned()),
        None => Ok(world.notes.traffic),
    }
}

/// Requests of one sync of `pages` pages, with `sharing` other hosts that share them (none of them the home), and of the
/// access to one page by each of those after it.
pub fn sync_requests(sharing: usize, pages: u32, seed: u64) -> Result<(u64, u64), String> {
    let times = Times { delay: (10, 500), think: (1, 1), hold: 0, lease: 1_000_000 };
    let mut scripts = vec![Vec::new()];
    scripts.resize(sharing + 2, (0..pages).map(explicit::Op::Read).collect());
    let mut world = explicit::World::new(pages as usize, scripts);
    let (_, settled) = phase(world, times, seed)?;
    world = settled;
    (0..pages).for_each(|page| world.extend(1, explicit::Op::Write(page)));
    world.extend(1, explicit::Op::Sync);
    let (sync, synced) = phase(world, times, seed)?;
    world = synced;
    (2..sharing + 2).for_each(|host| world.extend(host, explicit::Op::Read(0)));
    let (later, _) = phase(world, times, seed)?;
    Ok((sync, later))
}

/// Lets all programs come to their end; gives the requests that it took.
fn phase(world: explicit::World, times: Times, seed: u64) -> Result<(u64, explicit::World), String> {
    let before = world.notes.traffic.requests;
    let mut clock = Clock::new(world, times, Dice::new(seed), Vec::new());
    clock.run(u64::MAX);
    let mut world = clock.cluster;
    world.check_end();
    match world.violation() {
        Some(wrong) => Err(wrong),
        None => Ok((world.notes.traffic.requests - before, world)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hotspot_takes_what_the_paper_says_or_less() {
        for hosts in [2, 3, 8, 17] {
            let central = hotspot(Strict::Central, hosts, 6, None, HasPage::Late);
            assert_eq!(central.later.messages, 4 * central.later.faults, "{hosts} hosts");
            let forwarding = hotspot(Strict::Forwarding, hosts, 6, None, HasPage::Late);
            assert_eq!(forwarding.first, 3 * hosts as u64 - 4);
            let local = hotspot(Strict::Forwarding, hosts, 6, None, HasPage::Local).later;
            assert!(local.messages <= 6 * 2 * hosts as u64, "the paper's 2N: {local:?}");
            let Traffic { messages, faults, .. } = forwarding.later;
            assert_eq!(faults, 6 * hosts as u64, "everybody faults once a cycle");
            assert!(messages < 3 * faults, "{forwarding:?}");
        }
    }

    #[test]
    fn free_running_hosts_all_get_the_page() {
        for strict in [Strict::Central, Strict::Forwarding] {
            let free = free_running(strict, 4, 200, 5).expect("a run");
            assert!(free.acquisitions.iter().all(|times| *times > 100), "{strict:?}: {free:?}");
        }
    }

    #[test]
    fn a_sync_takes_one_request_for_each_host_that_shares_and_one() {
        for sharing in [1, 5, 16] {
            let counted = sync_requests(sharing, 4, 9).expect("a run");
            assert_eq!(counted, (sharing as u64 + 1, sharing as u64));
        }
    }

    #[test]
    fn a_crowd_of_hundred_comes_to_its_end() {
        for strict in [Strict::Central, Strict::Forwarding] {
            let traffic = crowd(strict, 100, 5, 10, 7).expect("a run");
            assert_eq!(traffic.accesses, 500);
        }
    }
}
