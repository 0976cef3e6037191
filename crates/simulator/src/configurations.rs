//! The small clusters of which every interleaving is searched, and their bounds.

use crate::explicit;
use crate::search::{Searchable, search};
use crate::world::{Limits, Op, Shape, World};
use commonhold_coherence::central::{self, OnLoss, Options};
use commonhold_coherence::{Access, HostId, Span, forwarding};

/// Some clusters that belong together.
pub struct Group {
    /// What is special about them.
    pub name: &'static str,
    /// Searches them all; gives how many there are and the states of all, or what is wrong.
    pub run: fn() -> Result<Searched, String>,
}

/// What a search went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Searched {
    /// Clusters.
    pub configurations: usize,
    /// Their states.
    pub states: usize,
}

impl Searched {
    fn add(&mut self, states: usize) {
        self.configurations += 1;
        self.states += states;
    }
}

/// What no group has, said beside every result.
pub const NOT_SEARCHED: &[&str] = &[
    "locked pages under the strict schedulers",
    "hosts that come late under the central scheduler",
    "pages that the home cannot store",
    "more than three hosts, two pages, or two losses",
];

/// Those that take minutes: the row of the benchmark searches them too.
pub const LONGER: &[Group] = &[
    Group {
        name: "forwarding: 2 and 3 hosts, processes die and others follow them, revert",
        run: || forwarding_restarts(OnLoss::Revert),
    },
    Group {
        name: "forwarding: 3 hosts that use a page, the process of one dies and another follows it",
        run: forwarding_restarts_of_three,
    },
];

/// All others.
pub const GROUPS: &[Group] = &[
    Group { name: "central: 3 hosts, 1 page, 0 to 2 evictions", run: central_three_hosts },
    Group { name: "central: 3 hosts, 1 page, no minimum hold, up to 7 faults", run: central_no_hold },
    Group { name: "central: 3 hosts, 1 page, readers may be overtaken once", run: central_overtaken },
    Group { name: "central: 2 and 3 hosts, 2 pages, requests of one and of both", run: central_two_pages },
    Group {
        name: "central: 3 hosts, 1 page, one of them dies at any moment, error and revert",
        run: central_loss,
    },
    Group { name: "central: 2 and 3 hosts, pages that the home cannot read", run: central_not_read },
    Group { name: "central: 2 hosts, 2 pages, one of them dies", run: central_two_pages_loss },
    Group { name: "central: 3 hosts, 1 page, one dies, and its loss is heard twice", run: central_twice },
    Group { name: "forwarding: 3 hosts, 1 page, 0 and 1 evictions", run: forwarding_three_hosts },
    Group { name: "forwarding: 3 hosts, 1 page, requests that give up at once", run: forwarding_patience },
    Group { name: "forwarding: 3 hosts, 1 page, no minimum hold, up to 7 faults", run: forwarding_no_hold },
    Group {
        name: "forwarding: 2 and 3 hosts, 1 page that migrates, an eviction, a loss, a restart",
        run: forwarding_migrates,
    },
    Group {
        name: "forwarding: 3 hosts, 1 page, 0 and 1 replica, a page that the home cannot read",
        run: forwarding_not_read,
    },
    Group { name: "forwarding: 2 hosts, 2 pages", run: forwarding_two_pages },
    Group { name: "forwarding: 2 hosts, 2 pages, one of them dies", run: forwarding_two_pages_loss },
    Group {
        name: "forwarding: 3 hosts, 1 page, one dies, and its loss is heard twice",
        run: forwarding_twice,
    },
    Group {
        name: "forwarding: 3 hosts, 1 page, one dies at any moment, error and revert",
        run: forwarding_loss,
    },
    Group { name: "forwarding: 3 hosts, 1 page, up to two die", run: forwarding_losses },
    Group {
        name: "forwarding: 3 hosts, 1 page, one dies, and what is lost is wanted back",
        run: forwarding_reverts,
    },
    Group { name: "forwarding: 3 hosts, 1 page, hosts stop using it, and one dies", run: forwarding_leaves },
    Group {
        name: "forwarding: 3 hosts, 1 page, two of them newcomers, and one dies",
        run: forwarding_newcomers,
    },
    Group {
        name: "forwarding: 3 hosts, 1 page, 1 and 2 replicas, as many hosts die",
        run: forwarding_replicas,
    },
    Group { name: "forwarding: 3 hosts, 1 page, 1 replica, a newcomer, two die", run: forwarding_filling },
    Group {
        name: "forwarding: 2 and 3 hosts, processes die and others follow them, and a host dies, error",
        run: || forwarding_restarts(OnLoss::Error),
    },
    Group { name: "explicit: 3 hosts, 1 page, and 2 hosts, 2 pages, an eviction", run: explicitly },
    Group { name: "explicit: one of them dies, and its loss is heard twice", run: explicit_loss },
];

