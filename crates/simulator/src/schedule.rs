//! Runs with everything that can go wrong, each made from one number.

use crate::clock::{Clock, Cluster, Fault, Moment, Times};
use crate::dice::Dice;
use crate::explicit;
use crate::world::{HOME, Joined, Limits, Op, Shape, World};
use commonhold_coherence::central::{self, OnLoss, Options};
use commonhold_coherence::{Access, HostId, Scheduler, Span, forwarding};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which scheduler a run is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One home decides.
    Central,
    /// Every host schedules.
    Forwarding,
    /// Explicit coherence.
    Explicit,
}

/// All there are.
pub const KINDS: [Kind; 3] = [Kind::Central, Kind::Forwarding, Kind::Explicit];

/// What no run has, said beside every result.
pub const NOT_SIMULATED: &[&str] = &[
    "locked pages under the strict schedulers",
    "pages that the home cannot read or store",
    "a home whose role moves, or whose process begins anew",
    "the registry, sessions and connections: a message arrives once and in order, and a loss is told to everybody",
];

/// A run: these two say all about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Of which scheduler.
    pub kind: Kind,
    /// What everything else follows from.
    pub seed: u64,
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", format!("{:?}", self.kind).to_lowercase(), self.seed)
    }
}

impl std::str::FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Schedule, String> {
        let wrong = || format!("`{text}` is no schedule: say central, forwarding or explicit, and a number");
        let (kind, seed) = text.trim().split_once(' ').ok_or_else(wrong)?;
        let named = |known: &Kind| format!("{known:?}").to_lowercase() == kind;
        let kind = KINDS.into_iter().find(named).ok_or_else(wrong)?;
        Ok(Schedule { kind, seed: seed.parse().map_err(|_| wrong())? })
    }
}

/// What came of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Steps.
    pub steps: u64,
    /// Things that went wrong, as they were meant to.
    pub injected: u64,
    /// Accesses that were done.
    pub accesses: u64,
    /// Accesses that ended in an error.
    pub failed: u64,
}

/// Steps after which a run is thought never to end; of a crowd, for each of its hosts.
const STEPS: u64 = 300_000;
const CROWD_STEPS: u64 = 20_000;
/// Every so many seeds a run is of a crowd, which takes as long as some ten thousand others.
const CROWD_EVERY: u64 = 25_000;

impl Schedule {
    /// Runs it. What is wrong begins with the line that runs it again.
    pub fn run(self) -> Result<Outcome, String> {
        let mut dice = Dice::new(self.seed);
        let size =
            if self.is_crowd() { Size::crowd(self.kind, &mut dice) } else { Size::few(self.kind, &mut dice) };
        let outcome = match self.kind {
            Kind::Central => run_central(&mut dice, &size),
            Kind::Forwarding => run_forwarding(&mut dice, &size),
            Kind::Explicit => run_explicit(&mut dice, &size),
        };
        outcome.map_err(|wrong| format!("schedule `{self}`: {wrong}"))
    }

    /// Whether it is of 200 hosts or more.
    pub fn is_crowd(self) -> bool {
        self.seed.is_multiple_of(CROWD_EVERY)
    }
}

/// How many take part, and how much they do.
struct Size {
    hosts: usize,
    /// A program does fewer accesses.
    accesses: usize,
    /// Fewer things than these go wrong.
    faults: usize,
    /// Hosts that are not there at first, at most.
    late: usize,
    /// Hosts may be lost.
    crashes: bool,
    steps: u64,
}

impl Size {
    fn few(kind: Kind, dice: &mut Dice) -> Size {
        let hosts = match kind {
            Kind::Central => 2 + dice.roll(7),
            Kind::Forwarding => 2 + dice.roll(15),
            Kind::Explicit => 1 + dice.roll(6),
        };
        let accesses = if kind == Kind::Explicit { 16 } else { 12 };
        Size { hosts, accesses, faults: 6, late: hosts, crashes: true, steps: STEPS }
    }

    /// Up to a thousand hosts; under forwarding fewer where some may be lost, because everybody tells everybody of it.
    fn crowd(kind: Kind, dice: &mut Dice) -> Size {
        let crashes = kind != Kind::Forwarding || !dice.one_in(3);
        let hosts = 200 + dice.roll(if kind == Kind::Forwarding && crashes { 101 } else { 801 });
        Size { hosts, accesses: 6, faults: 24, late: 4, crashes, steps: hosts as u64 * CROWD_STEPS }
    }
}

