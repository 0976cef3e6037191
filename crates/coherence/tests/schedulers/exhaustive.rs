//! Every interleaving of small clusters (the `stateright` model checker).

use crate::world::{Limits, Op, Step, World};
use commonhold_coherence::central::{self, OnLoss, Options};
use commonhold_coherence::{Access, HostId, Scheduler, Span, forwarding};
use stateright::{Checker, Model, Property};
use std::fmt::Debug;
use std::hash::Hash;

/// A cluster to be searched: how it is bounded, and its hosts.
struct Search<N> {
    limits: Limits,
    nodes: Vec<N>,
    /// Without a hold, hosts can take a page from each other for ever before anybody gets to use it.
    faults: u32,
}

impl<N> Model for Search<N>
where
    N: Scheduler + Clone + Debug + PartialEq + Hash,
    N::Message: Clone + Debug + PartialEq + Hash,
{
    type State = World<N>;
    type Action = Step;

    fn init_states(&self) -> Vec<World<N>> {
        vec![World::new(&self.limits, self.nodes.clone())]
    }

    fn actions(&self, state: &World<N>, actions: &mut Vec<Step>) {
        if state.violation.is_none() {
            actions.extend(state.steps());
        }
    }

    fn next_state(&self, last: &World<N>, step: Step) -> Option<World<N>> {
        let mut next = last.clone();
        next.step(&step);
        Some(next)
    }

    fn within_boundary(&self, state: &World<N>) -> bool {
        state.faults <= self.faults
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "one writer or many readers; every access finds the newest version",
                |_, w: &World<N>| w.violation.is_none(),
            ),
            // Nothing more can happen: then nobody may be waiting.
            Property::always("nobody waits for ever", |_, w: &World<N>| !w.steps().is_empty() || w.is_done()),
            Property::sometimes("all programs end", |_, w: &World<N>| w.is_done()),
        ]
    }
}

/// Searches a cluster; gives the number of its states.
fn search<N>(limits: Limits, nodes: Vec<N>, faults: u32) -> usize
where
    N: Scheduler + Clone + Debug + PartialEq + Hash + Send + Sync + 'static,
    N::Message: Clone + Debug + PartialEq + Hash + Send + Sync,
{
    let describe = format!("{limits:?}");
    let checker = Search { limits, nodes, faults }.checker().threads(2).spawn_bfs().join();
    if let Some((name, path)) =
        checker.discoveries().into_iter().find(|(name, _)| *name != "all programs end")
    {
        let nodes = path.last_state().nodes.clone();
        panic!("{name}, of {describe}: {:?} ends with {nodes:?}", path.into_actions());
    }
    assert!(checker.discovery("all programs end").is_some(), "{describe}");
    println!("{} states of {describe}", checker.unique_state_count());
    checker.unique_state_count()
}

const MANY: u32 = u32::MAX;

fn centrally(limits: Limits, options: Options, has_hold: bool) -> usize {
    let options = Options { on_loss: limits.on_loss, ..options };
    let node = |me| central::Node::new(HostId(me), HostId(0), options, has_hold);
    let nodes = (0..limits.scripts.len() as u32).map(node).collect();
    search(limits, nodes, if has_hold { MANY } else { 7 })
}

fn by_forwarding(limits: Limits, has_hold: bool, patience: u32) -> usize {
    let node = |me| forwarding::Node::new(HostId(me), HostId(0), has_hold, patience);
    let nodes = (0..limits.scripts.len() as u32).map(node).collect();
    search(limits, nodes, if has_hold { MANY } else { 7 })
}

fn limits(scripts: Vec<Vec<Op>>) -> Limits {
    Limits { scripts, pages: 1, evictions: 0, losses: 0, on_loss: OnLoss::Error }
}

const R: Op = (Span { first: 0, count: 1 }, Access::Read);
const W: Op = (Span { first: 0, count: 1 }, Access::Write);

/// What three hosts do with a page.
fn three_hosts() -> Vec<Vec<Vec<Op>>> {
    vec![
        vec![vec![R, W], vec![R, W], vec![R, W]],
        vec![vec![], vec![W, W], vec![R, R, W]],
        vec![vec![W, R], vec![W, R], vec![R, R]],
    ]
}

#[test]
fn central_three_hosts_one_page() {
    for scripts in three_hosts() {
        for evictions in 0..3 {
            centrally(Limits { evictions, ..limits(scripts.clone()) }, Options::default(), true);
        }
    }
}

#[test]
fn central_without_a_hold_nothing_is_wrong_either() {
    let scripts = vec![vec![R], vec![W], vec![W, R]];
    centrally(Limits { evictions: 1, ..limits(scripts) }, Options::default(), false);
}

#[test]
fn central_readers_that_are_overtaken_get_their_turn() {
    let options = Options { reader_bound: 1, ..Options::default() };
    centrally(limits(vec![vec![W], vec![W, W], vec![R, R]]), options, true);
}

#[test]
fn central_two_pages_and_requests_of_both() {
    let both = Span { first: 0, count: 2 };
    let other = Span { first: 1, count: 1 };
    let options = Options { reader_bound: 1, ..Options::default() };
    for scripts in [
        vec![vec![(both, Access::Write), R], vec![(other, Access::Write), W]],
        vec![vec![(both, Access::Read), W], vec![(other, Access::Write), (both, Access::Write)]],
        vec![vec![], vec![(both, Access::Write), R], vec![(other, Access::Read), W]],
    ] {
        centrally(Limits { pages: 2, evictions: 1, ..limits(scripts) }, options, true);
    }
}

#[test]
fn central_a_host_is_lost_at_any_moment() {
    for on_loss in [OnLoss::Error, OnLoss::Revert] {
        for scripts in [vec![vec![R, W], vec![W, R], vec![W, R]], vec![vec![], vec![W, W], vec![R, W, R]]] {
            centrally(Limits { on_loss, losses: 1, ..limits(scripts) }, Options::default(), true);
        }
    }
}

#[test]
fn forwarding_three_hosts_one_page() {
    for scripts in three_hosts() {
        for evictions in 0..2 {
            by_forwarding(Limits { evictions, ..limits(scripts.clone()) }, true, 8);
        }
    }
}

#[test]
fn forwarding_with_little_patience() {
    by_forwarding(limits(vec![vec![W], vec![R, W], vec![W, R]]), true, 0);
    by_forwarding(limits(vec![vec![W, W], vec![R], vec![R, W]]), true, 1);
}

#[test]
fn forwarding_without_a_hold_nothing_is_wrong_either() {
    by_forwarding(Limits { evictions: 1, ..limits(vec![vec![R], vec![W], vec![W, R]]) }, false, 8);
}

#[test]
fn forwarding_two_hosts_two_pages() {
    let other = |access| (Span { first: 1, count: 1 }, access);
    let scripts = vec![vec![W, other(Access::Read), W], vec![other(Access::Write), R, other(Access::Write)]];
    by_forwarding(Limits { pages: 2, ..limits(scripts) }, true, 8);
}
