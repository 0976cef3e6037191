//! Every interleaving of a small cluster, and whether each comes to an end; and long runs from seeds.

use super::world::{Plan, Step, World};
use crate::dice::Dice;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

/// More states are not searched: a cluster with more is too large.
const MOST_STATES: usize = 6_000_000;
/// A run that takes longer does not end.
const LONGEST: usize = 4_000;

/// What a search or a run has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// States, or steps.
    pub states: usize,
    /// How often a thread had a mutex.
    pub locked: u32,
}

fn print(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// Searches all that can happen; gives how many states there are, or what is wrong and how it comes about.
///
/// In no state two threads have a mutex, and from each all threads can come to their end. (Tokens of monitors count their moves:
/// a state after more than five is not searched on.)
pub fn search(plan: &Plan) -> Result<Found, String> {
    let start = World::new(plan);
    let mut numbers = HashMap::from([(print(&start), 0u32)]);
    // How each state came about, and what leads to it.
    let mut came: Vec<(u32, Option<Step>)> = vec![(0, None)];
    let mut before: Vec<Vec<u32>> = vec![Vec::new()];
    let mut done = Vec::new();
    let mut next = VecDeque::from([(0u32, start)]);
    let mut locked = 0;
    while let Some((number, world)) = next.pop_front() {
        locked = locked.max(world.locked);
        if world.is_done() || world.is_far() {
            done.push(number);
        }
        if world.is_far() {
            continue;
        }
        for step in world.steps() {
            let mut after = world.clone();
            after.step(&step);
            let known = numbers.len() as u32;
            let at = *numbers.entry(print(&after)).or_insert(known);
            if at == known {
                came.push((number, Some(step)));
                before.push(Vec::new());
            }
            before[at as usize].push(number);
            if let Some(what) = after.violation() {
                return Err(format!("{what}: {:?} ends with {after:?}", path(&came, at)));
            }
            if at == known {
                next.push_back((at, after));
            }
        }
        if numbers.len() > MOST_STATES {
            return Err(format!("more than {MOST_STATES} states: {plan:?}"));
        }
    }
    let mut ends = vec![false; before.len()];
    while let Some(number) = done.pop() {
        if !std::mem::replace(&mut ends[number as usize], true) {
            done.extend(&before[number as usize]);
        }
    }
    match ends.iter().position(|ends| !ends) {
        Some(stuck) => Err(format!("somebody waits without end: {:?}", path(&came, stuck as u32))),
        None => Ok(Found { states: ends.len(), locked }),
    }
}

fn path(came: &[(u32, Option<Step>)], mut at: u32) -> Vec<Step> {
    let mut steps = Vec::new();
    while let (before, Some(step)) = came[at as usize] {
        steps.push(step);
        at = before;
    }
    steps.reverse();
    steps
}

/// Small clusters that are searched whole.
pub fn configurations() -> Vec<Plan> {
    let quiet = |machines: &[&[u8]]| Plan {
        machines: machines.iter().map(|threads| threads.to_vec()).collect(),
        mutexes: 1,
        clients_die: 0,
        hosts_restart: 0,
        machines_die: 0,
        leave: 0,
        semaphores: false,
        is_short: false,
    };
    let short = |machines: &[&[u8]]| Plan { is_short: true, ..quiet(machines) };
    let semaphores = |plan: Plan| Plan { semaphores: true, ..plan };
    vec![
        quiet(&[&[2], &[2]]),
        quiet(&[&[1, 1], &[1, 1]]),
        short(&[&[1], &[1], &[1]]),
        short(&[&[2], &[2, 1]]),
        Plan { mutexes: 2, ..short(&[&[2], &[2]]) },
        Plan { clients_die: 1, ..quiet(&[&[1], &[2]]) },
        Plan { clients_die: 1, ..short(&[&[1], &[1, 1]]) },
        Plan { hosts_restart: 1, ..quiet(&[&[1], &[1]]) },
        Plan { hosts_restart: 1, ..short(&[&[1], &[1, 1]]) },
        Plan { machines_die: 1, ..quiet(&[&[1], &[2]]) },
        Plan { leave: 1, ..quiet(&[&[1], &[2]]) },
        Plan { leave: 1, clients_die: 1, ..short(&[&[1], &[1]]) },
        Plan { hosts_restart: 1, clients_die: 1, ..short(&[&[1], &[1]]) },
        Plan { hosts_restart: 2, ..short(&[&[1], &[1]]) },
        Plan { hosts_restart: 1, machines_die: 1, ..short(&[&[1], &[1]]) },
        semaphores(quiet(&[&[1], &[1]])),
        semaphores(short(&[&[1], &[2, 1]])),
        semaphores(short(&[&[1], &[1], &[1]])),
        semaphores(Plan { clients_die: 1, ..short(&[&[1], &[1, 1]]) }),
        semaphores(Plan { hosts_restart: 1, ..short(&[&[1], &[1]]) }),
        semaphores(Plan { leave: 1, ..short(&[&[1], &[1]]) }),
        semaphores(Plan { leave: 1, hosts_restart: 1, ..short(&[&[1], &[1]]) }),
    ]
}

/// One run that follows from a seed: larger clusters, and more of everything that goes wrong.
pub fn schedule(seed: u64) -> Result<Found, String> {
    let mut dice = Dice::new(seed);
    let machines = (0..2 + dice.roll(4))
        .map(|_| (0..1 + dice.roll(3)).map(|_| 1 + dice.roll(4) as u8).collect())
        .collect();
    let mut plan = Plan {
        machines,
        mutexes: 1 + dice.roll(3) as u32,
        clients_die: dice.roll(3) as u8,
        hosts_restart: dice.roll(3) as u8,
        machines_die: dice.roll(3) as u8,
        leave: dice.roll(3) as u8,
        semaphores: dice.one_in(3),
        is_short: dice.one_in(4),
    };
    if plan.semaphores {
        plan.machines_die = 0; // what a lost machine's threads had taken is not given back
    }
    if plan.hosts_restart > 0 && plan.machines_die > 0 {
        plan.leave = 0; // see `NOT_SIMULATED`
    }
    let mut world = World::new(&plan);
    let mut taken = Vec::new();
    while !world.is_done() {
        let steps = world.steps();
        let rare = |step: &Step| {
            matches!(
                step,
                Step::ClientDies(_)
                    | Step::Looks(_)
                    | Step::Restart(_)
                    | Step::MachineDies(_)
                    | Step::Leave(_)
                    | Step::Over(..)
            )
        };
        let often: Vec<Step> = steps.iter().filter(|step| !rare(step)).copied().collect();
        let from = if often.is_empty() || dice.one_in(20) { &steps } else { &often };
        if from.is_empty() || taken.len() > LONGEST {
            return Err(format!("seed {seed}: somebody waits without end, after {taken:?}: {world:?}"));
        }
        let step = from[dice.roll(from.len())];
        taken.push(step);
        world.step(&step);
        if let Some(what) = world.violation() {
            return Err(format!("seed {seed}: {what}, after {taken:?}"));
        }
    }
    Ok(Found { states: taken.len(), locked: world.locked })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_interleaving_has_two_owners_or_waits_for_ever() {
        for plan in configurations() {
            let found = search(&plan).unwrap_or_else(|what| panic!("{plan:?}: {what}"));
            println!("{} states: {plan:?}", found.states);
            assert!(found.locked > 0);
        }
    }

    #[test]
    fn nor_has_a_schedule_with_everything_that_goes_wrong() {
        let locked: u32 =
            (0..20_000).map(|seed| schedule(seed).unwrap_or_else(|what| panic!("{what}")).locked).sum();
        assert!(locked > 20_000);
    }
}
