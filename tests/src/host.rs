//! A host and its keeper in a state directory of their own.

use crate::wait;
use crate::{Scratch, Worker};
use commonhold::{Host, HostStatus};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A running host; it and its keeper are killed at the end, whatever the test does.
pub struct TestHost {
    state: PathBuf,
    options: Vec<String>,
    program: PathBuf,
    environment: Vec<(String, String)>,
    /// Words before the program: of another that starts it.
    before: Vec<String>,
    scratch: Scratch,
}

/// A program built together with the tests.
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("own path");
    let mut directories = own.ancestors().skip(1);
    let found = directories.by_ref().take(2).map(|d| d.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} was not built beside {}", own.display()))
}

/// The host program: `COMMONHOLD_PROGRAM`, else the one built together with the tests.
fn host_program() -> PathBuf {
    std::env::var_os("COMMONHOLD_PROGRAM").map_or_else(|| program("commonhold-tests-host"), PathBuf::from)
}

impl TestHost {
    /// Starts one with the defaults.
    pub fn start() -> TestHost {
        TestHost::with(&[])
    }

    /// Starts one with these options of `host start`.
    pub fn with(options: &[&str]) -> TestHost {
        let scratch = Scratch::new();
        let state = scratch.join("state");
        TestHost::at(scratch, state, options)
    }

    /// Starts one in that state directory; `scratch` is for the test's files.
    pub fn at(scratch: Scratch, state: PathBuf, options: &[&str]) -> TestHost {
        crate::limit::begin();
        let host = TestHost::not_started(scratch, state, options, &[]);
        host.start_again().expect("the host starts");
        host
    }

    /// One that nobody has started yet, with more variables in its environment.
    pub fn not_started(
        scratch: Scratch,
        state: PathBuf,
        options: &[&str],
        more: &[(&str, &str)],
    ) -> TestHost {
        let options = options.iter().map(|o| (*o).to_owned()).collect();
        let environment = more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        TestHost { state, options, program: host_program(), environment, before: Vec::new(), scratch }
    }

    /// One that another program starts, such as `ip netns exec NAME`.
    pub fn by(before: &[&str], options: &[&str]) -> TestHost {
        crate::limit::begin();
        let scratch = Scratch::new();
        let state = scratch.join("state");
        let mut host = TestHost::not_started(scratch, state, options, &[]);
        host.before = before.iter().map(|word| (*word).to_owned()).collect();
        host.start_again().expect("the host starts");
        host
    }

    /// Starts one of that program, such as an earlier version.
    pub fn of(program: &Path, options: &[&str]) -> TestHost {
        crate::limit::begin();
        let scratch = Scratch::new();
        let state = scratch.join("state");
        let mut host = TestHost::not_started(scratch, state, options, &[]);
        host.program = program.to_owned();
        host.start_again().expect("the host starts");
        host
    }

    /// From now on another program is meant: to start it, and to ask it.
    pub fn set_program(&mut self, program: &Path) {
        self.program = program.to_owned();
    }

    /// Starts one from a copy of the program, `program` in the scratch directory: what its keeper starts is up to the test.
    pub fn of_a_copy() -> TestHost {
        let scratch = Scratch::new();
        let (state, program) = (scratch.join("state"), scratch.join("program"));
        // By a process of its own: a child of another test must not hold the copy open for writing, which is then busy.
        let copied = Command::new("cp").arg(host_program()).arg(&program).status();
        assert!(copied.expect("cp").success(), "a copy of the program");
        let mut host = TestHost::not_started(scratch, state, &[], &[]);
        host.program = program;
        host.start_again().expect("the host starts");
        host
    }

    /// `host start`, as after both processes died. Gives what it says on an error.
    pub fn start_again(&self) -> Result<(), String> {
        let output = self.command(&["host", "start", "--quiet", "--state"], |command| {
            command.arg(&self.state).args(&self.options);
        });
        output.map(drop)
    }

