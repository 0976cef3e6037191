//! This host fences itself: its lease is about to end, and no process of it may use what others go on with.

use super::threads::begin;
use super::{Cluster, lock};
use crate::shared::Driver;
use commonhold_object::{PAGE_SIZE_BYTES, Result};
use commonhold_points as points;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const PAGES_OF_A_GIB: u64 = (1 << 30) / PAGE_SIZE_BYTES;

impl Cluster {
    /// This host must not touch anything shared any more.
    pub(super) fn fence(self: &Arc<Self>, why: &str) {
        if self.lease.fence() {
            let (this, why) = (self.clone(), why.to_owned());
            let fencing = move || this.fence_now(&why);
            // The caller may hold what fencing needs.
            begin("fencing", fencing);
        }
    }

    /// Drops everything shared, and ends this process: the next joins under another number.
    pub(super) fn fence_now(self: &Arc<Self>, why: &str) {
        if let Err(error) = self.lease.is_being_fenced() {
            self.report(format_args!("the keeper may end this process while it fences itself: {error}"));
        }
        let failed = self.drop_everything();
        self.report(format_args!("fenced: {why}. Objects that hosts share wait; this host begins anew"));
        if let Err(error) = failed {
            // The keeper sees that the word still stands, and does it.
            self.report(format_args!("fencing failed: {error}"));
        }
        if let Ok(host) = self.host() {
            host.begin_anew();
        }
    }

    /// No process of this host uses anything shared from now on.
    pub(super) fn drop_everything(&self) -> Result<()> {
        // Turns of homes wait for answers of replicas, with locks that fencing needs.
        self.ask_no_more();
        let mut drivers = self.drivers();
        drivers.sort_by_key(|driver| driver.is_home()); // what grows old first
        fence_all(&drivers)?;
        self.lease.nothing_to_fence()
    }

    /// How long that would take now.
    pub(super) fn fencing_takes(&self) -> Duration {
        let (dropped, copied) = self
            .drivers()
            .iter()
            .map(|driver| driver.pages_to_fence())
            .fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        dropping_takes(dropped) + copying_takes(copied)
    }
}

/// Fences all of them, an error with one or not, and several at a time: one that is held up holds up few.
fn fence_all(drivers: &[Arc<Driver>]) -> Result<()> {
    const AT_ONCE: usize = 4;
    let (next, outcomes) = (Mutex::new(drivers.iter()), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let driver = lock(&next).next(); // the lock is free again while that one is fenced
            let Some(driver) = driver else { return };
            let outcome = driver.fence();
            lock(&outcomes).push(outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..AT_ONCE.min(drivers.len()) {
            let fencing = || std::thread::Builder::new().name("fencing".into());
            let _ = points::thread(|| fencing().spawn_scoped(scope, work)); // without it the others do all
        }
        work();
    });
    outcomes.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect()
}

/// Pages that are given back: twice what was measured.
fn dropping_takes(pages: u64) -> Duration {
    const A_GIB: Duration = Duration::from_millis(600);
    Duration::from_nanos(pages * (A_GIB.as_nanos() as u64 / PAGES_OF_A_GIB))
}

/// Pages that leave page tables, and stay.
fn copying_takes(pages: u64) -> Duration {
    const A_GIB: Duration = Duration::from_millis(2400);
    Duration::from_nanos(pages * (A_GIB.as_nanos() as u64 / PAGES_OF_A_GIB))
}
