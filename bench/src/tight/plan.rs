//! Which object a life has, and which host is struck how and when: chosen by the seed and the
//! trial's number alone.

use crate::context::Random;
use rand::{RngExt, SeedableRng};
use std::fmt::Debug;
use std::time::Duration;

/// The object of a life. All but one lie on a file and are synced now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scene {
    /// Strict, scheduled by its home.
    Central,
    /// Strict, scheduled by all hosts.
    Forwarding,
    /// Strict, scheduled by its home, and freezable.
    CentralFreezable,
    /// Seen by other hosts after a sync.
    Explicit,
    /// That, freezable.
    ExplicitFreezable,
    /// Of one host.
    Local,
    /// Of one host, freezable.
    LocalFreezable,
    /// Of one host, and of memory alone.
    LocalAnonymous,
}

impl Scene {
    /// All, in the order of their lives.
    pub const ALL: [Scene; 8] = [
        Scene::Central,
        Scene::Forwarding,
        Scene::CentralFreezable,
        Scene::Explicit,
        Scene::Local,
        Scene::ExplicitFreezable,
        Scene::LocalFreezable,
        Scene::LocalAnonymous,
    ];

    /// That of a life: all in turn, or those that `COMMONHOLD_TIGHT_SCENES` names.
    pub fn of_life(number: u64) -> Scene {
        let scenes = named(&Scene::ALL, "COMMONHOLD_TIGHT_SCENES");
        scenes[number as usize % scenes.len()]
    }

    /// As a writer is told.
    pub fn word(self) -> String {
        format!("{self:?}")
    }

    /// That of a word.
    pub fn of_word(word: &str) -> Option<Scene> {
        Scene::ALL.into_iter().find(|scene| scene.word() == word)
    }

    /// Whether a page has one writer at a time, wherever it is.
    pub fn is_strict(self) -> bool {
        matches!(self, Scene::Central | Scene::Forwarding | Scene::CentralFreezable)
    }

    /// Whether other hosts have no part in it.
    pub fn is_local(self) -> bool {
        matches!(self, Scene::Local | Scene::LocalFreezable | Scene::LocalAnonymous)
    }

    /// Whether writers sync it so that all is of one instant.
    pub fn is_freezable(self) -> bool {
        matches!(self, Scene::CentralFreezable | Scene::ExplicitFreezable | Scene::LocalFreezable)
    }

    /// Hosts of a life.
    pub fn hosts(self) -> usize {
        if self.is_local() { 1 } else { 3 }
    }

    /// The host that creates the object.
    pub fn home(self) -> usize {
        if self.is_local() { 0 } else { 1 }
    }

    /// Writers of each host.
    pub fn each(self) -> usize {
        if self.is_local() { 3 } else { 2 }
    }
}

/// Seconds of a lease.
pub const LEASE: u64 = 1;

/// What is done to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Strike {
    /// One of its writers is killed.
    Client,
    /// Its process is killed.
    Host,
    /// Its keeper is killed.
    Keeper,
    /// Both are killed, and its writers live on.
    Both,
    /// Host, keeper and writers are killed.
    Machine,
    /// Its process is stopped, and goes on before its lease ends.
    Pause,
    /// Its process is stopped until its keeper kills it.
    Stop,
    /// `host restart`.
    Restart,
    /// `host upgrade`, by the same program: another host and another keeper.
    Upgrade,
}

impl Strike {
    /// Whether nothing may be lost by it, whatever the object is, as long as no lease ends
    /// (`docs/LEASES.md`).
    pub fn takes_nothing(self) -> bool {
        !matches!(self, Strike::Both | Strike::Machine | Strike::Stop)
    }
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
    /// How long a pause takes, or until what was killed is started again.
    pub lasting: Duration,
}

/// Of all, those whose names the variable has, between commas: to have a failure again with less around it.
fn named<T: Copy + Debug>(all: &[T], variable: &str) -> Vec<T> {
    let Ok(names) = std::env::var(variable) else { return all.to_vec() };
    let is_named = |one: &&T| names.split(',').any(|name| name == format!("{one:?}"));
    let found: Vec<T> = all.iter().filter(is_named).copied().collect();
    if found.is_empty() { all.to_vec() } else { found }
}

impl Plan {
    /// The plan of that trial.
    pub fn new(seed: u64, trial: u64, scene: Scene) -> Plan {
        use Strike::{Both, Client, Host, Keeper, Machine, Pause, Restart, Stop, Upgrade};
        let mut random = Random::seed_from_u64(seed ^ (trial + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let delay = Duration::from_millis(random.random_range(0..60));
        let all = [Client, Host, Host, Keeper, Both, Both, Pause, Restart, Upgrade, Machine, Stop];
        // Nobody misses a host that is alone; and what lies in memory alone goes with its machine.
        let left_out = match scene {
            Scene::LocalAnonymous => 2,
            scene if scene.is_local() => 1,
            _ => 0,
        };
        let named = named(&all[..all.len() - left_out], "COMMONHOLD_TIGHT_STRIKES");
        let strike = named[random.random_range(0..named.len())];
        let host = random.random_range(0..scene.hosts());
        let lasting = Duration::from_millis(random.random_range(0..LEASE * 400));
        Plan { delay, strike, host, lasting }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn plans_repeat_and_cover_all_strikes() {
        let plans = |seed, scene| (0..300).map(|trial| Plan::new(seed, trial, scene)).collect::<Vec<Plan>>();
        let strikes = |scene| plans(11, scene).iter().map(|plan| plan.strike).collect::<BTreeSet<_>>().len();
        assert_eq!(plans(11, Scene::Central), plans(11, Scene::Central));
        assert_ne!(plans(11, Scene::Central)[0], plans(12, Scene::Central)[0]);
        assert_eq!([Scene::Forwarding, Scene::Local, Scene::LocalAnonymous].map(strikes), [9, 8, 7]);
        assert!(Scene::ALL.iter().all(|scene| Scene::of_word(&scene.word()) == Some(*scene)));
    }
}
