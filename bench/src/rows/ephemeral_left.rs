//! `ephemeral.left`: what programs leave behind that are killed while they use ephemeral objects.

use crate::context::Context;
use crate::failure::Result;
use crate::host::BenchHost;
use crate::row::{Bar, Measured, Row};
use crate::worker::Worker;
use commonhold::Host;
use rand::RngExt;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// What programs leave behind goes within this time.
const GOES_WITHIN: Duration = Duration::from_secs(20);
const AT_ONCE: usize = 3;

/// The row.
pub struct Left;

impl Row for Left {
    fn id(&self) -> &'static str {
        "ephemeral.left"
    }

    fn unit(&self) -> &'static str {
        "things"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn about(&self) -> &'static str {
        "names, files of the host, and memory and sockets that host and keeper have open, left by 1,000 programs that are killed at \
         random instants while they make, open, map and drop ephemeral objects"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let host = bench.connect()?;
        drop(start(bench.state(), 0)?); // what a host makes for the first of them stays
        std::thread::sleep(Duration::from_secs(2));
        let before = there(&bench, &host)?;
        let kills = context.trials.unwrap_or(context.pick(1000, 30));
        let mut random = context.random(3);
        let mut running = Vec::new();
        for _ in 0..kills {
            if running.len() == AT_ONCE {
                let mut worker: Worker = running.remove(0);
                worker.kill();
            }
            running.push(start(bench.state(), random.random())?);
            std::thread::sleep(Duration::from_micros(random.random_range(0..20_000)));
        }
        running.iter_mut().for_each(Worker::kill);
        drop(running);
        let until = Instant::now() + GOES_WITHIN;
        let left = loop {
            let left = more(&before, there(&bench, &host)?);
            if left.is_empty() || Instant::now() > until {
                break left;
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        let number: usize = left.values().sum();
        Ok(Measured::single(number as f64, kills as usize, json!({ "kills": kills, "left": left })))
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(1200)
    }
}

fn start(state: &Path, seed: u64) -> Result<Worker> {
    let (state, seed) = (state.to_string_lossy(), seed.to_string());
    Worker::start("ephemeral-client", &[&*state, &seed])
}

/// What there is of each kind.
fn there(bench: &BenchHost, host: &Host) -> Result<BTreeMap<String, usize>> {
    let mut there = BTreeMap::new();
    let mut count = |what: String| *there.entry(what).or_insert(0) += 1;
    for entry in host.list("/")? {
        count(format!("name {}", entry.name().map_or("-", |name| name.as_str())));
    }
    for folder in ["live", "spill", "journal"] {
        let Ok(entries) = std::fs::read_dir(bench.state().join(folder)) else { continue };
        for entry in entries {
            count(format!("file {folder}/{}", entry?.file_name().to_string_lossy()));
        }
    }
    for pid in bench.processes()? {
        for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
            let Ok(target) = std::fs::read_link(entry.path()) else { continue };
            let target = target.to_string_lossy();
            // Without numbers of inodes, which are others each time.
            let kind = target.split([':', ' ']).take(2).collect::<Vec<_>>().join(":");
            if target.starts_with("socket:") {
                count(format!("socket of {pid}"));
            } else if kind.starts_with("/memfd") || kind.starts_with("anon_inode") {
                count(format!("{kind} of {pid}"));
            }
        }
    }
    Ok(there)
}

/// What is there more than before.
fn more(before: &BTreeMap<String, usize>, now: BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    let more = |(what, number): (String, usize)| {
        let more = number.saturating_sub(before.get(&what).copied().unwrap_or(0));
        (more > 0).then_some((what, more))
    };
    now.into_iter().filter_map(more).collect()
}
