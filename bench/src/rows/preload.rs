//! `preload.…`: what the library that stands before the C library costs programs that need none of it.

use crate::context::Context;
use crate::failure::{Doing, Result, failed, skipped};
use crate::installed::find_or_install;
use crate::measure::{alternate, seconds};
use crate::row::{Bar, Measured, Row};
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A real program.
pub struct CostRatio;
/// The start of the smallest.
pub struct StartRatio;

/// Starts of a program that are one measurement.
const STARTS: usize = 50;
/// Commits of the history that is shown.
const COMMITS: usize = 5000;

/// Runs a program with the library, or without.
fn run(library: Option<&Path>, program: &Path, words: &[&str], place: &Path) -> Result<()> {
    let mut command = Command::new(program);
    command.args(words).current_dir(place).stdin(Stdio::null()).stdout(Stdio::null());
    command.env_remove("LD_PRELOAD").env("COMMONHOLD_RUN", "system-v,share-page-tables");
    if let Some(library) = library {
        command.env("LD_PRELOAD", library);
    }
    let status = command.status().doing(format!("starting {}", program.display()))?;
    if status.success() { Ok(()) } else { failed(format!("{}: {status}", program.display())) }
}

fn library() -> Result<PathBuf> {
    commonhold_preload::library().or_else(|error| skipped(format!("{error}: ./run build makes them")))
}

impl Row for CostRatio {
    fn id(&self) -> &'static str {
        "preload.cost_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.03))
    }

    fn about(&self) -> &'static str {
        "`git log --stat` of a made history of 5,000 commits, run with the library of `commonhold run` before it ÷ without"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let Some(git) = find_or_install(&["git"], "git") else { return skipped("git is not installed") };
        let library = library()?;
        let commits = context.pick(COMMITS, 100);
        let place = context.new_directory("history")?;
        make_history(&git, &place, commits)?;
        let once = |library| seconds(|| run(library, &git, &["log", "--stat"], &place));
        once(None)?;
        let pairs = alternate(context.pick(61, 3), |_| once(Some(&library)), |_| once(None))?;
        let detail = json!({ "commits": commits, "ms": pairs.summary(1e3) });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

/// A history in which each commit changes one line of one file.
fn make_history(git: &Path, place: &Path, commits: usize) -> Result<()> {
    run(None, git, &["init", "-q", "."], place)?;
    let mut import = Command::new(git);
    import.args(["fast-import", "--quiet", "--force"]).current_dir(place).stdin(Stdio::piped());
    let mut child = import.spawn().doing("starting git fast-import")?;
    let mut stream = String::new();
    for number in 0..commits {
        let file = number % 50;
        let content = format!("{number}\nthe file of number {file}\n");
        stream += &format!(
            "commit HEAD\ncommitter Nobody <nobody@example.invalid> {number} +0000\ndata 6\nchange\nM 100644 inline {file}\n\
             data {}\n{content}\n",
            content.len()
        );
    }
    child.stdin.take().map_or(Ok(()), |mut input| input.write_all(stream.as_bytes()))?;
    let status = child.wait()?;
    if status.success() { Ok(()) } else { failed(format!("git fast-import: {status}")) }
}

impl Row for StartRatio {
    fn id(&self) -> &'static str {
        "preload.start_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.15))
    }

    fn about(&self) -> &'static str {
        "start to end of /usr/bin/true with the library of `commonhold run` before it ÷ without"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let library = library()?;
        let starts = |library| {
            seconds(|| {
                (0..STARTS)
                    .try_for_each(|_| run(library, Path::new("/usr/bin/true"), &[], &context.directory))
            })
        };
        starts(None)?;
        let pairs = alternate(context.pick(61, 3), |_| starts(Some(&library)), |_| starts(None))?;
        let detail = json!({ "us": pairs.summary(1e6 / STARTS as f64) });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}