    /// Runs the program with some words and what `more` adds; gives what it printed.
    pub fn command(&self, words: &[&str], more: impl FnOnce(&mut Command)) -> Result<String, String> {
        let mut line = self.before.iter().map(OsStr::new).chain([self.program.as_os_str()]);
        let mut command = Command::new(line.next().unwrap_or_default());
        command.args(line).args(words).env("COMMONHOLD_HOST", &self.state).stdin(Stdio::null());
        command.envs(self.environment.iter().map(|(key, value)| (key, value)));
        more(&mut command);
        let output = command.output().expect("the program runs");
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// The program itself.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Its state directory.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The test's own files.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// A connection of the test process.
    pub fn connect(&self) -> Host {
        wait::until("the host answers", || Host::connect_to(&self.state).ok())
    }

    /// State of the host.
    pub fn status(&self) -> HostStatus {
        wait::until("the host tells its state", || Host::connect_to(&self.state).ok()?.status().ok())
    }

    /// A client process.
    pub fn worker(&self) -> Worker {
        Worker::start(&self.state, None)
    }

    /// A client process of another user.
    pub fn worker_of(&self, uid: u32, gid: u32) -> Worker {
        Worker::start(&self.state, Some((uid, gid)))
    }

    /// Names and options of objects of sixteen pages, one of each kind of a host's own; the files are made.
    pub fn kinds(&self) -> Vec<(&'static str, String)> {
        let file = |name: &str| self.scratch().file(name, 65536).display().to_string();
        vec![
            ("direct", "size=65536".to_owned()),
            ("file", format!("file={}", file("file"))),
            ("controlled", "size=65536 controlled".to_owned()),
            ("freezable", "size=65536 freezable".to_owned()),
            ("ordered", format!("file={} sync=ordered", file("ordered"))),
            ("atomic", format!("file={} sync=atomic", file("atomic"))),
        ]
    }

    /// Kills the host process; the keeper starts another.
    pub fn kill_host(&self) {
        kill(self.status().host_pid);
    }

    /// Kills the keeper; the host starts another.
    pub fn kill_keeper(&self) {
        kill(self.status().keeper_pid);
    }

    /// Kills both at once, and waits until both are gone.
    pub fn kill_both(&self) {
        let status = self.status();
        kill_together(&[status.keeper_pid, status.host_pid]);
    }

    /// Waits until a host of another process than `before` answers.
    pub fn wait_for_other_host(&self, before: u32) -> HostStatus {
        wait::until("another host process answers", || Some(self.status()).filter(|s| s.host_pid != before))
    }

    /// What host and keeper wrote to their log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.state.join("log")).unwrap_or_default()
    }

    /// Every host and keeper process of this state directory.
    pub fn processes(&self) -> Vec<u32> {
        let wanted = self.state.as_os_str().as_encoded_bytes();
        let ours = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            // Of whichever program: it may have been upgraded.
            let mut words = line.split(|byte| *byte == 0).skip(1);
            words.next().is_some_and(|verb| verb == b"serve" || verb == b"keeper")
                && words.any(|word| word == wanted)
        };
        let all = std::fs::read_dir("/proc").expect("/proc").flatten();
        all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(ours).collect()
    }
}

impl Drop for TestHost {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("--- log of the host:\n{}\n---", lines[lines.len().saturating_sub(40)..].join("\n"));
        }
        // Each starts the other anew: until none is left, all are killed at once.
        let gone = wait::within(Duration::from_secs(20), || {
            let left = self.processes();
            kill_together(&left);
            left.is_empty().then_some(())
        });
        if gone.is_none() {
            eprintln!("processes of {} could not be ended", self.state.display());
        }
        // What `commonhold_host::waiting` says.
        let waited = self.log().contains(commonhold_host::waiting::WAITS);
        assert!(std::thread::panicking() || !waited, "a thread that others need waited:\n{}", self.log());
    }
}

/// Kills a process.
pub fn kill(pid: u32) {
    signal(pid, libc::SIGKILL);
}

/// Sends a signal.
pub fn signal(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).expect("pid");
    assert!(pid > 1, "no process {pid}");
    // SAFETY: kill only sends a signal, to a process that this test started.
    unsafe { libc::kill(pid, signal) };
}

/// Stops processes, and waits until every thread of them stands: until then one may answer yet.
pub fn stop(pids: &[u32]) {
    let stands = |thread: std::fs::DirEntry| {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("State:\tT"))
    };
    for pid in pids {
        signal(*pid, libc::SIGSTOP);
        let all = || std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().all(stands);
        wait::until("it is stopped", || all().then_some(()));
    }
}

/// Stops all, then kills all: none can notice the death of another. Waits until they are gone.
pub fn kill_together(pids: &[u32]) {
    // Readable when the last thread is gone, and with it every descriptor and lock.
    let pidfds: Vec<_> = pids.iter().map(|pid| commonhold_sys::process::pidfd(*pid)).collect();
    pids.iter().for_each(|pid| signal(*pid, libc::SIGSTOP));
    pids.iter().for_each(|pid| signal(*pid, libc::SIGKILL));
    for pidfd in pidfds.into_iter().flatten() {
        wait::until("a killed process is gone", || commonhold_sys::process::has_ended(&pidfd).then_some(()));
    }
}

/// Whether a process is gone.
pub fn has_ended(pid: u32) -> bool {
    commonhold_sys::process::pidfd(pid).map_or(true, |pidfd| commonhold_sys::process::has_ended(&pidfd))
}
