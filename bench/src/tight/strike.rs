//! Strikes at one host of a life, but for those at its writers.

use super::plan::{Plan, Strike};
use crate::cluster::Cluster;
use crate::failure::{Result, failed};
use crate::host::{self, BenchHost};
use crate::processes::{kill, signal};
use commonhold_sys::process::{self, Identity};
use rustix::process::Signal;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What nobody may take longer than, whatever happens to hosts (`docs/SHARING.md`).
pub const BOUND: Duration = Duration::from_secs(30);

/// Strikes the host. Of a machine that dies, `kill_writers` ends the writers.
pub fn strike(cluster: &Cluster, plan: Plan, kill_writers: impl FnOnce()) -> Result<()> {
    let struck = cluster.host(plan.host);
    match plan.strike {
        Strike::Restart => return command(struck, "restart"),
        Strike::Upgrade => return command(struck, "upgrade"),
        _ => {}
    }
    let [process, keeper] = processes_of(struck)?;
    match plan.strike {
        Strike::Host => end_all(&[process]),
        Strike::Keeper => end_all(&[keeper]),
        Strike::Pause => {
            signal(process, Signal::STOP);
            std::thread::sleep(plan.lasting);
            signal(process, Signal::CONT);
            Ok(())
        }
        Strike::Stop => {
            signal(process, Signal::STOP);
            wait_until_gone(&[process])
        }
        _ => {
            // Stopped first: none can see the death of the other.
            signal(keeper, Signal::STOP);
            if plan.strike == Strike::Machine {
                signal(process, Signal::STOP);
                kill_writers();
            }
            end_all(&[process, keeper])?;
            std::thread::sleep(plan.lasting);
            // Writers that live may have started it by now.
            cluster.start_again(plan.host)
        }
    }
}

/// What an administrator types. Others may just replace the host: it is tried again.
fn command(host: &BenchHost, word: &str) -> Result<()> {
    let deadline = Instant::now() + BOUND;
    loop {
        let mut command = Command::new(host::program()?);
        command.args(["host", word]).env("COMMONHOLD_HOST", host.state());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let status = loop {
            match child.try_wait()? {
                None if Instant::now() > deadline => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return failed(format!("`host {word}` has not ended after {BOUND:?}"));
                }
                None => std::thread::sleep(Duration::from_millis(2)),
                Some(status) => break status,
            }
        };
        if status.success() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return failed(format!("`host {word}` fails for {BOUND:?}"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Host and keeper, which may just be others: on a machine that is slow enough a lease ends by
/// itself.
fn processes_of(host: &BenchHost) -> Result<[Identity; 2]> {
    let deadline = Instant::now() + BOUND;
    loop {
        let all = host.processes()?.map(process::identity);
        match all {
            [Ok(process), Ok(keeper)] => return Ok([process, keeper]),
            [Err(error), _] | [_, Err(error)] if Instant::now() > deadline => return Err(error.into()),
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn end_all(all: &[Identity]) -> Result<()> {
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
