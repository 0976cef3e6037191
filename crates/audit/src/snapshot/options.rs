//! What is to be looked at, how much that may cost, and why it may fail altogether.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Which processes are in scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    #[default]
    Machine,
    /// A process and its descendants.
    Tree(u32),
    /// A control group and those below it: `/system.slice`, with or without the path where it is mounted.
    ControlGroup(String),
    /// A container, by the start of its id.
    Container(String),
    /// The ELF files below a directory, and the processes whose root it is.
    Root(PathBuf),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Machine => write!(f, "machine"),
            Scope::Tree(pid) => write!(f, "process tree {pid}"),
            Scope::ControlGroup(path) => write!(f, "control group {path}"),
            Scope::Container(id) => write!(f, "container {id}"),
            Scope::Root(path) => write!(f, "root directory {}", path.display()),
        }
    }
}

/// What to look at, and at what cost.
#[derive(Clone, Debug)]
pub struct SnapshotOptions {
    /// Which processes.
    pub scope: Scope,
    /// Where procfs is: `/proc`, or a recorded tree.
    pub proc_root: PathBuf,
    /// At most about so much processor time; what does not fit is left out and said.
    pub budget: Option<Duration>,
    /// How long a file may keep its reader waiting without any progress; a process ten times that.
    pub file_deadline: Duration,
    /// Hash the content of files that may be equal.
    pub hash: bool,
    /// Read page frame numbers, where that is allowed.
    pub frames: bool,
    /// Leave the reading process itself out.
    pub skip_self: bool,
    /// Below a root directory, go into other file systems too.
    pub cross_file_systems: bool,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        Self {
            scope: Scope::Machine,
            proc_root: PathBuf::from("/proc"),
            budget: None,
            file_deadline: Duration::from_secs(2),
            hash: true,
            frames: true,
            skip_self: true,
            cross_file_systems: false,
        }
    }
}

/// Why there is no snapshot at all. Everything less than that is said in [`super::Snapshot::unseen`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// procfs is not there.
    #[error("cannot list processes in {path}: {source}; is procfs mounted there?")]
    NoProc {
        /// Where it was looked for.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The process of a tree does not exist.
    #[error("process {0} does not exist, or is hidden from this user; name one of `ps -e`")]
    NoProcess(u32),
    /// No process is in the control group.
    #[error("no process that can be seen is in control group {0}; /proc/PID/cgroup names a process's own")]
    NoControlGroup(String),
    /// No container's id begins so.
    #[error("no container's id begins with {asked}; there are: {known}")]
    NoContainer {
        /// What was asked for.
        asked: String,
        /// Ids that were seen, shortened.
        known: String,
    },
    /// Several containers' ids begin so.
    #[error("{asked} begins the ids of several containers: {known}; give more of it")]
    ManyContainers {
        /// What was asked for.
        asked: String,
        /// Ids that begin so.
        known: String,
    },
    /// The root directory cannot be read.
    #[error("cannot read directory {path}: {source}")]
    NoDirectory {
        /// Which.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}