const MANY: u32 = u32::MAX;
/// Where there is no hold.
const FEW: u32 = 7;

const R: Op = (Span { first: 0, count: 1 }, Access::Read);
const W: Op = (Span { first: 0, count: 1 }, Access::Write);
const BOTH: Span = Span { first: 0, count: 2 };
const OTHER: Span = Span { first: 1, count: 1 };

fn central(scripts: Vec<Vec<Op>>) -> Limits {
    Limits::new(Shape::Central, scripts, 1)
}

fn forwarding(scripts: Vec<Vec<Op>>) -> Limits {
    Limits::new(Shape::Forwarding, scripts, 1)
}

fn centrally(limits: Limits, options: Options, has_hold: bool) -> Result<usize, String> {
    let options = Options { on_loss: limits.on_loss, ..options };
    let node = |me| central::Node::new(HostId(me), HostId(0), options, has_hold);
    let nodes = (0..limits.scripts.len() as u32).map(node).collect();
    searched(&limits, World::new(&limits, nodes), has_hold)
}

fn searched<W: Searchable>(limits: &Limits, start: W, has_hold: bool) -> Result<usize, String> {
    search(start, if has_hold { MANY } else { FEW }).map_err(|wrong| format!("of {limits:?}: {wrong}"))
}

fn by_forwarding(limits: Limits, has_hold: bool, patience: u32) -> Result<usize, String> {
    let founders = limits.scripts.len();
    grown(limits, founders, has_hold, patience)
}

/// The first `founders` hosts begin together, the others ask to take part.
fn grown(limits: Limits, founders: usize, has_hold: bool, patience: u32) -> Result<usize, String> {
    let Limits { on_loss, replicas, .. } = limits;
    let options = forwarding::Options { has_hold, patience, on_loss, replicas, migrates_after: 1 };
    let members: Vec<HostId> = (0..founders as u32).map(HostId).collect();
    let node = |me| match members.contains(&HostId(me)) {
        true => forwarding::Node::founder(HostId(me), HostId(0), &members, options),
        false => forwarding::Node::new(HostId(me), HostId(0), options),
    };
    let nodes = (0..limits.scripts.len() as u32).map(node).collect();
    searched(&limits, World::new(&limits, nodes), has_hold)
}

/// What three hosts do with a page.
fn three_hosts() -> Vec<Vec<Vec<Op>>> {
    vec![
        vec![vec![R, W], vec![R, W], vec![R, W]],
        vec![vec![], vec![W, W], vec![R, R, W]],
        vec![vec![W, R], vec![W, R], vec![R, R]],
    ]
}

fn central_three_hosts() -> Result<Searched, String> {
    let mut searched = Searched::default();
    for scripts in three_hosts() {
        for evictions in 0..3 {
            let limits = Limits { evictions, ..central(scripts.clone()) };
            searched.add(centrally(limits, Options::default(), true)?);
        }
    }
    Ok(searched)
}

