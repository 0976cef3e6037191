//! Mutexes that hosts share (`commonhold-tokens`): every interleaving of small clusters, and schedules from seeds, with clients,
//! processes of hosts and whole machines that die, hosts that come and go.
//!
//! The words in memory are real, too: threads lock and unlock by `commonhold-primitives`, one call a step, and the host takes words
//! and gives them by the same calls as `crates/host` does.

mod acts;
mod deaths;
mod memory;
mod search;
mod world;

pub use search::{Found, configurations, schedule, search};
pub use world::{Plan, Step, World};

/// What no run has, said beside every result.
pub const NOT_SIMULATED: &[&str] = &[
    "a thread that is stopped within a call (every interleaving of two: crates/primitives/tests)",
    "a process of a lost host that goes on, or that follows later than it is waited for",
    "a home whose role moves",
    "a machine that is lost, a home whose process is replaced, and a host that leaves, all within seconds: then it may not be said \
     that an owner died (seed 10516 with `leave`)",
    "of monitors: a machine that is lost",
];
