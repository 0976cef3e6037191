//! Who runs: every process with its parent, control group and container, before any of them is read in full.

use super::container;
use super::mounts::Mounts;
use super::options::{Error, SnapshotOptions};
use super::procdir::{ProcDir, has_ended, identity, is_forbidden, stat};
use super::unseen::{Gathered, Kind};
use procfs_core::process::Stat;
use procfs_core::{FromBufRead, FromRead, ProcessCGroups};
use rustix::fs::{AtFlags, CWD};
use std::io;
use std::path::Path;

/// What is said of a process that only others may look at.
pub fn forbidden() -> &'static str {
    if rustix::process::geteuid().is_root() {
        "permission denied even to root: it belongs to an outer user namespace, or lets nobody look"
    } else {
        "permission denied: run as root to see other users' processes"
    }
}

/// PF_KTHREAD: a thread of the kernel, which maps nothing.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// A process that may be read.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// Process id.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// When it started.
    pub start_ticks: u64,
    /// `comm`.
    pub name: String,
    /// What it has in memory, roughly.
    pub resident_pages: u64,
    /// Its control group.
    pub cgroup: String,
    /// Its control groups in all hierarchies.
    pub cgroups: Vec<String>,
    /// Its container: the innermost.
    pub container: Option<String>,
    /// Its containers, from the outermost.
    pub containers: Vec<String>,
    /// Its mount namespace; 0: the reader's, or not known.
    pub namespace: u64,
    /// Device and inode of its root directory, where that was asked for.
    pub root: Option<(u64, u64)>,
}

impl Target {
    /// What it is counted with.
    pub fn group(&self) -> (String, Option<String>) {
        (self.cgroup.clone(), self.container.clone())
    }

    /// As messages name it.
    pub fn title(&self) -> String {
        format!("{} ({})", self.pid, self.name)
    }
}

/// All that was counted.
#[derive(Debug, Default)]
pub struct Census {
    /// Processes that map memory.
    pub targets: Vec<Target>,
    /// There are others, of which nothing can be known: any of them may be in scope.
    pub has_hidden: bool,
}

/// Where the reader itself stands.
#[derive(Debug, Default)]
pub struct Reader {
    /// Its mount namespace.
    pub namespace: Option<u64>,
    root: Option<(u64, u64)>,
}

impl Reader {
    /// As procfs tells it.
    pub fn of(proc_root: &Path) -> Self {
        let namespace = std::fs::read_link(proc_root.join("self/ns/mnt"))
            .ok()
            .and_then(|link| link.to_str()?.split_once('[')?.1.strip_suffix(']')?.parse().ok());
        Self { namespace, root: stat(CWD, "/", AtFlags::empty()).ok().map(|about| identity(&about)) }
    }
}

/// Counts the processes. Those that end meanwhile are left out, those that cannot be looked at are told.
pub fn take(
    options: &SnapshotOptions,
    reader: &Reader,
    mounts: &Mounts,
    unseen: &mut Gathered,
) -> Result<Census, Error> {
    let unreadable = |source| Error::NoProc { path: options.proc_root.clone(), source };
    let mut pids: Vec<u32> = Vec::new();
    for entry in std::fs::read_dir(&options.proc_root).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        pids.extend(
            name.to_str().filter(|name| !name.starts_with('+')).and_then(|name| name.parse::<u32>().ok()),
        );
    }
    pids.sort_unstable();
    let mut census = Census::default();
    if let Some(how) = options.proc_root.to_str().and_then(|path| mounts.hidepid(path))
        && !rustix::process::geteuid().is_root()
    {
        let why = format!("procfs is mounted with hidepid={how}: run as root to see other users' processes");
        unseen.add(Kind::Other, "processes of other users", why);
        census.has_hidden = true;
    }
    let own = std::process::id();
    for pid in pids {
        if options.skip_self && pid == own && options.proc_root == Path::new("/proc") {
            continue;
        }
        match one(options, reader, pid) {
            Ok(Some(target)) => census.targets.push(target),
            Ok(None) => {}
            Err(error) if has_ended(&error) => {}
            Err(error) if is_forbidden(&error) => {
                census.has_hidden = true;
                unseen.add(Kind::Process, pid.to_string(), forbidden());
            }
            Err(error) => {
                unseen.add(Kind::Process, pid.to_string(), format!("its stat could not be read: {error}"))
            }
        }
    }
    Ok(census)
}

