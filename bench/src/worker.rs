//! Workers: this program again, as another process, told by a hidden subcommand what to do.

use crate::failure::{Doing, Result, failed};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long a worker may take to end after its input was closed.
const GRACE: Duration = Duration::from_secs(5);

/// A child's lines of JSON as they come; the channel closes when the child is gone.
pub fn json_lines(child: &mut Child) -> Result<Receiver<Value>> {
    let Some(output) = child.stdout.take() else { return failed("a child without output") };
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
            if let Ok(value) = serde_json::from_str(&line)
                && sender.send(value).is_err()
            {
                return;
            }
        }
    });
    Ok(receiver)
}

/// A worker that takes lines and answers lines.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts this program as `worker NAME ARGUMENTS…`, and waits until it says `ready`.
    pub fn start<S: AsRef<OsStr>>(name: &str, arguments: &[S]) -> Result<Worker> {
        let mut worker = Self::spawn(own_command(name, arguments)?.stdin(Stdio::piped()))?;
        worker.expect("ready")?;
        Ok(worker)
    }

    /// Starts any program with lines to and from it.
    pub fn spawn(command: &mut Command) -> Result<Worker> {
        let mut child = command.stdout(Stdio::piped()).spawn().doing(format!("starting {command:?}"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let Some(output) = output else { return failed("a child without output") };
        Ok(Worker { child, input, output: BufReader::new(output) })
    }

    /// Sends a line.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let Some(input) = &mut self.input else { return failed("this worker takes no lines") };
        writeln!(input, "{line}").doing("telling a worker")
    }

    /// Waits for a line.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line).doing("hearing a worker")? == 0 {
            let status = self.child.wait()?;
            return failed(format!("a worker ended early ({status})"));
        }
        Ok(line.trim_end().to_owned())
    }

    /// Sends a line and waits for the answer.
    pub fn ask(&mut self, line: &str) -> Result<String> {
        self.tell(line)?;
        self.line()
    }

    /// Waits for that very line.
    pub fn expect(&mut self, wanted: &str) -> Result<()> {
        let line = self.line()?;
        if line == wanted {
            Ok(())
        } else {
            failed(format!("a worker said `{line}` where `{wanted}` was expected"))
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it at once (SIGKILL), and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.input.take());
        let deadline = Instant::now() + GRACE;
        while self.is_running() {
            if Instant::now() > deadline {
                return self.kill();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The command line of a worker.
pub fn own_command<S: AsRef<OsStr>>(name: &str, arguments: &[S]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["worker", name]).args(arguments);
    Ok(command)
}

/// Starts a worker whose standard input is a socket; gives our end. The worker ends when that is closed.
pub fn start_with_socket(name: &str) -> Result<(Worker, OwnedFd)> {
    let (ours, theirs) = commonhold_sys::socket::pair()?;
    let mut worker = Worker::spawn(own_command::<&str>(name, &[])?.stdin(Stdio::from(theirs)))?;
    worker.expect("ready")?;
    Ok((worker, ours))
}

/// Called first in every worker: it dies with whoever started it.
pub fn die_with_parent() {
    let parent = rustix::process::getppid();
    let signal = rustix::process::Signal::KILL;
    if rustix::process::set_parent_process_death_signal(Some(signal)).is_err()
        || rustix::process::getppid() != parent
    {
        std::process::exit(1);
    }
}

/// Says that a worker is ready, or any other line.
pub fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Waits until whoever started this worker closes its input.
pub fn wait_for_end() {
    let mut line = String::new();
    while matches!(std::io::stdin().read_line(&mut line), Ok(n) if n > 0) {
        line.clear();
    }
}
