//! `faults`: a program is run, and how many page faults each of its mappings had is told.

use super::interrupts::Interrupts;
use crate::arguments::faults::Faults;
use crate::failure::{Done, Failure};
use crate::output::{answer, columns, count};
use crate::place::HostPlace;
use crate::units::format_size;
use commonhold::Error;
use commonhold_faults::{Mapping, Report, Verdict};
use rustix::process::Signal;
use serde::Serialize;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

/// What is not known.
const NOT_KNOWN: u8 = 2;
/// So many mappings that are not wired are told without --all, those with most faults.
const TOLD: usize = 20;

/// Runs a program to its end.
pub fn faults(place: &HostPlace, arguments: &Faults) -> Done {
    let report = run(place, arguments).map_err(|error| Failure::WithCode(vec![error], NOT_KNOWN))?;
    answer(arguments.form.json, &View::new(&report, arguments.all), |view| view.for_people(arguments.all))?;
    match report.exit_code() {
        0 => Ok(()),
        code => Err(Failure::WithCode(Vec::new(), code)),
    }
}

fn run(place: &HostPlace, arguments: &Faults) -> Result<Report, Error> {
    let (name, words) = arguments.program.split_first().ok_or_else(|| Error::invalid("which program?"))?;
    let interrupts = Interrupts::watch()?;
    let out = std::io::stderr().as_fd().try_clone_to_owned();
    let out = out.map_err(|error| Error::io("making the program's standard output", &error))?;
    let mut command = Command::new(name);
    command.args(words).stdout(Stdio::from(out));
    if let Some(host) = place.named() {
        let host = std::path::absolute(host);
        command
            .env("COMMONHOLD_HOST", host.map_err(|error| Error::io("finding the state directory", &error))?);
    }
    commonhold_faults::count(&mut command, || {
        // The terminal's own it has.
        interrupts.came().and_then(Signal::from_named_raw).filter(|signal| *signal != Signal::INT)
    })
}

/// A mapping.
#[derive(Serialize)]
struct Row {
    faults: u64,
    /// Of those, within system calls.
    in_system_calls: u64,
    wired: bool,
    start: String,
    end: String,
    bytes: u64,
    inode: u64,
    name: String,
}

/// The answer.
#[derive(Serialize)]
struct View {
    /// none, faults, not-known, or nothing-wired.
    wired: &'static str,
    wired_faults: u64,
    /// None: a signal ended it.
    status: Option<i32>,
    signal: Option<i32>,
    faults: u64,
    in_system_calls: u64,
    /// Whether those were counted.
    counts_system_calls: bool,
    elsewhere: u64,
    lost: u64,
    /// Programs that could not be watched.
    not_watched: Vec<String>,
    still_running: u64,
    mappings: Vec<Row>,
}

impl Row {
    fn new(mapping: &Mapping) -> Row {
        Row {
            faults: mapping.faults.all,
            in_system_calls: mapping.faults.in_calls,
            wired: mapping.is_wired(),
            start: format!("{:#x}", mapping.range.start),
            end: format!("{:#x}", mapping.range.end),
            bytes: mapping.range.end - mapping.range.start,
            inode: mapping.inode,
            name: name(&mapping.name).to_owned(),
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.faults.to_string(),
            self.in_system_calls.to_string(),
            self.start.clone(),
            format_size(self.bytes),
            if self.wired { "wired" } else { "" }.to_owned(),
            self.name.clone(),
        ]
    }
}

/// What people call it.
fn name(kernels: &str) -> &str {
    match kernels {
        "//anon" => "anonymous memory",
        memory => {
            memory.strip_suffix(" (deleted)").filter(|name| name.starts_with("/memfd:")).unwrap_or(memory)
        }
    }
}

impl View {
    fn new(report: &Report, all: bool) -> View {
        let (wired, wired_faults) = match report.verdict() {
            Verdict::NoFaults => ("none", 0),
            Verdict::Faults(faults) => ("faults", faults),
            Verdict::NotKnown => ("not-known", 0),
            Verdict::NothingWired => ("nothing-wired", 0),
        };
        let mut mappings: Vec<Row> = report.mappings.iter().map(Row::new).collect();
        mappings.retain(|row| all || row.wired || row.faults > 0);
        mappings.sort_by_key(|row| (!row.wired, std::cmp::Reverse(row.faults)));
        View {
            wired,
            wired_faults,
            status: report.status.code(),
            signal: report.status.signal(),
            faults: report.faults.all,
            in_system_calls: report.faults.in_calls,
            counts_system_calls: report.counts_calls,
            elsewhere: report.elsewhere.all,
            lost: report.lost,
            not_watched: report.unseen.clone(),
            still_running: report.still_run,
            mappings,
        }
    }

    fn for_people(&self, all: bool) -> String {
        let heads = ["FAULTS", "IN CALLS", "ADDRESS", "SIZE", "", "MAPPING"];
        let wired = self.mappings.iter().filter(|row| row.wired).count();
        let told = if all { self.mappings.len() } else { self.mappings.len().min(wired + TOLD) };
        let (told, others) = self.mappings.split_at(told);
        let mut text = columns(Some(&heads), told.iter().map(Row::cells).collect(), &[0, 1, 3]);
        if !text.is_empty() {
            text.push('\n');
        }
        if !others.is_empty() {
            let faults = count(others.iter().map(|row| row.faults).sum(), "fault");
            text += &format!("{faults} in {} (--all)\n", count(others.len() as u64, "more mapping"));
        }
        text += &self.lines().join("\n");
        text
    }

    /// What there is to say of all of it.
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{}; the program {}", count(self.faults, "fault"), self.ended())];
        if self.elsewhere > 0 {
            lines.push(format!("{} where no mapping is known", count(self.elsewhere, "fault")));
        }
        if self.still_running > 0 {
            lines.push(format!(
                "processes that still run, and are not counted further: {}",
                self.still_running
            ));
        }
        if !self.counts_system_calls {
            lines.push(
                "faults within system calls are not counted: for those, run it as root, or as root: sysctl \
                 kernel.perf_event_paranoid=1"
                    .to_owned(),
            );
        }
        if self.lost > 0 {
            lines.push(format!(
                "{} could not be told in time, and are in no mapping's number: run it as root, which has larger buffers, or \
                 with less beside it",
                count(self.lost, "record")
            ));
        }
        if !self.not_watched.is_empty() {
            let programs = self.not_watched.join(", ");
            lines.push(format!(
                "not watched, for they gained rights when they began: {programs}: run it as root"
            ));
        }
        lines.push(match self.wired {
            "none" => "Wired memory: no fault.".to_owned(),
            "faults" => format!("WIRED MEMORY HAD {}.", count(self.wired_faults, "FAULT").to_uppercase()),
            "not-known" => "Wired memory: not known, for not all faults are.".to_owned(),
            _ => "Wired memory: none was mapped.".to_owned(),
        });
        lines
    }

    fn ended(&self) -> String {
        match (self.status, self.signal) {
            (Some(status), _) => format!("ended with status {status}"),
            (None, Some(signal)) => format!("was ended by signal {signal}"),
            (None, None) => "ended".to_owned(),
        }
    }
}
