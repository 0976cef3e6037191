//! How host and keeper are started: the command lines that the program of both must understand.

use crate::backoff::RestartPolicy;
use crate::descriptor;
use crate::log::StateLog;
use commonhold_object::error::Doing;
use commonhold_object::{Error, Result};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What a keeper starts. This crate says *host* of either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Serves {
    /// A host.
    #[default]
    Host,
    /// The server of a mount.
    Mount,
}

impl Serves {
    /// The command of what is started.
    fn verb(self) -> &'static str {
        match self {
            Serves::Host => "serve",
            Serves::Mount => "serve-mount",
        }
    }
}

/// What a keeper must know to start hosts: `PROGRAM serve --state DIR --keeper-fd N [HOST_ARGUMENT...]`; servers of mounts by
/// `serve-mount`.
#[derive(Clone, Debug)]
pub struct KeeperConfig {
    /// What it starts.
    pub serves: Serves,
    /// State directory of the host.
    pub state_directory: PathBuf,
    /// Program to run as the host.
    pub program: PathBuf,
    /// Further arguments for it.
    pub host_arguments: Vec<OsString>,
    /// How hosts that die are started again.
    pub restart: RestartPolicy,
}

impl KeeperConfig {
    /// Starts a host of `program` that finds `socket` under the number on its command line. Its output goes to the
    /// log: a panic must be found somewhere.
    pub(crate) fn start_host(&self, program: &Path, socket: OwnedFd) -> io::Result<Child> {
        let mut command = Command::new(program);
        command.arg(self.serves.verb()).arg("--state").arg(&self.state_directory);
        command.arg("--keeper-fd").arg(socket.as_raw_fd().to_string());
        command.args(&self.host_arguments);
        descriptor::inherit(&mut command, vec![socket]);
        spawn(command, &self.state_directory, "host")
    }
}

/// What a host, or who starts the first host, must know to start a keeper:
/// `PROGRAM keeper [--mount] --state DIR [--host-pid P --keeper-fd N] --lock-fd M [-- HOST_ARGUMENT...]`.
#[derive(Clone, Debug)]
pub struct KeeperCommand {
    /// What it starts.
    pub serves: Serves,
    /// Program to run as the keeper; it also becomes the program of the hosts which that keeper starts.
    pub program: PathBuf,
    /// State directory of the host.
    pub state_directory: PathBuf,
    /// Further arguments for those hosts.
    pub host_arguments: Vec<OsString>,
}

impl KeeperCommand {
    /// Starts the first keeper of a state directory, which starts the host. The lock was taken with
    /// [`lock_state_directory`](crate::lock_state_directory), so that whoever starts the keeper can say that it is
    /// taken. Gives the keeper's process number.
    pub fn start(&self, lock: OwnedFd) -> Result<u32> {
        check_program(&self.program)?;
        let child = self.spawn(None, lock).doing(format_args!("cannot start {}", self.program.display()))?;
        Ok(child.id())
    }

    /// Starts a keeper for this process, which is a host.
    pub(crate) fn start_for_me(&self, socket: OwnedFd, lock: OwnedFd) -> io::Result<Child> {
        self.spawn(Some(socket), lock)
    }

    fn spawn(&self, socket: Option<OwnedFd>, lock: OwnedFd) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.arg("keeper");
        if self.serves == Serves::Mount {
            command.arg("--mount");
        }
        command.arg("--state").arg(&self.state_directory);
        if let Some(socket) = &socket {
            command.arg("--host-pid").arg(std::process::id().to_string());
            command.arg("--keeper-fd").arg(socket.as_raw_fd().to_string());
        }
        command.arg("--lock-fd").arg(lock.as_raw_fd().to_string());
        if !self.host_arguments.is_empty() {
            command.arg("--").args(&self.host_arguments);
        }
        let fds = socket.into_iter().chain([lock]).collect();
        descriptor::inherit(&mut command, fds);
        spawn(command, &self.state_directory, "keeper")
    }
}

fn spawn(mut command: Command, state_directory: &Path, who: &'static str) -> io::Result<Child> {
    let log = StateLog::new(state_directory, who).open()?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn()
}

/// Whether this path is that of a program that can be started from any directory.
pub(crate) fn check_program(program: &Path) -> Result<()> {
    let refuse = |why: String| Err(Error::invalid(format!("{} cannot be started: {why}", program.display())));
    if !program.is_absolute() || program.as_os_str().len() > crate::protocol::PATH_BYTES {
        return refuse(format!("give an absolute path of at most {} bytes", crate::protocol::PATH_BYTES));
    }
    match std::fs::metadata(program) {
        Err(error) => refuse(error.to_string()),
        Ok(found) if !found.is_file() => refuse("it is not a file".to_owned()),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => refuse("it is not executable".to_owned()),
        Ok(_) => Ok(()),
    }
}