fn central_no_hold() -> Result<Searched, String> {
    let limits = Limits { evictions: 1, ..central(vec![vec![R], vec![W], vec![W, R]]) };
    let mut searched = Searched::default();
    searched.add(centrally(limits, Options::default(), false)?);
    Ok(searched)
}

fn central_overtaken() -> Result<Searched, String> {
    let options = Options { reader_bound: 1, ..Options::default() };
    let mut searched = Searched::default();
    searched.add(centrally(central(vec![vec![W], vec![W, W], vec![R, R]]), options, true)?);
    Ok(searched)
}

fn central_two_pages() -> Result<Searched, String> {
    let options = Options { reader_bound: 1, ..Options::default() };
    let mut searched = Searched::default();
    for scripts in [
        vec![vec![(BOTH, Access::Write), R], vec![(OTHER, Access::Write), W]],
        vec![vec![(BOTH, Access::Read), W], vec![(OTHER, Access::Write), (BOTH, Access::Write)]],
        vec![vec![], vec![(BOTH, Access::Write), R], vec![(OTHER, Access::Read), W]],
    ] {
        let limits = Limits { pages: 2, evictions: 1, ..central(scripts) };
        searched.add(centrally(limits, options, true)?);
    }
    Ok(searched)
}

fn central_loss() -> Result<Searched, String> {
    let mut searched = Searched::default();
    for on_loss in [OnLoss::Error, OnLoss::Revert] {
        for home_may_die in [false, true] {
            for scripts in [vec![vec![R, W], vec![W, R], vec![W, R]], vec![vec![], vec![W, W], vec![R, W, R]]]
            {
                let limits = Limits { on_loss, losses: 1, home_may_die, ..central(scripts) };
                searched.add(centrally(limits, Options::default(), true)?);
            }
        }
    }
    Ok(searched)
}

fn central_not_read() -> Result<Searched, String> {
    let mut searched = Searched::default();
    let two_pages = vec![vec![(BOTH, Access::Read), W], vec![(OTHER, Access::Write), (BOTH, Access::Write)]];
    for (pages, scripts) in [(1, three_hosts().remove(0)), (1, three_hosts().remove(1)), (2, two_pages)] {
        let limits = Limits { pages, unreadable: 1, ..central(scripts) };
        searched.add(centrally(limits, Options::default(), true)?);
    }
    let limits = Limits { unreadable: 1, losses: 1, ..central(vec![vec![], vec![R, W], vec![W]]) };
    searched.add(centrally(limits, Options::default(), true)?);
    Ok(searched)
}

fn forwarding_not_read() -> Result<Searched, String> {
    let mut searched = Searched::default();
    for replicas in [0, 1] {
        for scripts in three_hosts() {
            let limits = Limits { replicas, unreadable: 1, ..forwarding(scripts) };
            searched.add(by_forwarding(limits, true, 8)?);
        }
        let scripts = vec![vec![], vec![R, W], vec![W]];
        let limits = Limits { replicas, unreadable: 1, losses: 1, ..forwarding(scripts) };
        searched.add(by_forwarding(Limits { on_loss: OnLoss::Revert, ..limits }, true, 8)?);
    }
    Ok(searched)
}

fn forwarding_three_hosts() -> Result<Searched, String> {
    let mut searched = Searched::default();
    for scripts in three_hosts() {
        for evictions in 0..2 {
            let limits = Limits { evictions, ..forwarding(scripts.clone()) };
            searched.add(by_forwarding(limits, true, 8)?);
        }
    }
    Ok(searched)
}

fn forwarding_patience() -> Result<Searched, String> {
    let mut searched = Searched::default();
    searched.add(by_forwarding(forwarding(vec![vec![W], vec![R, W], vec![W, R]]), true, 0)?);
    searched.add(by_forwarding(forwarding(vec![vec![W, W], vec![R], vec![R, W]]), true, 1)?);
    Ok(searched)
}

