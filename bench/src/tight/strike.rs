//! Strikes at one host of a life, but for those at its writers.

use super::plan::{Plan, Strike};
use crate::cluster::Cluster;
use crate::failure::{Result, failed};
use crate::host::{self, BenchHost};
use crate::processes::signal;
use crate::striking::{BOUND, end_all, pause, processes_of, stop};
use rustix::process::Signal;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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
            pause(process, plan.lasting);
            Ok(())
        }
        Strike::Stop => stop(process),
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
                    // What is told is that it hangs; it may have ended just now.
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
