//! The rows' side of a campaign.

use super::campaign::VARIABLE;
use crate::context::Context;
use crate::failure::{Result, failed};
use crate::processes;
use crate::row::Measured;
use crate::worker::{json_lines, own_command};
use commonhold_points::Board;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// A campaign that says nothing for so long hangs: its own bounds are shorter.
const SILENCE: Duration = Duration::from_secs(200);
/// With so many failures the rest would only cost time.
const ENOUGH: u64 = 30;

/// What a campaign said.
#[derive(Default)]
struct Said {
    rounds: u64,
    failures: u64,
    injected: u64,
    by: BTreeMap<String, u64>,
    failed: Vec<Value>,
    points: Vec<Value>,
}

/// Where a campaign leaves the board for the other row.
const BOARD: &str = "inject-board";

/// Calls without a point, and points that did not do each of error, delay and kill in the last campaign of this program.
pub fn points_missed(context: &Context) -> Result<Measured> {
    let kept = context.shared(BOARD);
    if !is_of_this_program(&kept) {
        failures(context)?;
    }
    let passed = Board::open(&kept)?.points();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/"));
    let found = commonhold_points::scan::scan(root)?;
    let mut missed = BTreeMap::new();
    for name in &found.points {
        let ends = format!(" {name}");
        let here = passed.iter().filter(|point| point.name.ends_with(&ends));
        let [error, delay, before, after] = here.fold([0; 4], |all: [u64; 4], point| {
            std::array::from_fn(|sort| all[sort] + point.injected[sort])
        });
        let sorts = [("error", error), ("delay", delay), ("kill", before + after)];
        let not: Vec<_> = sorts.into_iter().filter(|(_, count)| *count == 0).map(|(sort, _)| sort).collect();
        if !not.is_empty() {
            missed.insert(name.clone(), not);
        }
    }
    let count = missed.values().map(Vec::len).sum::<usize>() + found.bare.len();
    let detail = json!({ "points": found.points.len(), "calls_without": found.bare, "not_reached": missed });
    Ok(Measured::single(count as f64, found.points.len(), detail))
}

fn is_of_this_program(kept: &Path) -> bool {
    // A campaign whose age cannot be told is not of this program: it is run again.
    let changed = |path: &Path| std::fs::metadata(path).and_then(|found| found.modified()).ok();
    let own = std::env::current_exe().ok().and_then(|own| changed(&own));
    own.zip(changed(kept)).is_some_and(|(own, kept)| kept > own)
}

/// Runs a campaign to its end, or until there is enough.
pub fn failures(context: &Context) -> Result<Measured> {
    let wanted = context.trials.unwrap_or(context.pick(20_000, 500));
    let path = context.directory.join("board");
    Board::create(&path)?;
    let arguments =
        [context.directory.to_string_lossy().into_owned(), context.seed.to_string(), wanted.to_string()];
    let mut command = own_command("inject-campaign", &arguments)?;
    command.env(VARIABLE, &path).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let mut campaign = command.spawn()?;
    let said = follow(&json_lines(&mut campaign)?);
    processes::kill_group(campaign.id());
    let status = campaign.wait()?;
    std::fs::copy(&path, context.shared(BOARD))?;
    let Some(mut said) = said else { return failed(format!("a campaign hangs ({status})")) };
    if said.rounds == 0 {
        return failed(format!("a campaign came to no round ({status}): see the messages above"));
    }
    if said.points.is_empty() {
        said.points = Board::open(&path)?.points().iter().map(super::campaign::describe).collect();
    }
    if said.failures == 0 && said.injected < wanted {
        return failed(format!("only {} of {wanted} faults were injected ({status})", said.injected));
    }
    let detail = json!({
        "injected": said.injected,
        "seed": context.seed,
        "rounds": said.rounds,
        "by": said.by,
        "failed_rounds": said.failed,
        "points": said.points,
        "stopped_early": said.injected < wanted,
    });
    Ok(Measured::single(said.failures as f64, said.injected as usize, detail))
}

/// None: nothing was heard for too long.
fn follow(lines: &Receiver<Value>) -> Option<Said> {
    let mut said = Said::default();
    loop {
        let line = match lines.recv_timeout(SILENCE) {
            Ok(line) => line,
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return Some(said),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => return None,
        };
        if let Some(points) = line["points"].as_array() {
            said.points = points.clone();
            return Some(said);
        }
        said.rounds += 1;
        said.injected = line["injected"].as_u64().unwrap_or(said.injected);
        said.failures += line["failures"].as_u64().unwrap_or(0);
        *said.by.entry(format!("{} {}", line["of"], line["sort"]).replace('"', "")).or_default() += 1;
        if line["failures"] != 0 {
            eprintln!("commonhold-bench: {line}");
            said.failed.push(line);
        }
        if said.failures >= ENOUGH {
            return Some(said);
        }
    }
}
