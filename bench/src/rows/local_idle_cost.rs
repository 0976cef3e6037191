//! `local.idle_cost`: what a host costs while nothing happens.

use crate::context::Context;
use crate::failure::Result;
use crate::objects;
use crate::processes::{processor_ticks, processor_time};
use crate::row::{Bar, Measured, Row, rounded};
use crate::worker::Worker;
use serde_json::json;
use std::ffi::OsStr;
use std::time::{Duration, Instant};

const CLIENTS: usize = 10;
const BYTES: usize = 1 << 20;

/// The row.
pub struct IdleCost;

impl Row for IdleCost {
    fn id(&self) -> &'static str {
        "local.idle_cost"
    }

    fn unit(&self) -> &'static str {
        "percent of a core"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(0.2))
    }

    fn about(&self) -> &'static str {
        "processor time of host and keeper with 10 clients attached to controlled objects and nothing faulting"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let mut clients = Vec::new();
        for n in 0..CLIENTS {
            let name = format!("/bench/idle-{n}");
            drop(objects::controlled(&host, &name, BYTES)?);
            clients.push(Worker::start("idle-client", &[bench.state().as_os_str(), OsStr::new(&name)])?);
        }
        let processes = bench.processes()?;
        std::thread::sleep(Duration::from_secs(1));
        let ticks_before = sum(&processes, processor_ticks)?;
        let start = Instant::now();
        let mut windows = Vec::new();
        for _ in 0..context.pick(3, 1) {
            windows.push(percent(&processes, Duration::from_secs(context.pick(10, 5)))?);
        }
        let ticks = sum(&processes, processor_ticks)?.saturating_sub(ticks_before);
        let detail = json!({
            "clients": CLIENTS,
            "windows_percent": windows.iter().map(|w| rounded(*w)).collect::<Vec<_>>(),
            "percent_by_utime_and_stime": rounded(100.0 * ticks.as_secs_f64() / start.elapsed().as_secs_f64()),
            "measured_by": "the kernel's clocks of host and keeper",
        });
        drop(clients);
        Ok(Measured::median(&windows, detail))
    }
}

fn sum(processes: &[u32], cost: impl Fn(u32) -> Result<Duration>) -> Result<Duration> {
    processes.iter().map(|pid| cost(*pid)).sum()
}

fn percent(processes: &[u32], window: Duration) -> Result<f64> {
    let before = sum(processes, processor_time)?;
    let start = Instant::now();
    std::thread::sleep(window);
    let used = sum(processes, processor_time)?.saturating_sub(before);
    Ok(100.0 * used.as_secs_f64() / start.elapsed().as_secs_f64())
}
