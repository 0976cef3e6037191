//! Where hosts are found: the state directory that `COMMONHOLD_HOST` names, the system's, the user's own.

use crate::{Error, ErrorKind, Result};
use commonhold_sys::environment;
use std::path::{Path, PathBuf};

/// Names a state directory; its host is used and never started.
pub(crate) const HOST_VARIABLE: &str = "COMMONHOLD_HOST";

/// State directory of the host that serves the whole machine.
pub(crate) const SYSTEM_DIRECTORY: &str = "/var/lib/commonhold";

/// The socket of a host in its state directory.
pub(crate) const SOCKET_NAME: &str = "host.sock";

/// A state directory, and whether a client may start a host there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) directory: PathBuf,
    pub(crate) may_start: bool,
}

/// The places to look for a host, in order: the system's alone for a program with rights that its caller lacks. Only the last may be one where a host is started.
pub(crate) fn places() -> Result<Vec<Place>> {
    if let Some(directory) = named() {
        return Ok(vec![Place { directory, may_start: false }]);
    }
    let system = PathBuf::from(SYSTEM_DIRECTORY);
    if environment::has_foreign_rights() {
        // Its caller would say where, and with which program.
        return Ok(vec![Place { directory: system, may_start: false }]);
    }
    if rustix::process::geteuid().is_root() {
        return Ok(vec![Place { directory: system, may_start: true }]);
    }
    Ok(vec![Place { directory: system, may_start: false }, Place { directory: of_user()?, may_start: true }])
}

/// The state directory of the host that this user would start: the one `COMMONHOLD_HOST` names if it is set,
/// else `/var/lib/commonhold` for root, else `commonhold` in `$XDG_STATE_HOME` or `~/.local/state`.
pub fn default_state_directory() -> Result<PathBuf> {
    let places = places()?;
    let last = places.into_iter().next_back().map(|place| place.directory);
    last.ok_or_else(|| Error::new(ErrorKind::NotFound, "no state directory for a host is known"))
}

/// The state directory of this user alone, whichever host is used.
pub fn own_state_directory() -> Result<PathBuf> {
    if rustix::process::geteuid().is_root() { Ok(PathBuf::from(SYSTEM_DIRECTORY)) } else { of_user() }
}

fn named() -> Option<PathBuf> {
    environment::variable(HOST_VARIABLE).map(PathBuf::from)
}

fn of_user() -> Result<PathBuf> {
    let absolute =
        |name: &str| environment::variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    base.map(|base| base.join("commonhold")).ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            "neither HOME nor XDG_STATE_HOME is an absolute path: set one, or COMMONHOLD_HOST to a state directory",
        )
    })
}

/// Connects to the host of a state directory.
pub(crate) fn connect(directory: &Path) -> std::io::Result<std::os::fd::OwnedFd> {
    commonhold_sys::socket::connect(directory, SOCKET_NAME)
}

/// Whether that error of [`connect`] says that nobody is expected: a host that ends in order takes its socket away,
/// and one that dies leaves it to the next.
pub(crate) fn was_stopped(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOENT)
}

/// Says that the host this process was connected to is gone for good.
pub(crate) fn stopped(directory: &Path) -> Error {
    let place = directory.display();
    let what = format!(
        "the host in {place} was stopped: start it again with `commonhold host start --state {place}`"
    );
    Error::new(ErrorKind::Disconnected, what)
}

/// Says of a failed connection what it means and what to do.
pub(crate) fn no_host(directory: &Path, error: &std::io::Error) -> Error {
    let (kind, advice) = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            (ErrorKind::Permission, "its permissions do not let this user in")
        }
        Some(libc::EMFILE | libc::ENFILE) => (
            ErrorKind::TooMany,
            "no file descriptor is left for the connection: close some, or raise the limit (ulimit -n)",
        ),
        _ if environment::has_foreign_rights() => (
            ErrorKind::Disconnected,
            "this program has rights that its caller lacks (setuid, setgid, file capabilities), so it uses the system's \
             host alone: have root start that one",
        ),
        _ => (ErrorKind::Disconnected, "start one with `commonhold host start --state DIRECTORY`"),
    };
    Error::new(kind, format!("no host answers in {}: {error}: {advice}", directory.display()))
}
