//! `remote.idle_cost`: what the hosts of a cluster cost while nothing is shared.

use crate::cluster::Cluster;
use crate::context::Context;
use crate::failure::Result;
use crate::faults::Touch;
use crate::processes::processor_time;
use crate::row::{Bar, Measured, Row, rounded};
use crate::view::PAGE;
use serde_json::json;
use std::time::{Duration, Instant};

const HOSTS: usize = 3;
const PAGES: u32 = 64;

/// The row.
pub struct RemoteIdleCost;

impl Row for RemoteIdleCost {
    fn id(&self) -> &'static str {
        "remote.idle_cost"
    }

    fn unit(&self) -> &'static str {
        "percent of a core"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(0.5))
    }

    fn about(&self) -> &'static str {
        "processor time of the dearest host of three, its keeper included, connected by TLS while nothing is shared"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let cluster = Cluster::start(context, HOSTS)?;
        let window = Duration::from_secs(context.pick(10, 3));
        std::thread::sleep(Duration::from_secs(1));
        let mut windows = Vec::new();
        for _ in 0..context.pick(3, 1) {
            windows.push(dearest(&cluster, window)?);
        }
        // Not the value: hosts that have shared, and hold pages of each other's, but touch none.
        let mut sharers = (0..HOSTS).map(|number| cluster.sharer(number)).collect::<Result<Vec<_>>>()?;
        let pages: Vec<u32> = (0..PAGES).collect();
        for (number, sharer) in sharers.iter_mut().enumerate() {
            match number {
                0 => sharer.create("/bench/idle", PAGES as usize * PAGE, None)?,
                _ => sharer.open("/bench/idle")?,
            }
            sharer.touch(Touch::Write, None, &pages)?;
        }
        std::thread::sleep(Duration::from_secs(1));
        let shared = dearest(&cluster, window)?;
        let detail = json!({
            "hosts": HOSTS,
            "windows_percent": windows.iter().map(|w| rounded(*w)).collect::<Vec<_>>(),
            "with_an_object_shared_and_untouched": rounded(shared),
            "network": cluster.network().words(),
            "measured_by": "the kernel's clocks of host and keeper",
        });
        Ok(Measured::median(&windows, detail))
    }
}

/// Percent of a core that the dearest host takes.
fn dearest(cluster: &Cluster, window: Duration) -> Result<f64> {
    let processes = cluster.hosts().iter().map(|host| host.processes()).collect::<Result<Vec<_>>>()?;
    let cost = || -> Result<Vec<Duration>> {
        processes.iter().map(|own| own.iter().map(|pid| processor_time(*pid)).sum()).collect()
    };
    // What asking them who they are has cost is over.
    std::thread::sleep(Duration::from_millis(200));
    let (before, start) = (cost()?, Instant::now());
    std::thread::sleep(window);
    let (after, time) = (cost()?, start.elapsed());
    let used = after.iter().zip(&before).map(|(after, before)| after.saturating_sub(*before));
    Ok(used.max().unwrap_or_default().as_secs_f64() * 100.0 / time.as_secs_f64())
}