/// Long, or short, or between.
fn times(dice: &mut Dice, holds: bool) -> Times {
    let least = 1 + dice.roll(50) as u64;
    let delay = (least, least + 1 + dice.roll([10, 200, 2000][dice.clone().roll(3)]) as u64);
    Times {
        delay,
        think: (0, dice.roll(300) as u64),
        hold: if holds { 1 + dice.roll(400) as u64 } else { 0 },
        lease: 1000 + dice.roll(4000) as u64,
    }
}

/// How bad a run may become.
struct Evil {
    crashes: bool,
    /// Hosts may come.
    joins: usize,
    /// From which host on they may be lost.
    from: usize,
    /// Fewer things than these go wrong.
    faults: usize,
}

/// What goes wrong when. A stop or a cut may last longer than the lease: then it is a loss.
fn plan(dice: &mut Dice, hosts: usize, pages: u32, evil: &Evil, times: &Times) -> Vec<(Moment, Fault)> {
    let mut plan = Vec::new();
    let moment = |dice: &mut Dice| dice.roll(6000) as Moment;
    for _ in 0..dice.roll(evil.faults) {
        let (host, at) = (dice.roll(hosts), moment(dice));
        let mortal = evil.crashes && host >= evil.from;
        let longest = if mortal { 2 * times.lease } else { times.lease };
        let fault = match dice.roll(7) {
            0 if mortal => Fault::Crash(host),
            0 | 1 => Fault::Stop(host, 1 + dice.roll(longest as usize) as u64),
            2 => Fault::CutOff(host, 1 + dice.roll(longest as usize) as u64),
            3 => Fault::Slow(host, 2 + dice.roll(30) as u64),
            4 => Fault::CutPair(host, dice.roll(hosts), 1 + dice.roll(2 * times.lease as usize) as u64),
            _ => Fault::Evict(host, dice.roll(pages as usize) as u32),
        };
        plan.push((at, fault));
    }
    plan.extend((0..evil.joins).map(|_| (moment(dice), Fault::Join)));
    plan
}

/// A program whose host has pages of `size` scheduler pages: all its requests are aligned to them.
fn script(dice: &mut Dice, pages: u32, size: u32, accesses: usize) -> Vec<Op> {
    let op = |dice: &mut Dice| {
        let first = dice.roll(pages as usize) as u32 / size * size;
        let span = Span::new(first, size.min(pages - first));
        (span, if dice.one_in(3) { Access::Write } else { Access::Read })
    };
    (0..dice.roll(accesses)).map(|_| op(dice)).collect()
}

fn run_strict<N, F>(
    mut world: Joined<N, F>,
    times: Times,
    dice: Dice,
    plan: Vec<(Moment, Fault)>,
    steps: u64,
    is_right_in_the_end: fn(&World<N>) -> Result<(), String>,
) -> Result<Outcome, String>
where
    N: Scheduler + fmt::Debug,
    N::Message: Clone + fmt::Debug,
    F: FnMut(&World<N>) -> Option<(N, Vec<Op>)>,
{
    world.news();
    let mut clock = Clock::new(world, times, dice, plan);
    // Without a minimum hold hosts may take a page from each other for ever; what they find must be right all the same.
    let must_end = times.hold > 0;
    let steps = clock.run(if must_end { steps } else { steps / 30 });
    let world = &clock.cluster.world;
    if let Some(wrong) = &world.violation {
        return Err(wrong.clone());
    }
    if must_end && !world.is_done() {
        return Err(format!("somebody waits for ever, after {steps} steps"));
    }
    if must_end {
        is_right_in_the_end(world)?;
    }
    Ok(Outcome {
        steps,
        injected: clock.injected,
        accesses: world.notes.traffic.accesses,
        failed: world.failed.into(),
    })
}

fn run_central(dice: &mut Dice, size: &Size) -> Result<Outcome, String> {
    let (hosts, accesses, pages) = (size.hosts, size.accesses, 1 + dice.roll(6) as u32);
    let on_loss = if dice.one_in(2) { OnLoss::Error } else { OnLoss::Revert };
    let options = Options { reader_bound: dice.roll(3) as u32, on_loss };
    let scripts = (0..hosts).map(|_| {
        let size = 1 << dice.roll(3);
        script(dice, pages, size, accesses)
    });
    let scripts = scripts.collect();
    let limits = Limits { on_loss, ..Limits::new(Shape::Central, scripts, pages) };
    let has_hold = !dice.one_in(4);
    let node = move |me: usize| central::Node::new(HostId(me as u32), HostId(0), options, has_hold);
    let world = World::new(&limits, (0..hosts).map(node).collect());
    let mut further = dice.clone();
    let newcomer = move |world: &World<central::Node>| {
        // Whoever comes after the home was lost is told by the registry that there is none.
        let size = 1 << further.roll(3);
        let program = script(&mut further, pages, size, accesses);
        (!world.is_dead(HOME)).then(|| (node(world.nodes.len()), program))
    };
    let evil = Evil {
        crashes: dice.one_in(2),
        joins: dice.roll(3),
        from: usize::from(!dice.one_in(8)),
        faults: size.faults,
    };
    let times = times(dice, has_hold);
    let plan = plan(dice, hosts, pages, &evil, &times);
    run_strict(Joined { world, newcomer }, times, dice.clone(), plan, size.steps, |_| Ok(()))
}

