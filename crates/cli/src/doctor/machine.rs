//! The machine around: memory, swap, control group, container, systemd, FUSE.

use super::report::Check;
use crate::units::format_size;
use commonhold_sys::kernel;
use std::path::Path;

/// Linux 6.9: files given through, and requests sent again.
const FUSE_SINCE: (u32, u32) = (6, 9);

pub(super) fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// A line of /proc/meminfo in bytes, or pages where the kernel counts those.
pub(super) fn meminfo(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let mut words = line.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    Some(if words.next() == Some("kB") { number * 1024 } else { number })
}

/// Memory of the machine; a quarter is the budget of a host unless told otherwise.
pub fn memory() -> Check {
    let text = read("/proc/meminfo");
    match (meminfo(&text, "MemTotal"), meminfo(&text, "MemAvailable")) {
        (Some(total), Some(available)) => {
            Check::info("memory", format!("{}, {} available", format_size(total), format_size(available)))
        }
        _ => Check::warn("memory", "/proc/meminfo cannot be read", "mount /proc"),
    }
}

/// Swap: where plain anonymous objects go when memory is short.
pub fn swap() -> Check {
    match meminfo(&read("/proc/meminfo"), "SwapTotal") {
        Some(0) | None => Check::info("swap", "none: direct anonymous objects stay in memory"),
        Some(bytes) => Check::info("swap", format_size(bytes)),
    }
}

/// The least memory limit of this process's control group and of those above it: they pay for the frames that the host takes.
pub fn control_group() -> Check {
    match commonhold_sys::cgroup::limits().into_iter().min_by_key(|limit| limit.bytes) {
        Some(limit) => {
            Check::info("control group", format!("{} for {}", format_size(limit.bytes), limit.group))
        }
        None => Check::info("control group", "no memory limit"),
    }
}

/// Whether this is a container, and what that means.
pub fn container() -> Check {
    let status = read("/proc/self/status");
    let mut signs = Vec::new();
    let namespaces = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    if namespaces.split_whitespace().count() > 1 {
        signs.push("a pid namespace of its own");
    }
    if Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists() {
        signs.push("a container's marker file");
    }
    if !read("/proc/self/uid_map").split_whitespace().eq(["0", "0", "4294967295"]) {
        signs.push("a user namespace");
    }
    if status.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"])) {
        signs.push("a seccomp filter");
    }
    if signs.is_empty() {
        return Check::info("container", "no sign of one");
    }
    Check::info(
        "container",
        format!(
            "{}: a host serves clients of other containers if they share its state directory; map-info then shows \
             process 0 for those it cannot see",
            signs.join(", ")
        ),
    )
}

/// Whether systemd can run the host.
pub fn systemd() -> Check {
    if Path::new("/run/systemd/system").exists() {
        Check::info("systemd", "runs here: packaging/commonhold.service starts a host for everybody")
    } else {
        Check::info(
            "systemd",
            "does not run here: `commonhold host start` as root starts a host for everybody",
        )
    }
}

/// FUSE, by which objects are mounted as files.
pub fn fuse() -> Check {
    const NAME: &str = "FUSE";
    if !Path::new("/dev/fuse").exists() {
        let fix = "modprobe fuse, or a kernel that has it; everything but `commonhold mount` works without";
        return Check::warn(NAME, "no /dev/fuse: nothing can be mounted", fix);
    }
    if !kernel::is_at_least(&kernel::release(), FUSE_SINCE) {
        let fix = "Linux 6.9 or newer; everything but `commonhold mount` works without";
        return Check::warn(
            NAME,
            "this kernel's FUSE cannot outlive who serves it: nothing can be mounted",
            fix,
        );
    }
    if rustix::process::geteuid().is_root() {
        return Check::ok(
            NAME,
            "/dev/fuse is there: `commonhold mount` works, and the kernel itself maps files of direct objects",
        );
    }
    let helper = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|directory| directory.join("fusermount3").exists());
    let found = "this user's files are read and written by calls; to map them shared, have root mount";
    match helper {
        true => Check::ok(NAME, format!("fusermount3 is there; {found}")),
        false => Check::warn(NAME, "no fusermount3: only root can mount", "apt-get install fuse3"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_in_bytes_and_numbers() {
        let text = "MemTotal:       24576 kB\nHugePages_Total:       3\n";
        assert_eq!(meminfo(text, "MemTotal"), Some(24576 * 1024));
        assert_eq!(meminfo(text, "HugePages_Total"), Some(3));
        assert_eq!(meminfo(text, "Mem"), None);
    }
}