fn forwarding_no_hold() -> Result<Searched, String> {
    let limits = Limits { evictions: 1, ..forwarding(vec![vec![R], vec![W], vec![W, R]]) };
    let mut searched = Searched::default();
    searched.add(by_forwarding(limits, false, 8)?);
    Ok(searched)
}

/// Hosts that write what they have read, and ask for it to be written when they read it the next time.
fn forwarding_migrates() -> Result<Searched, String> {
    let mut searched = Searched::default();
    let two = || forwarding(vec![vec![R, W], vec![R, W, R, W]]);
    searched.add(by_forwarding(Limits { evictions: 1, ..two() }, true, 8)?);
    searched.add(by_forwarding(forwarding(vec![vec![W, R], vec![R, W, R], vec![R, W]]), true, 8)?);
    for on_loss in [OnLoss::Error, OnLoss::Revert] {
        searched.add(by_forwarding(Limits { on_loss, losses: 1, home_may_die: true, ..two() }, true, 8)?);
        let one = forwarding(vec![vec![W], vec![R, W, R]]);
        searched.add(by_forwarding(Limits { on_loss, restarts: 1, ..one.clone() }, true, 8)?);
        searched.add(by_forwarding(Limits { on_loss, replicas: 1, losses: 1, ..one }, true, 8)?);
    }
    Ok(searched)
}

/// One of three hosts dies at any moment, the home too.
fn forwarding_loss() -> Result<Searched, String> {
    let mut searched = Searched::default();
    for on_loss in [OnLoss::Error, OnLoss::Revert] {
        for scripts in [vec![vec![R], vec![W], vec![R, W]], vec![vec![], vec![W, W], vec![W, R]]] {
            let limits = Limits { on_loss, losses: 1, home_may_die: true, ..forwarding(scripts) };
            searched.add(by_forwarding(limits, true, 8)?);
        }
    }
    Ok(searched)
}

fn forwarding_losses() -> Result<Searched, String> {
    let mut searched = Searched::default();
    for on_loss in [OnLoss::Error, OnLoss::Revert] {
        let scripts = vec![vec![], vec![W], vec![R]];
        let limits = Limits { on_loss, losses: 2, home_may_die: true, ..forwarding(scripts) };
        searched.add(by_forwarding(limits, true, 8)?);
    }
    Ok(searched)
}

fn forwarding_reverts() -> Result<Searched, String> {
    let limits = Limits { losses: 1, reverts: 1, ..forwarding(vec![vec![], vec![W], vec![R, R]]) };
    let mut searched = Searched::default();
    searched.add(by_forwarding(limits, true, 8)?);
    Ok(searched)
}

fn forwarding_leaves() -> Result<Searched, String> {
    let limits = |scripts| Limits { leaves: 2, ..forwarding(scripts) };
    let mut searched = Searched::default();
    searched.add(by_forwarding(limits(vec![vec![], vec![W, R], vec![R, W]]), true, 8)?);
    let limits = Limits { losses: 1, home_may_die: true, ..limits(vec![vec![], vec![W], vec![R]]) };
    searched.add(by_forwarding(limits, true, 8)?);
    Ok(searched)
}

fn forwarding_newcomers() -> Result<Searched, String> {
    let mut searched = Searched::default();
    searched.add(grown(forwarding(vec![vec![R], vec![W, R], vec![R, W]]), 1, true, 8)?);
    for founders in [1, 2] {
        let scripts = vec![vec![], vec![W], vec![R]];
        let limits = Limits { losses: 1, home_may_die: true, ..forwarding(scripts) };
        searched.add(grown(limits, founders, true, 8)?);
    }
    Ok(searched)
}

