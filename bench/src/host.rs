//! A host of a row's own: started from the program beside this one, ended afterwards, whatever happened.

use crate::failure::{Doing, Result, failed, skipped};
use crate::processes;
use commonhold::Host;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a host may take to answer, or to end.
const DEADLINE: Duration = Duration::from_secs(15);

/// A running host.
#[derive(Debug)]
pub struct BenchHost {
    program: PathBuf,
    state: PathBuf,
    /// More words of its command line.
    words: Vec<OsString>,
}

impl BenchHost {
    /// Starts one in `state`.
    pub fn start(state: &Path) -> Result<BenchHost> {
        Self::start_with(state, Vec::new())
    }

    /// Starts one in `state`, with more words on its command line.
    pub fn start_with(state: &Path, words: Vec<OsString>) -> Result<BenchHost> {
        let this = BenchHost { program: program()?, state: state.to_owned(), words };
        std::fs::create_dir_all(state)?;
        this.start_again()?;
        Ok(this)
    }

    /// Starts it, unless it runs.
    pub fn start_again(&self) -> Result<()> {
        let output = Command::new(&self.program)
            .args(["host", "start", "--quiet", "--quota", "16TiB", "--state"])
            .arg(&self.state)
            .args(self.default_budget())
            .args(&self.words)
            .stdin(Stdio::null())
            .process_group(0)
            .output()
            .doing(format!("starting {}", self.program.display()))?;
        if !output.status.success() {
            return failed(format!("`host start` said: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(())
    }

    /// Unless its words name another.
    fn default_budget(&self) -> &[&str] {
        if self.words.iter().any(|word| word == "--budget") { &[] } else { &["--budget", "4GiB"] }
    }

    /// Connects this process to it.
    pub fn connect(&self) -> Result<Host> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            match Host::connect_to(&self.state) {
                Ok(host) => return Ok(host),
                Err(error) if Instant::now() > deadline => return Err(error.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    /// The host of a state directory that somebody else started and will stop.
    pub fn borrowed(state: &Path) -> Result<std::mem::ManuallyDrop<BenchHost>> {
        Ok(std::mem::ManuallyDrop::new(BenchHost {
            program: program()?,
            state: state.to_owned(),
            words: Vec::new(),
        }))
    }

    /// Its state directory.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Its two processes.
    pub fn processes(&self) -> Result<[u32; 2]> {
        let status = self.connect()?.status()?;
        Ok([status.host_pid, status.keeper_pid])
    }
}

impl Drop for BenchHost {
    fn drop(&mut self) {
        if let Err(error) = stop(&self.program, &self.state) {
            eprintln!("commonhold-bench: {error}");
        }
    }
}

/// Kills whatever a row that ended early has left below its folder.
pub fn kill_left_over(directory: &Path) -> Result<()> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let left = processes::of_directory(directory);
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return failed(format!("processes that use {} cannot be killed", directory.display()));
        }
        left.iter().for_each(|who| processes::kill(*who));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Asks a host to stop, waits until its processes are gone, and kills them if they do not go. It asks through
/// the command and looks in /proc, because a host that hangs must not hang this program.
fn stop(program: &Path, state: &Path) -> Result<()> {
    let mut command = Command::new(program);
    command.args(["host", "stop", "--force"]).env("COMMONHOLD_HOST", state);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut asking = command.spawn().doing(format!("starting {}", program.display()))?;
    let deadline = Instant::now() + DEADLINE;
    loop {
        let asked = asking.try_wait()?;
        let gone = processes::of_directory(state).is_empty();
        if gone && asked.is_some() {
            return Ok(());
        }
        let refused = asked.is_some_and(|status| !status.success());
        if refused || Instant::now() > deadline {
            let _ = asking.kill();
            let _ = asking.wait();
            kill_left_over(state)?;
            let why = if refused { "`host stop` failed" } else { "it took longer than 15 s" };
            return failed(format!("the host in {} was killed: {why}", state.display()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The program `commonhold`: the one that `COMMONHOLD_PROGRAM` names, else the one beside this program.
pub fn program() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("COMMONHOLD_PROGRAM").filter(|value| !value.is_empty()) {
        return Ok(named.into());
    }
    let own = std::env::current_exe()?;
    let beside = own.with_file_name("commonhold");
    if beside.is_file() {
        return Ok(beside);
    }
    skipped(format!(
        "there is no {}: build it (cargo build -p commonhold-cli), or name it in COMMONHOLD_PROGRAM",
        beside.display()
    ))
}
