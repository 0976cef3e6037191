//! Limits that the kernel sets to processes.

use super::report::Check;
use crate::units::format_size;
use commonhold_object::limits::MAPPINGS_PER_CLIENT;
use rustix::process::{Resource, Rlimit, getrlimit};

/// Descriptors that a host needs to be of use at all: some twenty clients.
const DESCRIPTORS_LEAST: u64 = 512;
/// Descriptors for a thousand clients with a few dozen mappings each.
const DESCRIPTORS_GOOD: u64 = 65_536;
/// Locked memory below which locks pin next to nothing.
const LOCKED_BYTES_GOOD: u64 = 64 << 20;

fn show(limit: Option<u64>, in_words: impl Fn(u64) -> String) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), in_words)
}

/// Open files: about three for each mapping of a controlled object, in the host.
pub fn descriptors() -> Check {
    let now = getrlimit(Resource::Nofile).current;
    // What a host does when it starts; this process ends soon and may as well have more.
    judge_descriptors(now, commonhold_keeper::raise_descriptor_limit())
}

fn judge_descriptors(now: Option<u64>, raised: u64) -> Check {
    const NAME: &str = "open files";
    let found = format!("{}; a host of this user raises it to {raised}", show(now, |n| n.to_string()));
    let fix = format!(
        "raise the hard limit to {DESCRIPTORS_GOOD}: LimitNOFILE= in a unit, or `* hard nofile {DESCRIPTORS_GOOD}` \
         in /etc/security/limits.conf, then log in again"
    );
    match raised {
        0..DESCRIPTORS_LEAST => Check::fail(NAME, found, fix),
        DESCRIPTORS_LEAST..DESCRIPTORS_GOOD => Check::warn(NAME, found, fix),
        _ => Check::ok(NAME, found),
    }
}

/// Memory that may be locked: how much `lock` can pin against swap, and how large wired objects in ordinary pages may be.
pub fn locked_memory() -> Check {
    judge_locked_memory(getrlimit(Resource::Memlock), rustix::process::geteuid().is_root())
}

fn judge_locked_memory(limit: Rlimit, root: bool) -> Check {
    const NAME: &str = "locked memory";
    let found = show(limit.current, format_size);
    match limit.current {
        Some(bytes) if bytes < LOCKED_BYTES_GOOD && !root => Check::warn(
            NAME,
            format!(
                "{found}: lock holds pages back from their pager, but pins no more than this against swap; wired objects in ordinary \
                 pages cannot be larger in a process"
            ),
            "raise it: `* - memlock unlimited` in /etc/security/limits.conf and log in again",
        ),
        _ => Check::ok(NAME, if root { format!("{found}; root may lock more") } else { found }),
    }
}

/// Addresses: mapping a sparse object of 1 TiB takes 1 TiB of them, and no memory.
pub fn address_space() -> Check {
    const NAME: &str = "address space";
    match getrlimit(Resource::As).current {
        None => Check::ok(NAME, "unlimited"),
        Some(bytes) => Check::warn(
            NAME,
            format!("{}: larger objects cannot be mapped whole", format_size(bytes)),
            "`ulimit -v unlimited` in the shell that starts the program",
        ),
    }
}

/// Mappings that one process may have.
pub fn mappings() -> Check {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    judge_mappings(text.trim().parse().ok())
}

fn judge_mappings(most: Option<u64>) -> Check {
    const NAME: &str = "mappings";
    match most {
        None => Check::info(NAME, "the limit of one process cannot be seen here"),
        Some(most) if most < 2 * MAPPINGS_PER_CLIENT => Check::warn(
            NAME,
            format!(
                "vm.max_map_count = {most}: less than the {MAPPINGS_PER_CLIENT} a client may have, and its own"
            ),
            "as root: sysctl vm.max_map_count=65530",
        ),
        Some(most) => Check::ok(NAME, format!("vm.max_map_count = {most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::State;
    use super::*;

    fn limit(current: Option<u64>, maximum: Option<u64>) -> Rlimit {
        Rlimit { current, maximum }
    }

    #[test]
    fn limits_are_judged() {
        for (raised, state) in [(100, State::Fail), (4096, State::Warn), (1 << 20, State::Ok)] {
            assert_eq!(judge_descriptors(Some(64), raised).state, state, "{raised}");
        }
        assert_eq!(judge_locked_memory(limit(Some(8 << 20), None), false).state, State::Warn);
        assert_eq!(judge_locked_memory(limit(Some(8 << 20), None), true).state, State::Ok);
        assert_eq!(judge_locked_memory(limit(None, None), false).state, State::Ok);
        assert_eq!(judge_mappings(Some(1000)).state, State::Warn);
        assert_eq!(judge_mappings(Some(65530)).state, State::Ok);
    }
}
