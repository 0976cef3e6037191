//! Control groups: how much memory this process may take before the kernel ends it. Every group above it counts, not only
//! its own, in version 2 and in version 1.

use std::path::{Path, PathBuf};

/// Where the hierarchies are mounted.
pub const ROOT: &str = "/sys/fs/cgroup";
/// Version 1 says "no limit" by a number close to the largest one.
const NO_LIMIT: u64 = 1 << 60;

/// A group with a limit, and how it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Its path below where its hierarchy is mounted.
    pub group: String,
    /// The most memory that it may have, bytes.
    pub bytes: u64,
    /// What it can still take, with what the kernel gives up for it at once (clean pages of files) and with swap, bytes.
    pub free_bytes: u64,
}

/// One of the two interfaces.
struct Version {
    limits: &'static [&'static str],
    current: &'static str,
    /// What of memory.stat can go at once.
    reclaimable: &'static [&'static str],
}

const TWO: Version = Version {
    limits: &["memory.max", "memory.high"],
    current: "memory.current",
    reclaimable: &["inactive_file", "active_file"],
};
const ONE: Version = Version {
    limits: &["memory.limit_in_bytes"],
    current: "memory.usage_in_bytes",
    reclaimable: &["total_inactive_file", "total_active_file"],
};

/// All groups with a limit that this process is in.
pub fn limits() -> Vec<Limit> {
    limits_below(Path::new(ROOT), &std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default())
}

/// The control group whose memory this process takes.
pub fn own_group() -> String {
    own_group_of(&std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default())
}

/// The same from `own`, a file like /proc/self/cgroup.
pub fn own_group_of(own: &str) -> String {
    let one = own.lines().find_map(|line| path_of(line).filter(|(version_two, _)| !version_two));
    let (_, path) = one.or_else(|| own.lines().find_map(path_of)).unwrap_or((true, "/"));
    path.to_owned()
}

/// All groups with a limit, of hierarchies mounted below `root`, that a process is in whose /proc/self/cgroup is `own`.
/// Where a container does not show a group, those above it that are shown count.
pub fn limits_below(root: &Path, own: &str) -> Vec<Limit> {
    let mut found = Vec::new();
    for (version_two, path) in own.lines().filter_map(path_of) {
        let (mounts, version) = if version_two {
            (vec![root.to_owned(), root.join("unified")], &TWO)
        } else {
            (vec![root.join("memory"), root.join("cpu,memory")], &ONE)
        };
        for mount in mounts {
            for group in groups_of(path) {
                let directory = mount.join(group.trim_start_matches('/'));
                found.extend(limit_of(&directory, &group, version));
            }
        }
    }
    found
}

/// Whether a line is of version 2, and the group that it names, if memory is counted there.
fn path_of(line: &str) -> Option<(bool, &str)> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let memory = controllers.split(',').any(|controller| controller == "memory");
    (controllers.is_empty() || memory).then_some((controllers.is_empty(), path.trim_end()))
}

/// The group and all above it, up to the mount itself, which in a container is a group too.
fn groups_of(path: &str) -> Vec<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != "..").collect();
    (0..=parts.len()).rev().map(|count| format!("/{}", parts[..count].join("/"))).collect()
}

fn limit_of(directory: &Path, group: &str, version: &Version) -> Option<Limit> {
    let number = |file: PathBuf| std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let limits = version.limits.iter().filter_map(|file| number(directory.join(file)));
    let bytes = limits.filter(|bytes| *bytes < NO_LIMIT).min()?;
    let used = number(directory.join(version.current)).unwrap_or(0);
    let stat = std::fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
    let reclaimable = stat
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| version.reclaimable.contains(name));
    let reclaimable: u64 = reclaimable.filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok()).sum();
    let free_bytes = bytes.saturating_sub(used.saturating_sub(reclaimable));
    Some(Limit { group: group.to_owned(), bytes, free_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree made up of files and what is in them.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        directory
    }

    fn found(files: &[(&str, &str)], own: &str) -> Vec<(String, u64, u64)> {
        let limits = limits_below(tree(files).path(), own);
        limits.into_iter().map(|limit| (limit.group, limit.bytes, limit.free_bytes)).collect()
    }

    #[test]
    fn of_version_two_every_group_above_counts_and_the_lower_of_max_and_high() {
        let files = [
            ("a/memory.max", "1000\n"),
            ("a/memory.current", "900\n"),
            ("a/memory.stat", "anon 5\ninactive_file 200\nactive_file 100\n"),
            ("a/b/memory.max", "max\n"),
            ("a/b/c/memory.max", "5000\n"),
            ("a/b/c/memory.high", "3000\n"),
            ("other/memory.max", "1\n"),
        ];
        let all = [("/a/b/c".to_owned(), 3000, 3000), ("/a".to_owned(), 1000, 400)];
        assert_eq!(found(&files, "0::/a/b/c\n"), all);
        assert_eq!(found(&files, "0::/\n"), []);
    }

    #[test]
    fn of_version_one_the_memory_controller_counts() {
        let files = [
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/x/memory.limit_in_bytes", "4096\n"),
            ("memory/x/memory.usage_in_bytes", "8192\n"),
            ("memory/x/y/memory.limit_in_bytes", "9223372036854771712\n"),
            ("cpu/x/memory.limit_in_bytes", "1\n"),
        ];
        assert_eq!(found(&files, "5:cpu:/x\n4:memory:/x/y\n0::/\n"), [("/x".to_owned(), 4096, 0)]);
    }

    #[test]
    fn a_group_that_a_container_does_not_show_is_the_mount_itself() {
        let files = [("memory.max", "4096\n"), ("memory/memory.limit_in_bytes", "8192")];
        assert_eq!(found(&files, "0::/../../outside\n"), [("/".to_owned(), 4096, 4096)]);
        assert_eq!(found(&files, "4:memory:/docker/1234\n"), [("/".to_owned(), 8192, 8192)]);
    }

    #[test]
    fn nonsense_is_no_limit() {
        assert_eq!(found(&[("a/memory.max", "much")], "0::/a\nnonsense\n::\n"), []);
        assert_eq!(own_group_of("nonsense"), "/");
        assert_eq!(own_group_of("4:memory:/m\n0::/two\n"), "/m");
        assert_eq!(own_group_of("1:name=systemd:/s\n0::/two\n"), "/two");
    }
}
