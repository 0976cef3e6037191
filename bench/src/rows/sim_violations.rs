//! `sim.violations`: a million random schedules.

use crate::context::Context;
use crate::failure::{Doing, Result};
use crate::row::{Bar, Measured, Row};
use commonhold_simulator::schedule::{KINDS, NOT_SIMULATED, Schedule, run_many};
use serde_json::json;
use std::time::Duration;

/// The row.
pub struct SimViolations;

impl Row for SimViolations {
    fn id(&self) -> &'static str {
        "sim.violations"
    }

    fn unit(&self) -> &'static str {
        "violations"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn limit(&self) -> Duration {
        crate::row::LONGEST
    }

    fn about(&self) -> &'static str {
        "random schedules in virtual time: delays, reordering, crashes, restarts, partitions, slow and stopped hosts, mixed \
         page sizes, beside a sequential memory; COMMONHOLD_SCHEDULES says how many"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let asked = std::env::var("COMMONHOLD_SCHEDULES").ok();
        let schedules = match asked {
            Some(text) => text.parse().doing("COMMONHOLD_SCHEDULES must be a number")?,
            None => context.pick(1_000_000, 15_000),
        };
        let kinds = KINDS.len() as u64;
        let each = u64::div_ceil(schedules, kinds);
        let threads = std::thread::available_parallelism()?.get() as u64;
        let (sum, wrong) = run_many(context.seed, each, threads);
        let seeds = context.seed..context.seed + each;
        let crowds =
            KINDS.map(|kind| seeds.clone().filter(|seed| Schedule { kind, seed: *seed }.is_crowd()).count());
        let detail = json!({
            "schedules": each * kinds,
            "of_200_hosts_or_more": crowds.iter().sum::<usize>(),
            "of_each": KINDS.map(|kind| format!("{kind:?}").to_lowercase()),
            "faults_injected": sum.injected,
            "accesses": sum.accesses,
            "accesses_that_ended_in_an_error_after_a_loss": sum.failed,
            "steps": sum.steps,
            "first_seed": context.seed,
            "not_simulated": NOT_SIMULATED,
            "run_one_again": "COMMONHOLD_SCHEDULE='KIND SEED' cargo test -p commonhold-simulator random_schedules",
            "wrong": wrong.iter().take(10).collect::<Vec<_>>(),
        });
        Ok(Measured::single(wrong.len() as f64, (each * kinds) as usize, detail))
    }
}
