//! `host start`: takes the lock of the state directory, starts the keeper, and waits until its host answers.

use super::ask::{ask, why_none_serves};
use super::entry::own_program;
use crate::arguments::entry::{Limits, MachineType, Metrics, Place};
use commonhold::{Error, ErrorKind, HostStatus, Result};
use commonhold_keeper::{KeeperCommand, Serves, lock_state_directory};
use commonhold_object::error::Doing;
use commonhold_sys::{ownership, process};
use rustix::fs::{Mode, OFlags};
use std::fs::{DirBuilder, Permissions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
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
    /// What its bytes mean.
    pub machine: MachineType,
    /// Its place in a cluster.
    pub place: Place,
    /// Its numbers.
    pub metrics: Metrics,
}

/// The host of a state directory.
pub struct Serving {
    /// What it says.
    pub status: HostStatus,
    /// This call started it; else it was there, or came meanwhile.
    pub is_new: bool,
}

/// Starts keeper and host, which go on without this process, unless a host serves there. If the host cannot start, what was
/// made for it goes.
pub fn start(options: &StartOptions) -> Result<Serving> {
    let what = || format!("cannot make the state directory {}", options.state_directory.display());
    let directory = std::path::absolute(&options.state_directory).doing(what())?;
    let was_there = directory.exists();
    // Others may pass through root's, to the socket; nobody lists it. What lies in it is private (see `entry`).
    let mode = if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 };
    DirBuilder::new().recursive(true).mode(mode).create(&directory).doing(what())?;
    let held = Held::of(&directory).doing(what())?;
    let had_nothing = std::fs::read_dir(held.path()).is_ok_and(|mut entries| entries.next().is_none());
    check_is_own(&held, &directory, had_nothing.then_some(mode))?;
    let lock = match lock_or_answer(&directory)? {
        Found::Answer(status) => return Ok(Serving { status: *status, is_new: false }),
        Found::Lock(lock) => lock,
    };
    let command = KeeperCommand {
        serves: Serves::Host,
        program: own_program()?,
        state_directory: directory.clone(),
        host_arguments: [
            options.limits.words(),
            options.machine.words(),
            options.place.words(),
            options.metrics.words(),
        ]
        .concat(),
    };
    let keeper = command.start(lock)?;
    let answer = wait_for_answer(&directory, Some(keeper));
    if answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Invalid) && had_nothing {
        remove(&held, &directory, was_there);
    }
    Ok(Serving { status: answer?, is_new: true })
}

/// The directory that was found empty, whatever is at its path by now: who may write beside it can put something else there.
struct Held(OwnedFd);

impl Held {
    fn of(directory: &Path) -> std::io::Result<Held> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Held(rustix::fs::open(directory, flags, Mode::empty())?))
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// Refuses a directory in which somebody else could put what the host would read or write. If it is the caller's own and
/// empty, it gets this mode.
fn check_is_own(held: &Held, directory: &Path, mode: Option<u32>) -> Result<()> {
    let doing = || format!("looking at the state directory {}", directory.display());
    let own = rustix::process::geteuid().as_raw();
    let found = std::fs::metadata(held.path()).doing(doing())?;
    let Some(who) = ownership::writer(&found, &[own]) else { return Ok(()) };
    if let Some(mode) = mode.filter(|_| found.uid() == own) {
        return std::fs::set_permissions(held.path(), Permissions::from_mode(mode)).doing(doing());
    }
    let why = format!(
        "{who} can write in the state directory {}, and could have the host read and write any file: give it to you or \
         root and chmod go-w it, if nothing in it is another's, or name another one",
        directory.display()
    );
    Err(Error::new(ErrorKind::Permission, why))
}

/// Takes away what a host left that said why it could not begin, unless another has begun there by now.
fn remove(held: &Held, directory: &Path, was_there: bool) {
    let Ok(_lock) = lock_state_directory(&held.path()) else { return };
    let empty = || -> std::io::Result<()> {
        for entry in std::fs::read_dir(held.path())? {
            let entry = entry?;
            let is_directory = entry.file_type()?.is_dir();
            let remove = if is_directory { std::fs::remove_dir_all } else { std::fs::remove_file };
            remove(entry.path())?;
        }
        if was_there { Ok(()) } else { std::fs::remove_dir(directory) }
    };
    if let Err(error) = empty() {
        eprintln!("commonhold: {} stays: {error}", directory.display());
    }
}

