//! What is done to a sharer's host, and how it is known when its lease ends.

use crate::cluster::Cluster;
use crate::failure::{Doing, Result, failed};
use crate::host::BenchHost;
use crate::processes::{self, signal};
use commonhold_keeper::fence::FenceWord;
use commonhold_sys::clock;
use commonhold_sys::process::{self, Identity};
use rustix::process::Signal;
use std::fs::File;
use std::time::{Duration, Instant};

/// The place of the host that is struck.
pub const SHARER: usize = 1;

/// What happens to the host of the process that has the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// Its wire is down.
    CutOff,
    /// Its process is stopped.
    Stopped,
    /// Its process is killed. The next one joins in its place.
    Dead,
    /// Its process is killed while its wire is down: the next one cannot join.
    DeadAndCutOff,
    /// Its process and its keeper are stopped.
    BothStopped,
    /// Both are killed while the wire is down.
    BothDead,
}

impl Strike {
    /// Strikes that leave the keeper alive: these are judged.
    pub const JUDGED: [Strike; 4] = [Strike::CutOff, Strike::Stopped, Strike::Dead, Strike::DeadAndCutOff];
    /// Strikes that leave nobody who could act: "the one window" of `docs/LEASES.md`.
    pub const WINDOW: [Strike; 2] = [Strike::BothStopped, Strike::BothDead];

    /// Its name in the detail.
    pub fn name(self) -> &'static str {
        match self {
            Strike::CutOff => "host_alive_and_cut_off",
            Strike::Stopped => "host_stopped",
            Strike::Dead => "host_dead",
            Strike::DeadAndCutOff => "host_dead_and_cut_off",
            Strike::BothStopped => "host_and_keeper_stopped",
            Strike::BothDead => "host_and_keeper_dead",
        }
    }

    fn cuts(self) -> bool {
        matches!(self, Strike::CutOff | Strike::DeadAndCutOff | Strike::BothDead)
    }

    /// Whether it can be done here.
    pub fn is_possible(self, cluster: &Cluster) -> bool {
        !self.cuts() || cluster.network().has_wires()
    }

    /// Strikes.
    pub fn strike(self, cluster: &Cluster) -> Result<Struck<'_>> {
        let [host, keeper] = cluster.host(SHARER).processes()?;
        let (host, keeper) = (process::identity(host)?, process::identity(keeper)?);
        let struck = Struck { strike: self, cluster, stopped: vec![host, keeper] };
        if self.cuts() {
            cluster.network().wire(SHARER, false)?;
        }
        match self {
            Strike::CutOff => {}
            Strike::Stopped => signal(host, Signal::STOP),
            Strike::Dead | Strike::DeadAndCutOff => processes::kill(host),
            Strike::BothStopped => [keeper, host].into_iter().for_each(|who| signal(who, Signal::STOP)),
            Strike::BothDead => {
                // Stopped first: it cannot see the death of the host.
                signal(keeper, Signal::STOP);
                [host, keeper].into_iter().for_each(processes::kill);
            }
        }
        Ok(struck)
    }
}

/// A strike that lasts until this is dropped.
pub struct Struck<'a> {
    strike: Strike,
    cluster: &'a Cluster,
    stopped: Vec<Identity>,
}

impl Drop for Struck<'_> {
    fn drop(&mut self) {
        self.stopped.iter().for_each(|who| signal(*who, Signal::CONT));
        if self.strike.cuts()
            && let Err(error) = self.cluster.network().wire(SHARER, true)
        {
            eprintln!("commonhold-bench: the wire stays down: {error}");
        }
    }
}

/// Waits for a renewal of the sharer's lease, and gives when that lease ends at the earliest: what
/// the host writes down for its keeper changes just after the answer has come, and the renewal was
/// sent some milliseconds before.
pub fn lease_that_begins(host: &BenchHost, lease: Duration) -> Result<u64> {
    let word = fence_word(host.processes()?[0])?;
    let deadline = Instant::now() + 2 * lease;
    let (first, mut looked) = (word.read(), clock::now());
    loop {
        std::thread::sleep(Duration::from_micros(500));
        let (now, instant) = (word.read(), clock::now());
        if now.is_some_and(|now| now != 0) && now != first {
            return Ok(looked + lease.as_nanos() as u64);
        }
        looked = instant;
        if Instant::now() > deadline {
            return failed("a host did not renew its lease within two leases");
        }
    }
}

/// The word that a host and its keeper share.
fn fence_word(pid: u32) -> Result<FenceWord<File>> {
    let directory = format!("/proc/{pid}/fd");
    for entry in std::fs::read_dir(&directory).doing(format!("reading {directory}"))?.flatten() {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        if target.to_string_lossy().contains("memfd:commonhold-fence") {
            return Ok(FenceWord(File::open(entry.path()).doing("opening the fence's word")?));
        }
    }
    failed(format!("host {pid} has no word of a fence"))
}
