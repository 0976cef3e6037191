//! `host start`: takes the lock of the state directory, starts the keeper, and waits until its host answers.

use super::entry::own_program;
use crate::arguments::entry::Limits;
use commonhold::{Error, ErrorKind, Host, HostStatus, Result};
use commonhold_keeper::{KeeperCommand, lock_state_directory};
use commonhold_object::error::Doing;
use commonhold_sys::process;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a host may take until it answers: after a crash it redoes journals first.
const PATIENCE: Duration = Duration::from_secs(60);

/// How to start a host.
#[derive(Clone, Debug)]
pub struct StartOptions {
    /// Where it keeps its state.
    pub state_directory: PathBuf,
    /// Its limits.
    pub limits: Limits,
    /// A host that somebody else is starting there at the same time will do.
    pub any: bool,
}

/// Starts keeper and host, which go on without this process.
pub fn start(options: &StartOptions) -> Result<HostStatus> {
    let what = || format!("cannot make the state directory {}", options.state_directory.display());
    let directory = std::path::absolute(&options.state_directory).doing(what())?;
    // Others may pass through root's, to the socket; nobody lists it. What lies in it is private (see `entry`).
    let mode = if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 };
    DirBuilder::new().recursive(true).mode(mode).create(&directory).doing(what())?;
    let keeper = match lock_state_directory(&directory) {
        Ok(lock) => {
            let command = KeeperCommand {
                program: own_program()?,
                state_directory: directory.clone(),
                host_arguments: options.limits.words(),
            };
            Some(command.start(lock)?)
        }
        Err(error) if error.kind == ErrorKind::Busy && options.any => None,
        Err(error) => return Err(error),
    };
    wait_for_answer(&directory, keeper)
}

/// Waits until the host of a directory answers; gives up early when the keeper that was started has ended.
fn wait_for_answer(directory: &Path, keeper: Option<u32>) -> Result<HostStatus> {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(1);
    loop {
        let ended = keeper.is_some_and(|pid| process::identity(pid).is_err());
        let error = match Host::connect_to(directory).and_then(|host| host.status()) {
            Ok(status) => return Ok(status),
            Err(error) => error,
        };
        if ended || Instant::now() > deadline {
            return Err(explain(directory, ended, &error));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

fn explain(directory: &Path, ended: bool, error: &Error) -> Error {
    let log = directory.join("log");
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    let said = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
    let what =
        if ended { "ended before it answered".to_owned() } else { format!("does not answer ({error})") };
    Error::new(
        ErrorKind::Disconnected,
        format!("the host that was started {what}; {} ends with: {said}", log.display()),
    )
}
