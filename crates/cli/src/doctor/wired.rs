//! What wired memory needs: huge pages, or that locked pages stay where they are; and whether
//! faults can be counted.

use super::machine::{meminfo, read};
use super::report::Check;
use crate::units::format_size;

const COMPACTION: &str = "/proc/sys/vm/compact_unevictable_allowed";

/// Huge pages that are set aside.
pub fn huge_pages() -> Check {
    judge_huge_pages(&read("/proc/meminfo"))
}

fn judge_huge_pages(meminfo_text: &str) -> Check {
    const NAME: &str = "huge pages";
    let number = |key| meminfo(meminfo_text, key);
    let (total, free) = (number("HugePages_Total").unwrap_or(0), number("HugePages_Free").unwrap_or(0));
    let size = number("Hugepagesize").map_or_else(String::new, |bytes| format!(" of {}", format_size(bytes)));
    let found = match total {
        0 => "none set aside: wired objects get ordinary pages, which each process locks, and shared-tables cannot be had (as \
              root: sysctl vm.nr_hugepages=64)"
            .to_owned(),
        total => format!("{total}{size} set aside, {free} free, for wired objects and shared-tables"),
    };
    Check::info(NAME, found)
}

/// Whether the kernel moves locked pages.
pub fn compaction() -> Check {
    judge_compaction(&read(COMPACTION))
}

fn judge_compaction(setting: &str) -> Check {
    const NAME: &str = "locked pages";
    match setting.trim() {
        "0" => {
            Check::ok(NAME, "vm.compact_unevictable_allowed = 0: they stay where they are, and have no fault")
        }
        "" => Check::info(NAME, "this kernel moves none to make room for larger ones"),
        setting => Check::info(
            NAME,
            format!(
                "vm.compact_unevictable_allowed = {setting}: the kernel may move them, and a touch is a fault then; wired objects in \
                 huge pages are not concerned (as root: sysctl vm.compact_unevictable_allowed=0)"
            ),
        ),
    }
}

/// Whether this user may count the faults of programs.
pub fn counting() -> Check {
    const NAME: &str = "page faults";
    match commonhold_faults::can_count() {
        Ok(true) => Check::ok(NAME, "`commonhold faults` counts them, also those within system calls"),
        Ok(false) => Check::info(
            NAME,
            "`commonhold faults` counts them, but for those within system calls (as root: sysctl kernel.perf_event_paranoid=1)",
        ),
        Err(error) => Check::info(NAME, error.message),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::State;
    use super::*;

    #[test]
    fn huge_pages_that_are_not_there_are_told_with_what_sets_them_aside() {
        let none = judge_huge_pages("HugePages_Total:       0\nHugePages_Free:        0\n");
        assert_eq!(none.state, State::Info);
        assert!(none.found.contains("sysctl vm.nr_hugepages="), "{}", none.found);
        assert_eq!(judge_huge_pages("").found, none.found);
        let some = "HugePages_Total:       64\nHugePages_Free:        9\nHugepagesize:       2048 kB\n";
        assert!(judge_huge_pages(some).found.starts_with("64 of 2.0 MiB set aside, 9 free"));
    }

    #[test]
    fn locked_pages_that_move_are_told() {
        assert_eq!(judge_compaction("0\n").state, State::Ok);
        let moves = judge_compaction("1\n");
        assert_eq!(moves.state, State::Info);
        assert!(moves.found.contains("sysctl vm.compact_unevictable_allowed=0"), "{}", moves.found);
        assert_eq!(judge_compaction("").state, State::Info);
    }
}