fn run_forwarding(dice: &mut Dice, size: &Size) -> Result<Outcome, String> {
    let (hosts, accesses, pages) = (size.hosts, size.accesses, 1 + dice.roll(3) as u32);
    let scripts = (0..hosts).map(|_| script(dice, pages, 1, accesses)).collect();
    let on_loss = if dice.one_in(2) { OnLoss::Error } else { OnLoss::Revert };
    let replicas = if dice.one_in(2) { 0 } else { dice.roll(4) as u32 };
    let (has_hold, patience) = (!dice.one_in(4), dice.roll(6) as u32);
    let migrates_after = 1 + patience as u8 % 2;
    let options = forwarding::Options { has_hold, patience, on_loss, replicas, migrates_after };
    let newcomer = move |me: usize| forwarding::Node::new(HostId(me as u32), HostId(HOME as u32), options);
    // Some hosts begin together, each with its copy from any before it; the others ask to take part.
    let members: Vec<HostId> = (0..(hosts - dice.roll(size.late)) as u32).map(HostId).collect();
    // What those who begin can promise: there are never more replicas than other hosts.
    let promised = replicas.min(members.len() as u32 - 1);
    let limits = Limits { on_loss, replicas: promised, ..Limits::new(Shape::Forwarding, scripts, pages) };
    let mut nodes = Vec::new();
    for me in 0..hosts {
        let origin = HostId(if me == 0 { 0 } else { dice.roll(me) as u32 });
        nodes.push(match members.get(me) {
            Some(host) => forwarding::Node::founder(*host, origin, &members, options),
            None => newcomer(me),
        });
    }
    let mut further = dice.clone();
    let newcomer = move |world: &World<forwarding::Node>| {
        Some((newcomer(world.nodes.len()), script(&mut further, pages, 1, accesses)))
    };
    let evil = Evil {
        crashes: !dice.one_in(3),
        joins: dice.roll(4),
        from: usize::from(!dice.one_in(4)),
        faults: size.faults,
    };
    let times = times(dice, has_hold);
    let mut plan = plan(dice, hosts, pages, &evil, &times);
    for _ in 0..dice.roll(4) {
        let (host, at) = (dice.roll(hosts), dice.roll(8000) as Moment);
        plan.push((at, if dice.one_in(3) { Fault::Revert(host) } else { Fault::Leave(host) }));
    }
    let joined = Joined { world: World::new(&limits, nodes), newcomer };
    run_strict(joined, times, dice.clone(), plan, size.steps, nobody_owns_what_he_left)
}

/// Whoever stopped using an object owns nothing of it in the end, as long as there is a home to give it to.
fn nobody_owns_what_he_left(world: &World<forwarding::Node>) -> Result<(), String> {
    let has_left = |host: &usize| world.has_left(*host) && !world.is_dead(*host);
    let owns = |host: &usize| *host != HOME && world.nodes[*host].owns_anything();
    match (0..world.nodes.len()).filter(has_left).find(owns) {
        Some(host) if !world.is_dead(HOME) => Err(format!("host {host} left and owns pages")),
        _ => Ok(()),
    }
}

fn explicit_script(dice: &mut Dice, pages: u32, accesses: usize) -> Vec<explicit::Op> {
    use explicit::Op;
    let mut script = Vec::new();
    for _ in 0..dice.roll(accesses) {
        let page = dice.roll(pages as usize) as u32;
        script.push(match dice.roll(8) {
            0..3 => Op::Read(page),
            3..5 => Op::Write(page),
            5 => Op::Sync,
            6 => Op::Lock(page),
            _ => Op::Unlock(page),
        });
    }
    // In the end nobody has anything of his own.
    script.extend((0..pages).map(Op::Unlock));
    script.push(Op::Sync);
    script
}

