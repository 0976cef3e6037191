//! `crash.cluster_failures`: hosts under load are killed, stopped and cut off, and nobody reads what is old, nothing synced
//! is lost, and nobody waits for ever.

use crate::cluster::Cluster;
use crate::context::Context;
use crate::failure::{Failure, Result, failed};
use crate::measure::{median, most, percentile};
use crate::row::{Bar, Measured, Row, rounded};
use crate::storm::life::Life;
use crate::storm::plan::{HOSTS, Plan, Scene};
use crate::storm::tally::Tally;
use crate::striking::BOUND;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Trials that one cluster goes through.
const TRIALS_IN_A_LIFE: u64 = 25;
/// Clusters that are struck at the same time.
const AT_ONCE: usize = 3;
/// With so many failures the rest would only cost time.
const ENOUGH: u64 = 30;

/// The row.
pub struct CrashClusterFailures;

impl Row for CrashClusterFailures {
    fn id(&self) -> &'static str {
        "crash.cluster_failures"
    }

    fn unit(&self) -> &'static str {
        "failures"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn limit(&self) -> Duration {
        crate::row::LONGEST
    }

    fn about(&self) -> &'static str {
        "kills, stops and partitions of real hosts under load: acknowledged syncs that are lost, stale reads, and accesses \
         beyond the bound"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let wanted = context.trials.unwrap_or(context.pick(500, 25));
        let no_homes_move_because = why_not_with_etcd(context)?;
        let storm = Storm { context, wanted, with_etcd: no_homes_move_because.is_none() };
        let score = Mutex::new(Score { no_homes_move_because, ..Score::default() });
        let (next, life) = (AtomicU64::new(0), AtomicU64::new(0));
        // Each trial mostly waits: for leases, for the keeper, for whoever was struck.
        std::thread::scope(|scope| {
            let lives: Vec<_> = (0..AT_ONCE)
                .map(|_| {
                    scope.spawn(|| {
                        while next.load(Ordering::SeqCst) < wanted && lock(&score).tally.total() < ENOUGH {
                            storm.run_life(life.fetch_add(1, Ordering::SeqCst), &next, &score)?;
                        }
                        Ok(())
                    })
                })
                .collect();
            lives.into_iter().try_for_each(|life| life.join().unwrap_or_else(|_| failed("a life panicked")))
        })?;
        let score = score.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Measured::single(score.tally.total() as f64, score.trials as usize, score.detail(context, wanted)))
    }
}

/// What all trials came to.
#[derive(Default)]
struct Score {
    trials: u64,
    tally: Tally,
    strikes: BTreeMap<String, u64>,
    recoveries: Vec<f64>,
    operations: u64,
    moves: u64,
    network: String,
    failures: Vec<String>,
    no_homes_move_because: Option<String>,
}

impl Score {
    fn detail(&self, context: &Context, wanted: u64) -> Value {
        let mut detail = self.tally.to_json();
        let more = json!({
            "trials": self.trials,
            "seed": context.seed,
            "strikes": self.strikes,
            "hosts": HOSTS,
            "clusters_at_once": AT_ONCE,
            "lease_s": Scene::Central.lease(),
            "lease_s_with_etcd": Scene::CentralMoving.lease(),
            "no_homes_move_because": self.no_homes_move_because,
            "bound_s": BOUND.as_secs(),
            "network": self.network,
            "operations_checked": self.operations,
            "homes_that_moved": self.moves,
            "recovery_ms": {
                "p50": rounded(median(&self.recoveries)),
                "p99": rounded(percentile(&self.recoveries, 0.99)),
                "max": rounded(most(&self.recoveries)),
            },
            "failed_trials": self.failures,
            "stopped_early": self.trials < wanted,
        });
        if let (Some(all), Value::Object(more)) = (detail.as_object_mut(), more) {
            all.extend(more);
        }
        detail
    }
}

fn lock(score: &Mutex<Score>) -> MutexGuard<'_, Score> {
    score.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all lives have in common.
struct Storm<'a> {
    context: &'a Context,
    wanted: u64,
    with_etcd: bool,
}

impl Storm<'_> {
    /// A cluster, from its start until its trials are done or one of them fails. It takes the next trials that nobody has
    /// taken: what each does follows from the seed and its number.
    fn run_life(&self, number: u64, next: &AtomicU64, score: &Mutex<Score>) -> Result<()> {
        let Storm { context, wanted, with_etcd } = *self;
        let directory = context.directory.join(format!("life-{number}"));
        std::fs::create_dir(&directory)?;
        let scene = Scene::of_life(number, with_etcd);
        let mut life = Life::begin(&directory, scene)?;
        let (wires, network) = life.network();
        lock(score).network = network;
        for _ in 0..TRIALS_IN_A_LIFE {
            let trial = next.fetch_add(1, Ordering::SeqCst);
            if trial >= wanted {
                break;
            }
            let plan = Plan::new(context.seed, trial, wires, scene);
            let outcome = life.trial(plan)?;
            let mut score = lock(score);
            *score.strikes.entry(format!("{scene:?}: {:?}", plan.strike)).or_default() += 1;
            score.recoveries.extend(outcome.recovery.map(|time| time.as_secs_f64() * 1e3));
            score.tally += outcome.tally;
            score.trials += 1;
            if outcome.tally.total() > 0 {
                let failure = format!(
                    "seed {}, trial {trial} ({scene:?}, {plan:?}): {}",
                    context.seed,
                    outcome.tally.to_json()
                );
                eprintln!("commonhold-bench: {failure}");
                score.failures.push(failure);
                keep(context, &directory, number, &life)?;
                break; // the rest is begun anew
            }
        }
        lock(score).operations += life.operations();
        lock(score).moves += life.moves();
        drop(life);
        let _ = std::fs::remove_dir_all(&directory);
        Ok(())
    }
}

/// Why there can be no clusters with their registry in etcd, if so.
fn why_not_with_etcd(context: &Context) -> Result<Option<String>> {
    let directory = context.new_directory("etcd")?;
    match Cluster::start_with_etcd(directory, 1, Scene::CentralMoving.lease()) {
        Ok(_) => Ok(None),
        Err(Failure::Skipped(why)) => {
            eprintln!("commonhold-bench: no homes move here: {why}");
            Ok(Some(why))
        }
        Err(other) => Err(other),
    }
}

/// Copies the notes and the logs of a failed life to where they outlive this run. (A host's own files are large and sparse.)
fn keep(context: &Context, directory: &Path, number: u64, life: &Life) -> Result<()> {
    let place = context.directory.with_file_name(format!("storm-{}-life-{number}", context.seed));
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place)?;
    for host in 0..HOSTS {
        let log = directory.join("cluster").join(format!("state-{host}")).join("log");
        std::fs::copy(log, place.join(format!("log-{host}")))?;
    }
    for entry in std::fs::read_dir(directory)?.flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("notes-") {
            std::fs::copy(entry.path(), place.join(name))?;
        }
    }
    std::fs::write(place.join("losses"), life.troubles())?;
    eprintln!("commonhold-bench: what life {number} left is in {}", place.display());
    Ok(())
}
