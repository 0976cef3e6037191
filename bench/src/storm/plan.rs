//! Which host is struck how and when: chosen by the seed and the trial's number alone, so that any trial can be had again.

use crate::context::Random;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

/// Hosts of a cluster. Host 0 keeps the list.
pub const HOSTS: usize = 3;
/// The host of them that is the object's home, at first.
pub const HOME: usize = 1;

/// How the object of a cluster is shared. It lies on a file, and what is lost serves again as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scene {
    /// Its home schedules it.
    Central,
    /// All hosts that have it do.
    Forwarding,
    /// Its home schedules it; who is the home moves, and the registry is in etcd.
    CentralMoving,
    /// All hosts that have it do, likewise.
    ForwardingMoving,
}

impl Scene {
    /// They take turns; those with homes that move where there is etcd.
    pub fn of_life(number: u64, with_etcd: bool) -> Scene {
        let all = [Scene::Central, Scene::Forwarding, Scene::CentralMoving, Scene::ForwardingMoving];
        all[(number % if with_etcd { 4 } else { 2 }) as usize]
    }

    /// Whether another host becomes the home.
    pub fn moves(self) -> bool {
        matches!(self, Scene::CentralMoving | Scene::ForwardingMoving)
    }

    /// Whether all hosts that have the object schedule it.
    pub fn is_forwarded(self) -> bool {
        matches!(self, Scene::Forwarding | Scene::ForwardingMoving)
    }

    /// How long a lease is, in seconds: of etcd two are the least.
    pub fn lease(self) -> u64 {
        if self.moves() { 2 } else { 1 }
    }

    /// As the client that makes the object is told.
    pub fn word(self) -> &'static str {
        match self {
            Scene::Central => "central",
            Scene::Forwarding => "forwarding",
            Scene::CentralMoving => "central-moving",
            Scene::ForwardingMoving => "forwarding-moving",
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
    /// A member of etcd is killed, and started again.
    KillMember,
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
    /// Not to that host, but to whoever is the home.
    pub at_home: bool,
    /// How long a pause or a flicker takes, or until what was killed is started again.
    pub lasting: Duration,
}

impl Plan {
    /// The plan of that trial. Without wires nobody is cut off.
    pub fn new(seed: u64, trial: u64, wires: bool, scene: Scene) -> Plan {
        use Strike::{Cut, Flicker, KillBoth, KillClient, KillHost, KillKeeper, KillMachine, KillMember};
        use Strike::{Pause, Stop};
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
            KillMember,
        ];
        let kinds = all.len() - usize::from(!scene.moves());
        let mut strike = all[random.random_range(0..kinds)];
        if !wires && matches!(strike, Flicker | Cut) {
            strike = Stop;
        }
        let mut host = random.random_range(0..HOSTS);
        if strike == KillMachine && host == HOME && !scene.moves() {
            // All that was not synced dies with it, whoever has read it: nothing is left to judge.
            host = 2;
        }
        let short = Duration::from_millis(random.random_range(0..scene.lease() * 400));
        let longer =
            Duration::from_secs(scene.lease()) + Duration::from_millis(random.random_range(100..500));
        // A home that is there again before its lease ends does not move.
        let soon = random.random_bool(if scene.moves() { 0.2 } else { 0.6 });
        let at_home = scene.moves() && random.random_bool(0.5);
        let lasting = match strike {
            Cut => longer,
            KillBoth | KillMachine if !soon => longer,
            _ => short,
        };
        Plan { delay, strike, host, at_home, lasting }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn plans_repeat_and_cover_all_strikes() {
        let plans = |seed, wires, scene| -> Vec<Plan> {
            (0..300).map(|trial| Plan::new(seed, trial, wires, scene)).collect()
        };
        let strikes = |plans: &[Plan]| plans.iter().map(|plan| plan.strike).collect::<BTreeSet<_>>().len();
        let all = plans(11, true, Scene::Central);
        assert_eq!(all, plans(11, true, Scene::Central));
        assert_ne!(all[0], plans(12, true, Scene::Central)[0]);
        assert_eq!(strikes(&all), 9);
        assert_eq!(all.iter().map(|plan| plan.host).collect::<BTreeSet<_>>().len(), HOSTS);
        assert_eq!(strikes(&plans(11, false, Scene::Central)), 7);
        let moving = plans(11, true, Scene::CentralMoving);
        assert_eq!(strikes(&moving), 10);
        assert!(moving.iter().any(|plan| plan.strike == Strike::KillMachine && plan.at_home));
        assert!(!all.iter().any(|plan| plan.at_home));
    }

    #[test]
    fn homes_move_where_there_is_etcd() {
        let moving = |with_etcd| (0..8).filter(|life| Scene::of_life(*life, with_etcd).moves()).count();
        assert_eq!((moving(true), moving(false)), (4, 0));
    }
}
