//! One run of an application: its activities are started, begin together, and what happens until all are done is counted.

use super::{Programs, Synchronisation, Task};
use crate::cluster::{Cluster, Traffic};
use crate::failure::{Doing, Failure, Result, failed};
use crate::processes::processor_time;
use crate::worker::Worker;
use serde_json::Value;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Objects that runs have made: each has a name of its own, because one that failed leaves it.
static MADE: AtomicU32 = AtomicU32::new(0);

/// What a run took, from when all activities were there until all were done.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Seconds.
    pub elapsed: f64,
    /// Seconds of a processor, of all activities.
    pub programs: f64,
    /// Seconds of a processor, of all hosts and keepers.
    pub servers: f64,
    /// What hosts said to each other.
    pub traffic: Traffic,
    /// Barriers, each counted once, and locks taken.
    pub synchronisations: u64,
    /// Page faults of all activities.
    pub faults: u64,
}

impl Run {
    /// Seconds of a processor, of all that took part.
    pub fn processor(&self) -> f64 {
        self.programs + self.servers
    }

    /// Bytes that hosts exchanged between two synchronisations, in the mean.
    pub fn bytes_between(&self) -> f64 {
        self.traffic.bytes as f64 / self.synchronisations.max(1) as f64
    }
}

/// Activities that one process started, or that are one.
struct Activities {
    worker: Worker,
    count: usize,
    /// Those that have said what they did. Only the first waits to be told how to go on.
    reports: Vec<Value>,
}

impl Activities {
    fn start(command: &mut Command, count: usize) -> Result<Activities> {
        Ok(Activities { worker: Worker::spawn(command)?, count, reports: Vec::new() })
    }

    fn await_word(&mut self, word: &str) -> Result<()> {
        loop {
            match self.worker.line()? {
                line if line == word => return Ok(()),
                line => self.reports.push(serde_json::from_str(&line).doing(format!("reading `{line}`"))?),
            }
        }
    }

    fn go_on(&mut self) -> Result<()> {
        self.worker.tell("")
    }

    fn await_reports(&mut self) -> Result<()> {
        while self.reports.len() < self.count {
            self.reports.push(serde_json::from_str(&self.worker.line()?)?);
        }
        Ok(())
    }
}

/// Begins all, and ends when all have checked what they did. `look` is asked before the first begins and when all are done.
fn through<T>(all: &mut [Activities], mut look: impl FnMut() -> Result<T>) -> Result<(Vec<Value>, T, T)> {
    all.iter_mut().try_for_each(|one| one.await_word("ready"))?;
    let before = look()?;
    all.iter_mut().try_for_each(Activities::go_on)?;
    all.iter_mut().try_for_each(|one| one.await_word("done"))?;
    let after = look()?;
    all.iter_mut().try_for_each(Activities::go_on)?;
    all.iter_mut().try_for_each(Activities::await_reports)?;
    Ok((all.iter_mut().flat_map(|one| std::mem::take(&mut one.reports)).collect(), before, after))
}

/// What the activities say of themselves.
fn run_of(task: &Task, reports: &[Value]) -> Result<Run> {
    let number = |report: &Value, name: &str| report[name].as_f64().unwrap_or(f64::NAN);
    let sum = |name: &str| reports.iter().map(|report| number(report, name)).sum::<f64>();
    let Some(first) = reports.iter().find(|report| report["activity"] == 0) else {
        return failed(format!("activity 0 of {} said nothing", task.words()));
    };
    if let Some(wrong) = reports.iter().find(|report| report["right"] != true) {
        return failed(format!("the result is wrong: {wrong}"));
    }
    Ok(Run {
        elapsed: number(first, "elapsed_s"),
        programs: sum("processor_s"),
        synchronisations: (number(first, "barriers") + sum("locks")) as u64,
        faults: sum("faults") as u64,
        ..Run::default()
    })
}

/// Adds what the programs said to a failure.
fn with_words<T>(programs: &Programs, result: Result<T>) -> Result<T> {
    match result {
        Err(Failure::Failed(why)) => failed(format!("{why}: {}", programs.said()?)),
        other => other,
    }
}

/// So many processes of this machine, in memory that they have of a common parent. With `touched` there is one, and it has
/// touched all pages before.
pub fn on_plain_memory(programs: &Programs, task: &Task, activities: usize, touched: bool) -> Result<Run> {
    let mut command = programs.command(task, "plain", activities, Synchronisation::Memory)?;
    if touched {
        command.arg("--touch");
    }
    let ran = Activities::start(&mut command, activities)
        .and_then(|one| through(&mut [one], || Ok(())))
        .and_then(|(reports, (), ())| run_of(task, &reports));
    with_words(programs, ran)
}

/// Where the activities are that share a strict object, and how they wait for each other.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The hosts; the first is the object's home.
    pub cluster: &'a Cluster,
    /// How many activities there are.
    pub activities: usize,
    /// All are processes of the first host; else each is on a host of its own.
    pub together: bool,
    /// How they wait.
    pub how: Synchronisation,
    /// There is one activity, and it has touched all pages before.
    pub touched: bool,
    /// What goes from host to host at once; none: as objects are created unless somebody chooses.
    pub page_bytes: Option<u64>,
}

impl<'a> Place<'a> {
    /// An activity on each of the first hosts, which wait by words in the memory.
    pub fn each_on_its_own(cluster: &'a Cluster, activities: usize) -> Place<'a> {
        Place {
            cluster,
            activities,
            together: false,
            how: Synchronisation::Memory,
            touched: false,
            page_bytes: None,
        }
    }

    /// The activities, started.
    fn start(&self, programs: &Programs, task: &Task, object: &str) -> Result<Vec<Activities>> {
        let start = |host: usize, count: usize| {
            let mut command = programs.command(task, object, self.activities, self.how)?;
            command.env("COMMONHOLD_HOST", self.cluster.host(host).state());
            if !self.together {
                command.args(["--index", &host.to_string()]);
            }
            if self.touched {
                command.arg("--touch");
            }
            if let Some(bytes) = self.page_bytes {
                command.args(["--page-size", &bytes.to_string()]);
            }
            self.cluster.network().at(host, || Activities::start(&mut command, count))
        };
        if self.together {
            return Ok(vec![start(0, self.activities)?]);
        }
        (0..self.activities).map(|host| start(host, 1)).collect()
    }
}

/// In a strict object.
pub fn on_hosts(programs: &Programs, task: &Task, place: &Place<'_>) -> Result<Run> {
    let object = format!("/bench/{}-{}", task.application.name(), MADE.fetch_add(1, Ordering::Relaxed));
    let hosts = place.cluster.hosts();
    let servers = hosts.iter().map(|host| host.processes()).collect::<Result<Vec<_>>>()?.concat();
    let clients = place.cluster.clients()?;
    let look = || {
        let traffic = Traffic::of(&clients, &object)?;
        let time: Duration = servers.iter().map(|pid| processor_time(*pid)).sum::<Result<_>>()?;
        Ok((traffic, time))
    };
    let ran = place.start(programs, task, &object).and_then(|mut all| through(&mut all, look)).and_then(
        |(reports, before, after)| {
            let (traffic, servers) = (after.0.since(before.0), (after.1 - before.1).as_secs_f64());
            Ok(Run { servers, traffic, ..run_of(task, &reports)? })
        },
    );
    with_words(programs, ran)
}
