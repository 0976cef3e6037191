//! Who is killed when: chosen by the seed and the trial's number alone, so that any trial can be had again.

use crate::context::Random;
use rand::{RngExt, SeedableRng};
use std::fmt;
use std::time::Duration;

/// Whom a trial kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Victim {
    /// One of the writers.
    Client,
    /// The host.
    Host,
    /// The keeper.
    Keeper,
    /// Host and keeper, one right after the other.
    Both,
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Victim::Client => "client",
            Victim::Host => "host",
            Victim::Keeper => "keeper",
            Victim::Both => "host and keeper",
        })
    }
}

/// What the writers write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// An atomic object on a file, all of it in memory.
    Atomic,
    /// An atomic object twice as large as its budget.
    AtomicSmallBudget,
    /// An anonymous object sixteen times as large as its budget.
    Anonymous,
}

/// Trials that one set of processes goes through.
pub const TRIALS_IN_A_SEGMENT: u64 = 20;

impl Scene {
    /// The scene of a segment of trials.
    pub fn of_segment(segment: u64) -> Scene {
        [Scene::Atomic, Scene::Anonymous, Scene::AtomicSmallBudget][(segment % 3) as usize]
    }
}

/// What one trial does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// From the writers at work to the kill.
    pub delay: Duration,
    /// Who is killed.
    pub victim: Victim,
    /// Which writer, if a client is.
    pub writer: usize,
    /// How much later the successor of a killed host is killed too: in the middle of taking over.
    pub again: Option<Duration>,
}

impl Plan {
    /// The plan of that trial.
    pub fn new(seed: u64, trial: u64) -> Plan {
        let mut random = Random::seed_from_u64(seed ^ (trial + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let delay = Duration::from_micros(random.random_range(0..30_000));
        let victim = match random.random_range(0..10) {
            0..3 => Victim::Client,
            3..6 => Victim::Host,
            6..8 => Victim::Keeper,
            _ => Victim::Both,
        };
        let writer = random.random_range(0..super::ledger::WRITERS);
        let again = Duration::from_micros(random.random_range(0..30_000));
        let again = (victim == Victim::Host && random.random_bool(0.3)).then_some(again);
        Plan { delay, victim, writer, again }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn plans_repeat_and_cover_all_victims() {
        let plans: Vec<Plan> = (0..200).map(|trial| Plan::new(11, trial)).collect();
        assert_eq!(plans, (0..200).map(|trial| Plan::new(11, trial)).collect::<Vec<_>>());
        assert_ne!(plans[0], Plan::new(12, 0));
        assert_eq!(plans.iter().map(|plan| plan.victim).collect::<BTreeSet<_>>().len(), 4);
        assert!(plans.iter().any(|plan| plan.again.is_some()));
    }
}