enum Found {
    Lock(OwnedFd),
    Answer(Box<HostStatus>),
}

/// How long who holds the lock may be dying, once it is known that it does not answer.
const DYING: Duration = Duration::from_secs(2);

/// Who holds the lock serves, or is about to, or is dying: then nobody else would start a host. A call may wait for a
/// long time for the host that was lost in the middle of it, so another thread makes it.
fn lock_or_answer(directory: &Path) -> Result<Found> {
    match lock_state_directory(directory) {
        Err(error) if error.kind == ErrorKind::Busy => {}
        free => return free.map(Found::Lock),
    }
    const LOOK: Duration = Duration::from_millis(20);
    let (tell, told) = channel();
    let place = directory.to_owned();
    std::thread::spawn(move || {
        let _ = tell.send(wait_for_answer(&place, None));
    });
    let mut why_none = None;
    loop {
        if why_none.is_some() {
            std::thread::sleep(LOOK);
        } else {
            match told.recv_timeout(LOOK) {
                Ok(Ok(status)) => return Ok(Found::Answer(Box::new(status))),
                Ok(Err(error)) => why_none = Some((error, Instant::now() + DYING)),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::new(ErrorKind::Disconnected, "the thread that asks the host ended"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        if let Ok(lock) = lock_state_directory(directory) {
            return Ok(Found::Lock(lock));
        }
        if let Some((error, _)) = why_none.take_if(|(_, until)| Instant::now() > *until) {
            let what = "somebody holds the state directory, and no host answers there";
            let way_out = "`commonhold host stop --force` ends it";
            return Err(Error::new(ErrorKind::Busy, format!("{what}: {way_out}. {}", error.message)));
        }
    }
}

/// Waits until the host of a directory answers; gives up early when the keeper that was started has ended.
fn wait_for_answer(directory: &Path, keeper: Option<u32>) -> Result<HostStatus> {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(1);
    // It is a child of this process: its number stays taken after its end.
    let pidfd = keeper.and_then(|pid| process::pidfd(pid).ok());
    loop {
        let ended = keeper.is_some() && pidfd.as_ref().is_none_or(process::has_ended);
        let error = match ask(directory) {
            Ok((_, status)) => return Ok(status),
            Err(error) => error,
        };
        if let Some(why) = why_none_serves(directory).filter(|_| keeper.is_none()) {
            return Err(Error::new(ErrorKind::Disconnected, why));
        }
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
    // Why the host ended is worth more than the keeper's remark that it did, and of another kind: nothing of it goes on.
    let why = text.lines().rev().filter(|_| ended).find_map(|line| line.split_once("ended by an error: "));
    if let Some((_, why)) = why {
        let place = directory.display();
        return Error::invalid(format!(
            "the host cannot start in {place}, and nothing was left running: {why}"
        ));
    }
    let said = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
    let what =
        if ended { "ended before it answered".to_owned() } else { format!("does not answer ({error})") };
    Error::new(
        ErrorKind::Disconnected,
        format!("the host that was started {what}; {} says: {said}", log.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_at_the_path_by_now_is_not_taken_away() {
        let scratch = tempfile::tempdir().unwrap();
        let [state, away, precious] = ["state", "away", "precious"].map(|name| scratch.path().join(name));
        std::fs::create_dir(&state).unwrap();
        std::fs::create_dir_all(precious.join("below")).unwrap();
        let held = Held::of(&state).unwrap();
        std::fs::write(state.join("log"), "why").unwrap();
        std::fs::rename(&state, &away).unwrap();
        std::os::unix::fs::symlink(&precious, &state).unwrap();
        remove(&held, &state, false);
        assert!(precious.join("below").exists() && !precious.join("lock").exists());
        assert_eq!(std::fs::read_dir(&away).unwrap().count(), 0);
    }
}
