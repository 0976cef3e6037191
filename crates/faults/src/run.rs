//! The program, from its start to its end.

use crate::refused::explain;
use crate::report::Report;
use crate::rings::Rings;
use crate::tally::Tally;
use commonhold_object::error::Doing;
use commonhold_object::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};

/// So often the kernel's buffers are read.
const PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 4_000_000 };

/// Whether faults can be counted here, and if so, whether those within system calls, too.
pub fn can_count() -> Result<bool> {
    Rings::open().map(|rings| rings.tells_calls).map_err(|error| explain(&error))
}

/// Runs a program to its end, with its children while it runs. `signal`: one to pass on to it; one
/// that the terminal sends it has already. An error: it was not run.
pub fn count(program: &mut Command, signal: impl Fn() -> Option<Signal>) -> Result<Report> {
    let mut rings = Rings::open().map_err(|error| explain(&error))?;
    let name = program.get_program().to_owned();
    let mut child =
        program.spawn().map_err(|error| Error::io(format_args!("running {}", name.display()), &error))?;
    let watched = watch(&mut rings, &mut child, signal);
    watched.doing("counting the program's faults").inspect_err(|_| {
        let _ = child.kill(); // it may have ended
    })
}

fn watch(rings: &mut Rings, child: &mut Child, signal: impl Fn() -> Option<Signal>) -> io::Result<Report> {
    let pid = Pid::from_child(child);
    let ended = pidfd_open(pid, PidfdFlags::empty())?;
    let mut tally = Tally::default();
    let mut passed_on = None;
    let status = loop {
        rings.read();
        while let Some(told) = rings.next_settled() {
            tally.note(told);
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let came = signal();
        if let Some(came) = came.filter(|_| came != passed_on) {
            kill_process(pid, came)?;
            passed_on = Some(came);
        }
        wait(&ended)?;
    };
    let counted = rings.stop()?;
    while let Some(told) = rings.next() {
        tally.note(told);
    }
    // What was counted and not told had no room. It tells more where the last record was lost,
    // after which no other came.
    let lost = tally.lost.max(counted.saturating_sub(rings.faults));
    Ok(Report {
        status,
        still_run: tally.processes(),
        mappings: tally.mappings,
        faults: tally.faults,
        elsewhere: tally.elsewhere,
        lost,
        unseen: tally.unseen,
        counts_calls: rings.tells_calls,
    })
}

fn wait(ended: &OwnedFd) -> io::Result<()> {
    match poll(&mut [PollFd::new(ended, PollFlags::IN)], Some(&PERIOD)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