/// As many hosts die as there are replicas, at any moment, the home too.
fn forwarding_replicas() -> Result<Searched, String> {
    let mut searched = Searched::default();
    for on_loss in [OnLoss::Error, OnLoss::Revert] {
        for scripts in [vec![vec![R], vec![W], vec![R, W]], vec![vec![], vec![W, W], vec![W, R]]] {
            let limits =
                Limits { on_loss, replicas: 1, losses: 1, home_may_die: true, ..forwarding(scripts) };
            searched.add(by_forwarding(limits, true, 8)?);
        }
        let scripts = vec![vec![], vec![W, W], vec![R]];
        let limits = Limits { on_loss, replicas: 2, losses: 2, home_may_die: true, ..forwarding(scripts) };
        searched.add(by_forwarding(limits, true, 8)?);
    }
    let limits = Limits { replicas: 1, evictions: 1, ..forwarding(vec![vec![R], vec![W, W], vec![R, W]]) };
    searched.add(by_forwarding(limits, true, 8)?);
    Ok(searched)
}

/// Pages that have too few keepers, since there were too few hosts or some died.
fn forwarding_filling() -> Result<Searched, String> {
    let mut searched = Searched::default();
    for (founders, losses) in [(1, 0), (2, 1), (3, 2)] {
        let scripts = vec![vec![W], vec![W], vec![R]];
        let on_loss = OnLoss::Revert;
        let limits = Limits { on_loss, replicas: 1, losses, home_may_die: true, ..forwarding(scripts) };
        searched.add(grown(limits, founders, true, 8)?);
    }
    Ok(searched)
}

/// Processes die at any moment, not of the home: nothing is lost with them.
fn forwarding_restarts(on_loss: OnLoss) -> Result<Searched, String> {
    let mut searched = Searched::default();
    let limits = |scripts| Limits { on_loss, restarts: 1, ..forwarding(scripts) };
    let writes = vec![vec![], vec![W], vec![]];
    searched.add(by_forwarding(Limits { evictions: 1, ..limits(vec![vec![W], vec![W, R]]) }, true, 8)?);
    searched.add(by_forwarding(Limits { restarts: 2, ..limits(vec![vec![W], vec![W]]) }, true, 8)?);
    searched.add(by_forwarding(Limits { replicas: 1, ..limits(writes.clone()) }, true, 8)?);
    searched.add(grown(limits(writes.clone()), 2, true, 8)?);
    if on_loss == OnLoss::Error {
        searched.add(by_forwarding(Limits { losses: 1, ..limits(writes) }, false, 8)?);
    }
    Ok(searched)
}

/// The same with three hosts that use the page.
fn forwarding_restarts_of_three() -> Result<Searched, String> {
    let mut searched = Searched::default();
    for on_loss in [OnLoss::Error, OnLoss::Revert] {
        let limits = |scripts| Limits { on_loss, restarts: 1, ..forwarding(scripts) };
        let reads = vec![vec![], vec![W], vec![R]];
        searched.add(by_forwarding(limits(vec![vec![], vec![W], vec![W]]), true, 8)?);
        searched.add(by_forwarding(limits(reads.clone()), true, 8)?);
        searched.add(by_forwarding(Limits { replicas: 1, ..limits(reads.clone()) }, true, 8)?);
        searched.add(grown(limits(reads), 2, true, 8)?);
    }
    Ok(searched)
}

fn forwarding_two_pages() -> Result<Searched, String> {
    let other = |access| (OTHER, access);
    let scripts = vec![vec![W, other(Access::Read), W], vec![other(Access::Write), R, other(Access::Write)]];
    let mut searched = Searched::default();
    searched.add(by_forwarding(Limits { pages: 2, ..forwarding(scripts) }, true, 8)?);
    Ok(searched)
}

fn central_two_pages_loss() -> Result<Searched, String> {
    let options = Options { reader_bound: 1, ..Options::default() };
    let mut searched = Searched::default();
    for on_loss in [OnLoss::Error, OnLoss::Revert] {
        for scripts in [
            vec![vec![(BOTH, Access::Write)], vec![(OTHER, Access::Write), (BOTH, Access::Read)]],
            vec![vec![W, (OTHER, Access::Read)], vec![(OTHER, Access::Write), R, W]],
        ] {
            let bounds = central(scripts);
            let limits = Limits { pages: 2, evictions: 1, losses: 1, home_may_die: true, on_loss, ..bounds };
            searched.add(centrally(limits, options, true)?);
        }
    }
    Ok(searched)
}

