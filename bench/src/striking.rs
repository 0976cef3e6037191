//! Ways to strike at a host and its keeper, for rows that do so again and again.

use crate::failure::{Result, failed};
use crate::host::BenchHost;
use crate::processes::{kill, signal};
use commonhold_sys::process::{self, Identity};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// What nobody may take longer than, whatever happens to hosts (`docs/SHARING.md`).
pub const BOUND: Duration = Duration::from_secs(30);

/// Host and keeper, which may just be others: on a machine that is slow enough a lease ends by
/// itself.
pub fn processes_of(host: &BenchHost) -> Result<[Identity; 2]> {
    let deadline = Instant::now() + BOUND;
    loop {
        match host.processes()?.map(process::identity) {
            [Ok(process), Ok(keeper)] => return Ok([process, keeper]),
            [Err(error), _] | [_, Err(error)] if Instant::now() > deadline => return Err(error.into()),
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Stops a process, and lets it go on after that time.
pub fn pause(who: Identity, lasting: Duration) {
    signal(who, Signal::STOP);
    std::thread::sleep(lasting);
    signal(who, Signal::CONT);
}

/// Stops a host for good: its keeper ends it.
pub fn stop(who: Identity) -> Result<()> {
    signal(who, Signal::STOP);
    wait_until_gone(&[who])
}

/// Kills processes, and waits until they are gone.
pub fn end_all(all: &[Identity]) -> Result<()> {
    all.iter().for_each(|who| kill(*who));
    wait_until_gone(all)
}

fn wait_until_gone(all: &[Identity]) -> Result<()> {
    let deadline = Instant::now() + BOUND;
    while all.iter().any(|who| process::is_alive(*who)) {
        if Instant::now() > deadline {
            return failed("a host that was stopped is not ended by its keeper within 30 s");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
