//! A state directory with a keeper and a host in it, as the tests handle them.

use crate::program::CONTROL_BYTES;
use commonhold_keeper::{KeeperCommand, Serves, lock_state_directory};
use commonhold_sys::process;
use commonhold_sys::socket::{self, Wait};
use rustix::process::{Pid, Signal};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest wait for anything. Waits end as soon as what they wait for is there.
const PATIENCE: Duration = Duration::from_secs(90);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub host: u32,
    pub keeper: u32,
    pub generation: u64,
    pub complete: bool,
}

pub struct Driver {
    directory: TempDir,
}

impl Driver {
    /// Starts a keeper, which starts a host.
    pub fn start() -> Driver {
        crate::limit::begin();
        let driver = Driver { directory: tempfile::tempdir().unwrap() };
        let program = driver.script("program", "");
        let lock = lock_state_directory(driver.state()).unwrap();
        let command = KeeperCommand {
            serves: Serves::Host,
            program,
            state_directory: driver.state().to_owned(),
            host_arguments: Vec::new(),
        };
        command.start(lock).unwrap();
        driver.status();
        driver
    }

    pub fn state(&self) -> &Path {
        self.directory.path()
    }

    /// A program that acts as keeper and host, in that mode.
    pub fn script(&self, name: &str, mode: &str) -> PathBuf {
        let path = self.state().join(name);
        let executable = std::env::current_exe().unwrap();
        let text = format!(
            "#!/bin/sh\nexport COMMONHOLD_TEST_MODE={mode} COMMONHOLD_TEST_PROGRAM={} COMMONHOLD_TEST_DRIVER={}\n\
             exec {} program::act --exact --ignored --nocapture --test-threads=1 -- \"$@\"\n",
            self.state().join("program").display(),
            std::process::id(),
            executable.display(),
        );
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        path
    }

    /// Asks the host once; None: it died over it.
    pub fn try_ask(&self, command: &str) -> Option<(String, Vec<OwnedFd>)> {
        self.try_ask_with(command, &[])
    }

    /// The same, and hands it descriptors.
    pub fn try_ask_with(&self, command: &str, give: &[BorrowedFd<'_>]) -> Option<(String, Vec<OwnedFd>)> {
        let connection = socket::connect(self.state(), "control").ok()?;
        socket::send(&connection, command.as_bytes(), give, Wait::Yes).ok()?;
        let mut bytes = [0; CONTROL_BYTES];
        let until = Instant::now() + PATIENCE;
        while !process::readable_within(&connection, 1000).unwrap() {
            assert!(Instant::now() < until, "no answer to {command}; the log:\n{}", self.log());
        }
        let mut fds = Vec::new();
        let length = socket::receive(&connection, &mut bytes, &mut fds, Wait::Yes).ok()?;
        (length > 0).then(|| (String::from_utf8(bytes[..length].to_vec()).unwrap(), fds))
    }

    /// Asks a host that must live to answer.
    pub fn ask(&self, command: &str) -> String {
        self.try_ask(command).unwrap_or_else(|| panic!("died over {command}; the log:\n{}", self.log())).0
    }

    /// Asks whichever host lives, the next one if need be. For what may be asked twice.
    pub fn ask_any(&self, command: &str) -> String {
        self.wait(command, || self.try_ask(command).map(|(reply, _)| reply))
    }

    pub fn status(&self) -> Status {
        let reply = self.ask_any("status");
        let words: Vec<&str> = reply.split(' ').collect();
        Status {
            host: words[0].parse().unwrap(),
            keeper: words[1].parse().unwrap(),
            generation: words[2].parse().unwrap(),
            complete: words[3].parse().unwrap(),
        }
    }

    /// Waits for a host and a keeper of which `good` holds.
    pub fn status_with(&self, good: impl Fn(Status) -> bool) -> Status {
        self.wait("a status", || Some(self.status()).filter(|now| good(*now)))
    }

    pub fn wait<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(Instant::now() < until, "waited in vain for {what}; the log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.state().join("log")).unwrap_or_default()
    }

    /// Kills the host; the status of the next.
    pub fn kill_host(&self) -> Status {
        let before = self.status();
        kill_and_wait(before.host);
        self.status_with(|now| now.host != before.host && now.keeper != 0)
    }

    /// Kills the keeper; the status with the next.
    pub fn kill_keeper(&self) -> Status {
        let before = self.status();
        kill_and_wait(before.keeper);
        self.status_with(|now| now.keeper != before.keeper && now.keeper != 0)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the log:\n{}", self.log());
        }
        // An orderly end; whatever is left over sees that the driver has ended, and ends too.
        let until = Instant::now() + Duration::from_secs(20);
        while lock_state_directory(self.state()).is_err() && Instant::now() < until {
            let _ = self.try_ask("exit");
            std::thread::sleep(Duration::from_millis(5));
        }
        // A host that panicked was started again, so that nothing else may show it.
        assert!(std::thread::panicking() || !self.log().contains("panicked"), "the log:\n{}", self.log());
    }
}

pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// SIGKILL, and the wait for its effect.
pub fn kill_and_wait(pid: u32) {
    let pidfd = process::pidfd(pid).unwrap();
    rustix::process::pidfd_send_signal(&pidfd, Signal::KILL).unwrap();
    wait_for_end(&pidfd);
}

pub fn wait_for_end(pidfd: &OwnedFd) {
    let until = Instant::now() + PATIENCE;
    while !process::readable_within(pidfd, 1000).unwrap() {
        assert!(Instant::now() < until, "a process does not end");
    }
}
