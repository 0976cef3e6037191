//! Runs rows one after the other, each in a process and a folder of its own, and cleans up after each.

use crate::arguments::Run;
use crate::failure::{Doing, Failure, Result, failed};
use crate::origin::Origin;
use crate::row::{Row, to_json};
use crate::worker::own_command;
use crate::{host, pages, rows, tables};
use serde_json::{Value, json};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Runs what is asked for; whether nothing went wrong (a bar that is missed is not wrong, but told).
pub fn run(asked: &Run) -> Result<bool> {
    let (origin, mut chosen) = (Origin::here(), choose(&asked.ids)?);
    if let (Some(out), true) = (&asked.out, asked.resume) {
        let known = tables::read(out)?;
        chosen.retain(|row| !known.get(row.id()).is_some_and(|line| origin.is_of(line)));
    }
    // Rows that need the same may leave it here for each other.
    let base = tempfile::Builder::new().prefix("run-").tempdir_in(base_directory()?)?;
    let mut good = true;
    for row in &chosen {
        if std::io::stderr().is_terminal() {
            eprintln!("{} …", row.id());
        }
        let begun = Instant::now();
        let mut line = match in_own_process(*row, asked, base.path()) {
            Ok(line) => line,
            Err(failure) => to_json(*row, &Err(failure)),
        };
        origin.note(&mut line);
        line["seconds"] = json!(begun.elapsed().as_secs());
        line["quick"] = json!(asked.quick);
        good &= line["failed"] != true;
        if asked.json {
            crate::worker::say(&line.to_string())?;
        } else {
            crate::worker::say(&pages::one_line(*row, &line))?;
        }
        // At once: whoever stops the run has what it got so far.
        if let Some(out) = &asked.out {
            pages::write(out, *row, &line).doing(format!("writing pages to {}", out.display()))?;
        }
    }
    Ok(good)
}

fn choose(ids: &[String]) -> Result<Vec<&'static dyn Row>> {
    let all = rows::all();
    if ids.iter().any(|id| id == "all") {
        return Ok(all);
    }
    ids.iter()
        .map(|id| match all.iter().find(|row| row.id() == id) {
            Some(row) => Ok(*row),
            None => failed(format!("there is no row `{id}`: see `commonhold-bench list`")),
        })
        .collect()
}

/// The folder below which all others are made: on a real disk, because a sync to a tmpfs measures nothing.
fn base_directory() -> Result<PathBuf> {
    let named = std::env::var_os("COMMONHOLD_BENCH_DIR").filter(|value| !value.is_empty());
    let base = named.map_or_else(|| PathBuf::from("target/bench-state"), PathBuf::from);
    std::fs::create_dir_all(&base).doing(format!("making {}", base.display()))?;
    let base = base.canonicalize()?;
    const TMPFS: i64 = 0x0102_1994;
    if rustix::fs::statfs(&base)?.f_type as i64 == TMPFS {
        return failed(format!(
            "{} is a tmpfs: name a folder on a disk in COMMONHOLD_BENCH_DIR",
            base.display()
        ));
    }
    Ok(base)
}

/// How much longer a row may take that measures as long as its paper.
const PAPER: u32 = 24;

fn in_own_process(row: &dyn Row, asked: &Run, base: &Path) -> Result<Value> {
    let directory = tempfile::Builder::new().prefix("row-").tempdir_in(base)?;
    let arguments = [
        row.id().to_owned(),
        directory.path().to_string_lossy().into_owned(),
        asked.seed.to_string(),
        match (asked.quick, asked.paper) {
            (true, _) => "quick",
            (_, true) => "paper",
            _ => "full",
        }
        .to_owned(),
        asked.trials.map_or(String::new(), |trials| trials.to_string()),
    ];
    let mut child = own_command("row", &arguments)?.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let limit = if asked.paper { row.limit() * PAPER } else { row.limit() };
    let said = wait(&mut child, limit);
    // A row that went wrong may have left its host.
    let cleaned = host::kill_left_over(directory.path());
    let line = said?;
    cleaned?;
    serde_json::from_str(&line).doing("reading the row's line")
}

/// What a row's process said, when it has ended; at its limit it is killed.
fn wait(child: &mut Child, limit: Duration) -> Result<String> {
    let Some(mut output) = child.stdout.take() else { return failed("a row without output") };
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return failed(format!("it took longer than {limit:?} and was stopped"));
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let text = match reader.join() {
        Ok(text) => text?,
        Err(_) => return failed("reading a row's output"),
    };
    match text.lines().last() {
        Some(line) if status.success() => Ok(line.to_owned()),
        _ => Err(Failure::Failed(format!("the row's process ended early ({status})"))),
    }
}
