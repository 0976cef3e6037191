//! A real host in a state directory of its own, and the `commonhold` command on it.
#![allow(dead_code)] // each test program uses a part of it

#[path = "../../../../tests/limit.rs"]
mod limit;

use rustix::process::Pid;
pub use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// What the command said.
pub struct Said {
    /// Exit code.
    pub code: Option<i32>,
    /// Standard output.
    pub out: Vec<u8>,
    /// Standard error.
    pub err: String,
}

impl Said {
    fn new(output: Output) -> Self {
        Said {
            code: output.status.code(),
            out: output.stdout,
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Standard output of a command that must have succeeded.
    pub fn text(self) -> String {
        String::from_utf8(self.bytes()).unwrap()
    }

    /// The same, any bytes.
    pub fn bytes(self) -> Vec<u8> {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.out
    }

    /// The same, one JSON document.
    pub fn json(self) -> Value {
        serde_json::from_slice(&self.bytes()).unwrap()
    }

    /// The one line of a command that must have failed.
    pub fn complaint(self) -> String {
        assert_eq!(self.code, Some(1), "{}", self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.err.starts_with("commonhold: "), "{}", self.err);
        self.err
    }
}

/// A host that ends with the test.
pub struct TestHost {
    directory: TempDir,
}

impl TestHost {
    /// A state directory without a host.
    pub fn nowhere() -> Self {
        limit::begin();
        TestHost { directory: tempfile::tempdir().unwrap() }
    }

    /// Starts one.
    pub fn start() -> Self {
        let host = Self::nowhere();
        host.run(&["host", "start"]).text();
        host
    }

    /// Where its state is.
    pub fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// A path for a test's own file.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The command, on this host.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_commonhold"));
        command.arg("--host").arg(self.state()).args(words).current_dir(self.directory.path());
        command.env_remove("COMMONHOLD_HOST");
        command
    }

    /// Runs the command to its end.
    pub fn run(&self, words: &[&str]) -> Said {
        Said::new(self.command(words).output().unwrap())
    }

    /// The same with a file on standard input.
    pub fn run_on(&self, input: PathBuf, words: &[&str]) -> Said {
        let input = std::fs::File::open(input).unwrap();
        Said::new(self.command(words).stdin(input).output().unwrap())
    }

    /// What `host status` says, if a host runs.
    pub fn status(&self) -> Option<Value> {
        let said = self.run(&["host", "status", "--json"]);
        let value: Value = serde_json::from_slice(&said.out).unwrap();
        (value["running"] == true).then(|| value["status"].clone())
    }

    /// A process of the host: `host_pid` or `keeper_pid`.
    pub fn pid(&self, which: &str) -> u64 {
        self.status().expect("a host runs")[which].as_u64().unwrap()
    }
}

impl Drop for TestHost {
    fn drop(&mut self) {
        let said = self.run(&["host", "stop", "--force"]);
        if said.code != Some(0) && self.status().is_some() && !std::thread::panicking() {
            panic!("the test's host did not stop: {}", said.err);
        }
    }
}

/// Sends a signal.
pub fn kill(signal: Signal, pid: u64) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Waits until something is so; at most ten seconds.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !is_so() {
        assert!(std::time::Instant::now() < end, "in ten seconds it did not come true that {what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Bytes that differ from page to page and are never zero.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| ((n / 4096 * 31 + n) % 255) as u8 + 1).collect()
}

/// A path as a word of a command line.
pub fn word(path: &Path) -> &str {
    path.to_str().unwrap()
}
