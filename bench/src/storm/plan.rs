//! Which host is struck how and when: chosen by the seed and the trial's number alone, so that any trial can be had again.

use crate::context::Random;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

/// Hosts of a cluster. Host 0 keeps the list.
pub const HOSTS: usize = 3;
/// The host of them that is the object's home.
pub const HOME: usize = 1;
/// Seconds of a lease.
pub const LEASE: u64 = 1;

/// How the object of a cluster is shared. Both lie on a file, and what is lost serves again as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scene {
    /// Its home schedules it.
    Central,
    /// All hosts that have it do.
    Forwarding,
}

impl Scene {
    /// They take turns.
    pub fn of_life(number: u64) -> Scene {
        if number.is_multiple_of(2) { Scene::Central } else { Scene::Forwarding }
    }

    /// As the client that makes the object is told.
    pub fn word(self) -> &'static str {
        match self {
            Scene::Central => "central",
            Scene::Forwarding => "forwarding",
        }
    }
}

/// What is done to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Strike {
    /// One of its clients is killed.
    KillClient,
    /// Its process is killed.
    KillHost,
    /// Its keeper is killed.
    KillKeeper,
    /// Both are killed, and its clients live on.
    KillBoth,
    /// Host, keeper and clients are killed, as when the machine dies.
    KillMachine,
    /// Its process is stopped for less than the lease.
    Pause,
    /// Its process is stopped for good: the keeper acts.
    Stop,
    /// Its wire is down for less than the lease.
    Flicker,
    /// Its wire is down for longer than the lease.
    Cut,
}

/// What one trial does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Until the strike.
    pub delay: Duration,
    /// What.
    pub strike: Strike,
    /// To whom.
    pub host: usize,
    /// How long a pause or a flicker takes, or until what was killed is started again.
    pub lasting: Duration,
}

impl Plan {
    /// The plan of that trial. Without wires nobody is cut off.
    pub fn new(seed: u64, trial: u64, wires: bool) -> Plan {
        use Strike::{Cut, Flicker, KillBoth, KillClient, KillHost, KillKeeper, KillMachine, Pause, Stop};
        let mut random = Random::seed_from_u64(seed ^ (trial + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let delay = Duration::from_millis(random.random_range(0..60));
        let all = [
            KillClient,
            KillHost,
            KillHost,
            KillHost,
            KillKeeper,
            KillBoth,
            KillBoth,
            KillMachine,
            KillMachine,
            Stop,
            Stop,
            Pause,
            Flicker,
            Flicker,
            Cut,
            Cut,
        ];
        let mut strike = all[random.random_range(0..all.len())];
        if !wires && matches!(strike, Flicker | Cut) {
            strike = Stop;
        }
        let mut host = random.random_range(0..HOSTS);
        if strike == KillMachine && host == HOME {
            // All that was not synced dies with it, whoever has read it: nothing is left to judge.
            host = 2;
        }
        let short = Duration::from_millis(random.random_range(0..LEASE * 400));
        let longer = Duration::from_secs(LEASE) + Duration::from_millis(random.random_range(100..500));
        let soon = random.random_bool(0.6);
        let lasting = match strike {
            Cut => longer,
            KillBoth | KillMachine if !soon => longer,
            _ => short,
        };
        Plan { delay, strike, host, lasting }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn plans_repeat_and_cover_all_strikes() {
        let plans: Vec<Plan> = (0..300).map(|trial| Plan::new(11, trial, true)).collect();
        assert_eq!(plans, (0..300).map(|trial| Plan::new(11, trial, true)).collect::<Vec<_>>());
        assert_ne!(plans[0], Plan::new(12, 0, true));
        let strikes = |plans: &[Plan]| plans.iter().map(|plan| plan.strike).collect::<BTreeSet<_>>();
        assert_eq!(strikes(&plans).len(), 9);
        assert_eq!(plans.iter().map(|plan| plan.host).collect::<BTreeSet<_>>().len(), HOSTS);
        let without: Vec<Plan> = (0..300).map(|trial| Plan::new(11, trial, false)).collect();
        assert_eq!(strikes(&without).len(), 7);
    }
}
