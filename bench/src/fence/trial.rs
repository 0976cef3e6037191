//! One trial: pages at a sharer, its host is struck, and a process there notes until when it could
//! read them.

use super::strike::{SHARER, Strike, lease_that_begins};
use crate::cluster::Cluster;
use crate::context::Context;
use crate::failure::{Result, failed};
use crate::row::rounded;
use crate::worker::Worker;
use commonhold_sys::clock;
use serde_json::{Value, json};
use std::time::Duration;

const NAME: &str = "/bench/fenced";
const HOME: usize = 0;

/// Who wrote the pages that the sharer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Had {
    /// The home: the sharer has copies.
    Read,
    /// The sharer: it has the newest version.
    Written,
}

impl Had {
    /// Its name in the detail.
    pub fn name(self) -> &'static str {
        match self {
            Had::Read => "read",
            Had::Written => "written",
        }
    }
}

/// What a trial is made of.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// How many bytes the sharer has.
    pub bytes: usize,
    /// How it has them.
    pub had: Had,
    /// What happens.
    pub strike: Strike,
    /// How long a lease is.
    pub lease: Duration,
}

/// What a trial showed. Instants are of CLOCK_BOOTTIME, in nanoseconds.
pub struct Seen {
    trial: Trial,
    fill_seconds: f64,
    struck_at: u64,
    /// When the home may give the pages to others by the clock.
    lease_ends: u64,
    /// When it did: the home's own write of one of them was done.
    handed_on: u64,
    read_at: u64,
    reads: u64,
    present_at: u64,
    looks: u64,
}

impl Seen {
    /// From when on a page at the sharer is old.
    fn old_from(&self) -> u64 {
        self.handed_on.min(self.lease_ends)
    }

    /// Milliseconds from when a page is old until the last instant at which one could be read.
    pub fn stale_ms(&self) -> f64 {
        milliseconds(self.read_at.max(self.present_at), self.old_from())
    }

    /// For the detail.
    pub fn to_json(&self) -> Value {
        json!({
            "stale_ms": rounded(self.stale_ms()),
            "last_read_after_strike_ms": rounded(milliseconds(self.read_at, self.struck_at)),
            "last_page_in_page_tables_after_strike_ms": rounded(milliseconds(self.present_at, self.struck_at)),
            "lease_ends_after_strike_ms": rounded(milliseconds(self.lease_ends, self.struck_at)),
            "home_wrote_after_strike_ms": rounded(milliseconds(self.handed_on, self.struck_at)),
            "reads": self.reads,
            "looks_at_page_tables": self.looks,
            "mib": self.trial.bytes >> 20,
            "fill_s": rounded(self.fill_seconds),
        })
    }
}

fn milliseconds(at: u64, from: u64) -> f64 {
    (at as f64 - from as f64) / 1e6
}

impl Trial {
    /// Runs it in a cluster of its own.
    pub fn run(&self, context: &Context) -> Result<Option<Seen>> {
        // Frames, what they are saved as, and what is on its way.
        let budget = (3 * self.bytes).max(1 << 30).to_string();
        let lease = self.lease.as_secs();
        let cluster = Cluster::start_with_words(context, 2, Some(lease), &["--budget", &budget])?;
        if !self.strike.is_possible(&cluster) {
            return Ok(None);
        }
        let mut home = self.watcher(&cluster, HOME)?;
        let mut sharer = self.watcher(&cluster, SHARER)?;
        let seen = self.strike_and_watch(&cluster, &mut home, &mut sharer);
        // Both may wait for a page.
        home.kill();
        sharer.kill();
        seen.map(Some)
    }

    fn watcher(&self, cluster: &Cluster, host: usize) -> Result<Worker> {
        cluster.network().at(host, || Worker::start("page-watcher", &[cluster.host(host).state()]))
    }

    fn fill(&self, home: &mut Worker, sharer: &mut Worker) -> Result<f64> {
        done(home, &format!("create {NAME} {}", self.bytes))?;
        done(sharer, &format!("open {NAME}"))?;
        if self.had == Had::Read {
            home.ask("write-all")?;
        }
        let words = if self.had == Had::Read { "read-all" } else { "write-all" };
        Ok(sharer.ask(words)?.parse()?)
    }

    fn strike_and_watch(&self, cluster: &Cluster, home: &mut Worker, sharer: &mut Worker) -> Result<Seen> {
        let fill_seconds = self.fill(home, sharer)?;
        let lease_ends = lease_that_begins(cluster.host(SHARER), self.lease)?;
        let until = lease_ends + self.lease.as_nanos() as u64;
        sharer.tell(&format!("watch {until}"))?;
        // It has begun to read.
        std::thread::sleep(Duration::from_millis(100));
        let struck_at = clock::now();
        let struck = self.strike.strike(cluster)?;
        home.tell("write-last")?;
        let line = sharer.line()?;
        drop(struck);
        let numbers: std::result::Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
        let Ok([read_at, reads, present_at, looks]) =
            numbers.as_deref().map(|all| <[u64; 4]>::try_from(all).unwrap_or_default())
        else {
            return failed(format!("a watcher said `{line}`"));
        };
        if read_at < struck_at || reads == 0 || looks < 2 {
            return failed(format!("a watcher read nothing after the strike: `{line}`"));
        }
        // With host and keeper stopped nobody has given anything up, so it comes late.
        let handed_on = home.line()?.parse()?;
        Ok(Seen {
            trial: *self,
            fill_seconds,
            struck_at,
            lease_ends,
            handed_on,
            read_at,
            reads,
            present_at,
            looks,
        })
    }
}

fn done(worker: &mut Worker, line: &str) -> Result<()> {
    worker.tell(line)?;
    worker.expect("done")
}