fn run_explicit(dice: &mut Dice, size: &Size) -> Result<Outcome, String> {
    let (hosts, accesses, pages) = (size.hosts, size.accesses, 1 + dice.roll(4) as u32);
    let scripts = (0..hosts).map(|_| explicit_script(dice, pages, accesses)).collect();
    let mut world = explicit::World::new(pages as usize, scripts);
    let home_may_die = dice.one_in(8);
    // Whoever comes after the home was lost is told by the registry that there is none.
    let joins = if home_may_die { 0 } else { dice.roll(3) };
    world.newcomers = (0..joins).map(|_| explicit_script(dice, pages, accesses)).collect();
    let evil = Evil {
        crashes: size.crashes && dice.one_in(2),
        joins,
        from: usize::from(!home_may_die),
        faults: size.faults,
    };
    let times = times(dice, false);
    let plan = plan(dice, hosts, pages, &evil, &times);
    let mut clock = Clock::new(world, times, dice.clone(), plan);
    let steps = clock.run(size.steps);
    clock.cluster.check_end();
    match clock.cluster.violation() {
        Some(wrong) => Err(wrong),
        None => Ok(Outcome {
            steps,
            injected: clock.injected,
            accesses: clock.cluster.notes.traffic.accesses,
            failed: clock.cluster.failed.into(),
        }),
    }
}

/// Runs `count` schedules of each kind from `seed`, on `threads` threads. Gives what came of all, and what was wrong.
pub fn run_many(seed: u64, count: u64, threads: u64) -> (Outcome, Vec<String>) {
    let (next, end) = (AtomicU64::new(seed), seed + count);
    let part = || {
        let (mut sum, mut wrong) = (Outcome::default(), Vec::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return (sum, wrong);
            }
            for kind in KINDS {
                match (Schedule { kind, seed }).run() {
                    Ok(outcome) => sum.add(outcome),
                    Err(what) => wrong.push(what),
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(part)).collect();
        let mut all = (Outcome::default(), Vec::new());
        for thread in threads {
            let (sum, wrong) = thread.join().expect("a schedule panicked");
            all.0.add(sum);
            all.1.extend(wrong);
        }
        all
    })
}

impl Outcome {
    fn add(&mut self, other: Outcome) {
        self.steps += other.steps;
        self.injected += other.injected;
        self.accesses += other.accesses;
        self.failed += other.failed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Schedules that find a mistake, and which: each was wrong while the state machine had it.
    const FOUND: &[(&str, &[&str])] = &[
        ("a grant to write that does not wait for the readers", &["central 1", "central 3"]),
        ("a copy dropped that an upgrade counts on", &["central 23", "central 303", "central 601"]),
        ("several pages asked for in parts", &["central 223", "central 569", "central 677", "central 895"]),
        ("answers of a lost host that are awaited still", &["central 3", "central 43", "central 167"]),
        (
            "a place in the order that an invalidation takes",
            &["forwarding 1", "forwarding 9", "forwarding 17"],
        ),
        ("what was settled and is not taken over", &["forwarding 3", "forwarding 13", "forwarding 29"]),
        ("two syncs at once at the home", &["explicit 1", "explicit 3"]),
    ];

    #[test]
    fn what_was_wrong_once_is_right() {
        for (mistake, lines) in FOUND {
            for line in *lines {
                let schedule: Schedule = line.parse().expect("a schedule");
                schedule.run().unwrap_or_else(|wrong| panic!("{mistake}: {wrong}"));
            }
        }
    }

    /// `COMMONHOLD_SCHEDULES=N` for more; `COMMONHOLD_SCHEDULE='central 17'` runs that one again.
    #[test]
    fn random_schedules_are_right() {
        if let Ok(line) = std::env::var("COMMONHOLD_SCHEDULE") {
            let schedule: Schedule = line.parse().expect("COMMONHOLD_SCHEDULE");
            println!("{:?}", schedule.run().expect("a schedule"));
            return;
        }
        let count = std::env::var("COMMONHOLD_SCHEDULES").map_or(5000, |n| n.parse().expect("a number"));
        let (sum, wrong) = run_many(1, count, 2);
        assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
        assert!(sum.injected > count && sum.accesses > count && sum.failed > 0, "{sum:?}");
        println!("{sum:?}");
    }

    /// Of some hundred hosts each: the row of the benchmark has more of them.
    #[test]
    fn crowds_are_right() {
        for (kind, number) in KINDS.into_iter().flat_map(|kind| [(kind, 1), (kind, 2)]) {
            let schedule = Schedule { kind, seed: number * CROWD_EVERY };
            assert!(schedule.is_crowd());
            schedule.run().unwrap_or_else(|wrong| panic!("{wrong}"));
        }
    }

    #[test]
    fn a_seed_says_all() {
        for kind in KINDS {
            let schedule = Schedule { kind, seed: 77 };
            assert_eq!(schedule.run(), schedule.run());
            assert_eq!(schedule.to_string().parse(), Ok(schedule));
        }
        assert!("sideways 3".parse::<Schedule>().is_err());
    }
}
