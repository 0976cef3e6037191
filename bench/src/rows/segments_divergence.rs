//! `segments.divergence`: ten million random operations beside a model that knows every page.

use crate::context::Context;
use crate::failure::Result;
use crate::row::{Bar, LONGEST, Measured, Row};
use commonhold_engines::model::machine::{self, MEMORY, On};
use commonhold_engines::model::{arena, operations};
use commonhold_engines::{Accesses, Checked, Descriptors, Engine, Windows};
use commonhold_segments::{NextBucket, Placement, Rules, ScannedBuckets, Tlsf};
use serde_json::json;
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Duration;

/// The row.
pub struct Divergence;

/// One run beside the model: so many operations, from a seed.
struct Run {
    name: String,
    run: Box<dyn Fn(u64, u64) -> io::Result<()> + Send>,
}

/// An arena, and a machine of each preset, with one placement.
fn of_placement<P: Placement + Clone + 'static>(placement: &str, slack: f64) -> Vec<Run> {
    let arena = Run {
        name: format!("arena, {placement}"),
        run: Box::new(move |operations, seed| {
            arena::run::<P>(operations, seed, slack);
            Ok(())
        }),
    };
    let machines = Rules::PRESETS.map(|rules| Run {
        name: format!("machine, {placement}, {}", rules.name),
        run: Box::new(move |operations, seed| {
            machine::run::<P>(On::Rules(rules), operations, seed);
            Ok(())
        }),
    });
    std::iter::once(arena).chain(machines).collect()
}

/// A machine of each preset on one engine.
fn on_engine<E: Engine + 'static>(name: &str, engine: fn(Rules) -> io::Result<E>) -> Vec<Run> {
    let run = |rules: Rules| Run {
        name: format!("machine on {name}, {}", rules.name),
        run: Box::new(move |operations, seed| {
            machine::run::<Tlsf>(On::Engine(Box::new(engine(rules)?)), operations, seed);
            Ok(())
        }),
    };
    Rules::PRESETS.map(run).into()
}

fn runs() -> Vec<Run> {
    let mut runs = of_placement::<Tlsf>("TLSF", 1.05);
    runs.extend(of_placement::<ScannedBuckets>("buckets scanned", 1.0));
    runs.extend(of_placement::<NextBucket>("next bucket", 2.0));
    runs.extend(on_engine("a checking table", |rules| Checked::new(rules, MEMORY)));
    runs.extend(on_engine("windows", |rules| Windows::new(rules, MEMORY, Accesses::ByKernel)));
    runs.extend(on_engine("x86 descriptors", |rules| Descriptors::new(rules, MEMORY)));
    runs
}

/// What came of the runs.
#[derive(Default)]
struct Outcome {
    agreed: Vec<String>,
    wrong: Vec<String>,
    left_out: Vec<String>,
}

/// Makes the runs on all processors.
fn make(runs: Vec<Run>, operations: u64, seed: u64) -> io::Result<Outcome> {
    let (left, outcome) = (Mutex::new(runs), Mutex::new(Outcome::default()));
    let work = || {
        while let Some(run) = lock(&left).pop() {
            let result = catch_unwind(AssertUnwindSafe(|| (run.run)(operations, seed)));
            let mut outcome = lock(&outcome);
            match result {
                Ok(Ok(())) => outcome.agreed.push(run.name),
                Ok(Err(why)) => outcome.left_out.push(format!("{}: {why}", run.name)),
                Err(panic) => outcome.wrong.push(format!("{}: {}", run.name, said(&*panic))),
            }
        }
    };
    let threads = std::thread::available_parallelism()?.get();
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    Ok(outcome.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

impl Row for Divergence {
    fn id(&self) -> &'static str {
        "segments.divergence"
    }

    fn unit(&self) -> &'static str {
        "divergences"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn limit(&self) -> Duration {
        LONGEST
    }

    fn about(&self) -> &'static str {
        "10,000,000 random operations in lockstep with a model of every page: arenas of all placements, machines of all presets \
         and placements, with crashes, and machines on the three engines; COMMONHOLD_SEGMENTS_OPERATIONS says how many"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let runs = runs();
        let each = operations(context.pick(10_000_000, 10_000)).div_ceil(runs.len() as u64);
        let count = runs.len();
        let outcome = make(runs, each, context.seed)?;
        let detail = json!({
            "operations": each * (count - outcome.left_out.len()) as u64,
            "operations_of_a_run": each,
            "agreed": outcome.agreed,
            "left_out": outcome.left_out,
            "wrong": outcome.wrong,
        });
        Ok(Measured::single(outcome.wrong.len() as f64, outcome.agreed.len() + outcome.wrong.len(), detail))
    }
}