/// One process; none: it maps nothing.
fn one(options: &SnapshotOptions, reader: &Reader, pid: u32) -> io::Result<Option<Target>> {
    let directory = ProcDir::open(&options.proc_root, pid)?;
    let stat = read_stat(&directory)?;
    // The first thread of a process may end before the others: then it looks like a zombie, but memory is mapped.
    let has_ended = matches!(stat.state, 'Z' | 'X') && stat.num_threads <= 1;
    if stat.flags & KERNEL_THREAD != 0 || has_ended {
        return Ok(None);
    }
    let mut target = Target {
        pid,
        parent: u32::try_from(stat.ppid).unwrap_or(0),
        start_ticks: stat.starttime,
        name: stat.comm,
        resident_pages: stat.rss,
        ..Target::default()
    };
    // A process without a control group (a kernel without them) is simply in none.
    let groups = String::from_utf8_lossy(&directory.bytes("cgroup").unwrap_or_default()).into_owned();
    control_groups(&mut target, &groups);
    let namespace = directory.namespace("ns/mnt");
    let is_elsewhere = namespace.is_some() && namespace != reader.namespace;
    if is_elsewhere || matches!(options.scope, super::Scope::Root(_)) {
        target.root = directory.root();
    }
    if let Some(namespace) = namespace.filter(|_| is_elsewhere) {
        target.namespace = namespace;
        // Services may have mounts of their own and still the machine's root: those are no containers.
        if target.containers.is_empty() && target.root.is_some() && target.root != reader.root {
            target.containers.push(format!("mnt-{namespace}"));
        }
    }
    target.container = target.containers.last().cloned();
    Ok(Some(target))
}

/// A process's stat.
pub fn read_stat(directory: &ProcDir) -> io::Result<Stat> {
    let text = directory.bytes("stat")?;
    if text.is_empty() {
        return Err(rustix::io::Errno::SRCH.into());
    }
    Stat::from_read(&*text).map_err(|error| io::Error::other(error.to_string()))
}

/// Its control groups and the containers that their paths name: of version 2, else of the memory controller. Where both
/// are mounted, version 2 may hold nothing and have everyone at its root.
fn control_groups(target: &mut Target, text: &str) {
    let Ok(groups) = ProcessCGroups::from_buf_read(text.as_bytes()) else { return };
    let path = |found: &dyn Fn(&procfs_core::ProcessCGroup) -> bool| {
        groups.0.iter().find(|group| found(group)).map(|group| group.pathname.clone())
    };
    let second = path(&|group| group.hierarchy == 0 && group.controllers.is_empty());
    let memory = path(&|group| group.controllers.iter().any(|controller| controller == "memory"));
    target.cgroup = match (second, memory) {
        (Some(second), Some(memory)) if second == "/" => memory,
        (second, memory) => second.or(memory).unwrap_or_default(),
    };
    target.cgroups = groups.0.into_iter().map(|group| group.pathname).collect();
    target.cgroups.sort_unstable();
    target.cgroups.dedup();
    let of_own: Vec<String> = container::ids(&target.cgroup).into_iter().map(str::to_owned).collect();
    let of_any = || target.cgroups.iter().flat_map(|path| container::ids(path)).map(str::to_owned);
    target.containers = if of_own.is_empty() { of_any().take(1).collect() } else { of_own };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(text: &str) -> Target {
        let mut target = Target::default();
        control_groups(&mut target, text);
        target
    }

    #[test]
    fn version_2_else_the_memory_controller() {
        assert_eq!(groups("0::/user.slice/a:b\n").cgroup, "/user.slice/a:b");
        assert_eq!(groups("5:memory:/m\n4:cpu,cpuacct:/c\n1:name=systemd:/s\n").cgroup, "/m");
        assert_eq!(groups("5:memory:/m\n0::/\n").cgroup, "/m");
        assert_eq!(groups("5:memory:/\n0::/two\n").cgroup, "/two");
        assert_eq!(groups("not what it should be").cgroup, "");
    }

    #[test]
    fn a_container_that_only_another_hierarchy_names() {
        let id = "0f".repeat(32);
        let target = groups(&format!("5:memory:/\n1:name=systemd:/docker/{id}\n0::/\n"));
        assert_eq!((target.cgroup.as_str(), target.containers), ("/", vec![id]));
    }
}
