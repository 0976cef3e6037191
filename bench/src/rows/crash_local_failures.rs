//! `crash.local_failures`: kill -9 at random instants, and nothing may be torn, lost, hung or wrongly clean.

use crate::context::Context;
use crate::crash::plan::TRIALS_IN_A_SEGMENT;
use crate::crash::tally::Tally;
use crate::failure::{Result, failed};
use crate::host::BenchHost;
use crate::measure::{median, most, percentile};
use crate::processes;
use crate::row::{Bar, Measured, Row, rounded};
use crate::worker::{json_lines, own_command};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// A segment that says nothing for so long hangs (its own deadlines are shorter).
const SILENCE: Duration = Duration::from_secs(100);
/// With so many failures the rest would only cost time.
const ENOUGH: u64 = 30;
/// So many segments in a row without a single trial: something is wrong with the bench or the machine.
const VAIN: u64 = 3;

/// The row.
pub struct CrashLocalFailures;

impl Row for CrashLocalFailures {
    fn id(&self) -> &'static str {
        "crash.local_failures"
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
        "kill -9 of client, host, keeper, or host and keeper at random instants during loops of writes and syncs: \
         what is torn, lost, hung or wrongly clean"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let wanted = context.trials.unwrap_or(context.pick(1000, 40));
        let mut score = Score::default();
        let (mut segment, mut vain) = (0, 0);
        while score.trials < wanted && score.tally.total() < ENOUGH {
            let before = score.trials;
            let count = TRIALS_IN_A_SEGMENT.min(wanted - before);
            run_segment(context, segment, count, &mut score)?;
            vain = if score.trials == before { vain + 1 } else { 0 };
            if vain == VAIN {
                return failed(format!("{VAIN} segments in a row came to no trial: see the messages above"));
            }
            segment += 1;
        }
        Ok(Measured::single(score.tally.total() as f64, score.trials as usize, score.detail(context, wanted)))
    }
}

/// What all trials came to.
#[derive(Default)]
struct Score {
    trials: u64,
    tally: Tally,
    victims: BTreeMap<String, u64>,
    recoveries: Vec<f64>,
    sync_errors: u64,
    failures: Vec<String>,
}

impl Score {
    fn detail(&self, context: &Context, wanted: u64) -> Value {
        let mut detail = self.tally.to_json();
        let more = json!({
            "trials": self.trials,
            "seed": context.seed,
            "victims": self.victims,
            "recovery_ms": {
                "p50": rounded(median(&self.recoveries)),
                "p99": rounded(percentile(&self.recoveries, 0.99)),
                "max": rounded(most(&self.recoveries)),
            },
            "syncs_tried_again": self.sync_errors,
            "failed_trials": self.failures,
            "stopped_early": self.trials < wanted,
        });
        if let (Some(all), Value::Object(more)) = (detail.as_object_mut(), more) {
            all.extend(more);
        }
        detail
    }

    fn note(&mut self, trial: u64, plan: &str, tally: Tally) {
        self.trials += 1;
        self.tally += tally;
        if tally.total() > 0 {
            self.failures.push(format!("trial {trial} ({plan}): {}", tally.to_json()));
        }
    }
}

/// A segment: a host, a judge and its writers, all new.
fn run_segment(context: &Context, segment: u64, count: u64, score: &mut Score) -> Result<()> {
    let directory = context.directory.join(format!("segment-{segment}"));
    std::fs::create_dir(&directory)?;
    let host = BenchHost::start(&directory.join("state"))?;
    let arguments = [
        host.state().to_string_lossy().into_owned(),
        directory.to_string_lossy().into_owned(),
        context.seed.to_string(),
        score.trials.to_string(),
        count.to_string(),
        segment.to_string(),
    ];
    let mut command = own_command("crash-trials", &arguments)?;
    let mut judge = command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0).spawn()?;
    let lines = json_lines(&mut judge)?;
    let failures = score.tally.total();
    follow(&lines, count, score);
    processes::kill_group(judge.id());
    let _ = judge.wait();
    if score.tally.total() > failures {
        keep(context, &directory, segment)?;
    }
    drop(host);
    let _ = std::fs::remove_dir_all(&directory);
    Ok(())
}

/// Copies what a failed segment left (log, journal, stored object, ledger) to where it outlives this run.
fn keep(context: &Context, directory: &Path, segment: u64) -> Result<()> {
    let place = context.directory.with_file_name(format!("crash-{}-segment-{segment}", context.seed));
    let _ = std::fs::remove_dir_all(&place);
    copy_files(directory, &place)?;
    eprintln!("commonhold-bench: what segment {segment} left is in {}", place.display());
    Ok(())
}

fn copy_files(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_files(&entry.path(), &to.join(entry.file_name()))?;
        } else if kind.is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Notes what the judge says, until it is done, dead or silent.
fn follow(lines: &Receiver<Value>, count: u64, score: &mut Score) {
    let last = score.trials + count;
    let mut under_way: Option<(u64, String)> = None;
    let mut sync_errors = 0;
    while score.trials < last {
        match lines.recv_timeout(SILENCE) {
            Ok(line) => match (line["begins"].as_u64(), line["ended"].as_u64()) {
                (Some(trial), _) => {
                    *score.victims.entry(line["victim"].as_str().unwrap_or("").to_owned()).or_default() += 1;
                    under_way = Some((trial, line["plan"].as_str().unwrap_or("").to_owned()));
                }
                (_, Some(trial)) => {
                    let plan = under_way.take().map_or(String::new(), |(_, plan)| plan);
                    let tally = Tally::from_json(&line["tally"]);
                    score.note(trial, &plan, tally);
                    score.recoveries.extend(line["recovery_ms"].as_f64());
                    sync_errors = line["sync_errors"].as_u64().unwrap_or(0);
                    if tally.hung > 0 {
                        break;
                    }
                }
                _ => {}
            },
            Err(why) => {
                // A judge that is silent hangs in a call of its own; one that is gone died as a client.
                let hung = why == std::sync::mpsc::RecvTimeoutError::Timeout;
                if let Some((trial, plan)) = under_way.take() {
                    score.note(
                        trial,
                        &plan,
                        Tally { hung: hung.into(), died: (!hung).into(), ..Tally::default() },
                    );
                }
                break;
            }
        }
    }
    score.sync_errors += sync_errors;
}
