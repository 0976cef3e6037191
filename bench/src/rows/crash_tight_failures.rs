//! `crash.tight_failures`: processes add without a pause while hosts are struck, and no addition is
//! lost that no stated promise allows to be.

use crate::context::Context;
use crate::failure::{Result, failed};
use crate::measure::{median, most, percentile};
use crate::row::{Bar, Measured, Row, rounded};
use crate::tight::life::{Life, Outcome};
use crate::tight::plan::{LEASE, Plan, Scene};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Clusters that are struck at the same time.
const AT_ONCE: usize = 2;
/// With so many trials that failed the rest would only cost time.
const ENOUGH: u64 = 60;

/// The row.
pub struct CrashTightFailures;

impl Row for CrashTightFailures {
    fn id(&self) -> &'static str {
        "crash.tight_failures"
    }

    fn unit(&self) -> &'static str {
        "failures"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(2400)
    }

    fn about(&self) -> &'static str {
        "1,000 strikes (client, host, keeper, both, a whole machine, stop and go on, stop for good, restart, upgrade) while \
         processes read, add and write without a pause: additions that are lost, or read too late, though no stated \
         promise allows it; objects strict (central, forwarding), explicit and local, freezable and not"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let wanted = context.trials.unwrap_or(context.pick(1000, 32));
        let in_a_life = context.pick(25, 4);
        let score = Mutex::new(Score::default());
        let (next, life) = (AtomicU64::new(0), AtomicU64::new(0));
        let begin = || -> Result<()> {
            while next.load(Ordering::SeqCst) < wanted && lock(&score).failed_trials < ENOUGH {
                let number = life.fetch_add(1, Ordering::SeqCst);
                run_life(context, number, in_a_life, (&next, wanted), &score)?;
            }
            Ok(())
        };
        // Each trial mostly waits: for leases, for the keeper, for whoever was struck.
        std::thread::scope(|scope| {
            let lives: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(begin)).collect();
            lives.into_iter().try_for_each(|life| life.join().unwrap_or_else(|_| failed("a life panicked")))
        })?;
        let score = score.into_inner().unwrap_or_else(PoisonError::into_inner);
        if score.additions == 0 || score.syncs == 0 {
            return failed("nothing was added, or nothing synced");
        }
        Ok(Measured::single(
            score.failures.len() as f64,
            score.trials as usize,
            score.detail(context, wanted),
        ))
    }
}

/// What all trials came to.
#[derive(Default)]
struct Score {
    trials: u64,
    strikes: BTreeMap<String, u64>,
    recoveries: Vec<f64>,
    /// The longest recovery of each kind of trial, in milliseconds.
    longest: BTreeMap<String, f64>,
    additions: u64,
    syncs: u64,
    allowed: BTreeMap<String, u64>,
    failures: Vec<String>,
    failed_trials: u64,
    network: String,
}

impl Score {
    fn note(&mut self, scene: Scene, plan: &Plan, outcome: &Outcome) {
        let name = format!("{scene:?}: {:?}", plan.strike);
        self.trials += 1;
        if let Some(time) = outcome.recovery.map(|time| time.as_secs_f64() * 1e3) {
            self.recoveries.push(time);
            let longest = self.longest.entry(name.clone()).or_default();
            *longest = longest.max(rounded(time));
        }
        *self.strikes.entry(name.clone()).or_default() += 1;
        if outcome.allowed > 0 {
            *self.allowed.entry(name).or_default() += outcome.allowed;
        }
    }

    fn fail(&mut self, what: String) {
        eprintln!("commonhold-bench: {what}");
        self.failures.push(what);
    }

    fn detail(&self, context: &Context, wanted: u64) -> Value {
        json!({
            "trials": self.trials,
            "seed": context.seed,
            "strikes": self.strikes,
            "lives_at_once": AT_ONCE,
            "lease_s": LEASE,
            "network": self.network,
            "additions": self.additions,
            "syncs": self.syncs,
            "findings_that_a_promise_allows": self.allowed,
            "recovery_ms": {
                "p50": rounded(median(&self.recoveries)),
                "p99": rounded(percentile(&self.recoveries, 0.99)),
                "max": rounded(most(&self.recoveries)),
                "longest": self.longest,
            },
            "failed_trials": self.failed_trials,
            "failures": self.failures,
            "stopped_early": self.trials < wanted,
        })
    }
}

fn lock(score: &Mutex<Score>) -> MutexGuard<'_, Score> {
    score.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A cluster, from its start until its trials are done or one of them fails. It takes the next
/// trials that nobody has taken: what each does follows from the seed, its number and the life's
/// object.
fn run_life(
    context: &Context,
    number: u64,
    trials: u64,
    (next, wanted): (&AtomicU64, u64),
    score: &Mutex<Score>,
) -> Result<()> {
    let directory = context.directory.join(format!("life-{number}"));
    std::fs::create_dir(&directory)?;
    let scene = Scene::of_life(number);
    let mut life = Life::begin(&directory, scene)?;
    let mut failed = false;
    for _ in 0..trials {
        let trial = next.fetch_add(1, Ordering::SeqCst);
        if trial >= wanted {
            break;
        }
        let plan = Plan::new(context.seed, trial, scene);
        let outcome = life.trial(plan).unwrap_or_else(|failure| Outcome {
            failures: vec![format!("the trial could not go on: {failure}")],
            ..Outcome::default()
        });
        let mut score = lock(score);
        score.note(scene, &plan, &outcome);
        failed = !outcome.failures.is_empty();
        score.failed_trials += u64::from(failed);
        let about = format!("seed {}, trial {trial} ({scene:?}, {plan:?})", context.seed);
        outcome.failures.into_iter().for_each(|what| score.fail(format!("{about}: {what}")));
        if failed {
            break; // the rest is begun anew
        }
    }
    if !failed {
        let about = format!("seed {}, the end of life {number} ({scene:?})", context.seed);
        let found = life.end()?;
        failed = !found.is_empty();
        found.into_iter().for_each(|what| lock(score).fail(format!("{about}: {what}")));
    }
    {
        let ([additions, syncs], mut score) = (life.done(), lock(score));
        (score.additions, score.syncs) = (score.additions + additions, score.syncs + syncs);
        score.network = life.network();
    }
    if failed {
        keep_logs(context, &directory, number, scene)?;
    }
    drop(life);
    let _ = std::fs::remove_dir_all(&directory); // what is left goes with the run's folder
    Ok(())
}

/// Copies the logs of a failed life to where they outlive this run.
fn keep_logs(context: &Context, directory: &Path, number: u64, scene: Scene) -> Result<()> {
    // Beside the folder of this run, which goes with it.
    let Some(base) = context.directory.ancestors().nth(2) else {
        return failed("a row's folder lies in no other");
    };
    let place = base.join(format!("tight-{}-life-{number}", context.seed));
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place)?;
    for host in 0..scene.hosts() {
        let log = directory.join("cluster").join(format!("state-{host}")).join("log");
        std::fs::copy(log, place.join(format!("log-{host}")))?;
    }
    std::fs::copy(directory.join("ledger"), place.join("ledger"))?;
    eprintln!("commonhold-bench: what life {number} left is in {}", place.display());
    Ok(())
}