fn central_twice() -> Result<Searched, String> {
    let mut searched = Searched::default();
    for on_loss in [OnLoss::Error, OnLoss::Revert] {
        let bounds = central(vec![vec![], vec![W], vec![R, W]]);
        let limits = Limits { on_loss, losses: 1, lessons: 1, home_may_die: true, ..bounds };
        searched.add(centrally(limits, Options::default(), true)?);
    }
    Ok(searched)
}

fn forwarding_two_pages_loss() -> Result<Searched, String> {
    let mut searched = Searched::default();
    for on_loss in [OnLoss::Error, OnLoss::Revert] {
        // Each request is for one page: hosts with larger ones take no part.
        for scripts in [
            vec![vec![W, (OTHER, Access::Read)], vec![(OTHER, Access::Write), R]],
            vec![vec![(OTHER, Access::Write), R], vec![R, W, (OTHER, Access::Read)]],
        ] {
            let limits = Limits { pages: 2, losses: 1, home_may_die: true, on_loss, ..forwarding(scripts) };
            searched.add(by_forwarding(limits, true, 8)?);
        }
    }
    Ok(searched)
}

fn forwarding_twice() -> Result<Searched, String> {
    let mut searched = Searched::default();
    for on_loss in [OnLoss::Error, OnLoss::Revert] {
        let bounds = forwarding(vec![vec![], vec![W], vec![R]]);
        let limits = Limits { on_loss, losses: 1, lessons: 1, home_may_die: true, ..bounds };
        searched.add(by_forwarding(limits, true, 8)?);
    }
    Ok(searched)
}

/// What hosts do under explicit coherence: with one page, and with two.
fn explicit_scripts() -> Vec<(usize, Vec<Vec<explicit::Op>>)> {
    use explicit::Op::{Lock, Read, Sync, Unlock, Write};
    vec![
        (1, vec![vec![Write(0), Sync], vec![Read(0), Write(0), Sync], vec![Read(0), Read(0)]]),
        (1, vec![vec![], vec![Write(0), Sync, Write(0), Sync], vec![Write(0), Sync, Read(0)]]),
        (1, vec![vec![], vec![Lock(0), Read(0), Unlock(0), Read(0)], vec![Read(0), Write(0), Sync]]),
        (2, vec![vec![Write(0), Write(1), Sync, Read(0)], vec![Write(1), Sync, Read(0), Write(0), Sync]]),
    ]
}

fn explicit_searched(bounds: explicit::Bounds) -> Result<Searched, String> {
    let mut searched = Searched::default();
    for (pages, scripts) in explicit_scripts() {
        let name = format!("{scripts:?}, {bounds:?}");
        let mut start = explicit::World::new(pages, scripts);
        start.bounds = bounds;
        searched.add(search(start, MANY).map_err(|wrong| format!("of {name}: {wrong}"))?);
    }
    Ok(searched)
}

fn explicitly() -> Result<Searched, String> {
    explicit_searched(explicit::Bounds { evictions: 1, ..explicit::Bounds::default() })
}

/// One host dies at any moment, the home too.
fn explicit_loss() -> Result<Searched, String> {
    explicit_searched(explicit::Bounds { evictions: 0, losses: 1, lessons: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interleaving_is_right() {
        for group in GROUPS {
            let searched = (group.run)().unwrap_or_else(|wrong| panic!("{}: {wrong}", group.name));
            assert!(searched.states > 100 * searched.configurations, "{}: {searched:?}", group.name);
            println!("{}: {searched:?}", group.name);
        }
    }
}
