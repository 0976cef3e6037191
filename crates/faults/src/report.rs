//! What came of it.

use crate::tally::{Faults, Mapping};
use commonhold_wired::{ARENA_MEMORY, OWN_MEMORY};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// What the program did.
#[derive(Debug)]
pub struct Report {
    /// How it ended.
    pub status: ExitStatus,
    /// All mappings that it, its threads and its children had.
    pub mappings: Vec<Mapping>,
    /// All faults.
    pub faults: Faults,
    /// Faults at addresses where no mapping is known.
    pub elsewhere: Faults,
    /// Faults and other records that the kernel had no room for.
    pub lost: u64,
    /// Programs that the kernel told nothing of, for they gained rights.
    pub unseen: Vec<String>,
    /// Processes that still ran when the program ended.
    pub still_run: u64,
    /// Whether faults within system calls were counted.
    pub counts_calls: bool,
}

/// What is to be said of wired memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// None was mapped.
    NothingWired,
    /// It had no fault.
    NoFaults,
    /// It had so many.
    Faults(u64),
    /// Not all faults are known, and among those that are there is none.
    NotKnown,
}

impl Mapping {
    /// Whether it is of wired memory: an arena, or a wired object in ordinary pages.
    pub fn is_wired(&self) -> bool {
        let label = self.name.strip_prefix("/memfd:").unwrap_or_default();
        [ARENA_MEMORY, OWN_MEMORY].iter().any(|name| label.starts_with(name))
    }
}

impl Report {
    /// Whether wired memory had faults.
    pub fn verdict(&self) -> Verdict {
        let mut wired = self.mappings.iter().filter(|mapping| mapping.is_wired()).peekable();
        let is_there = wired.peek().is_some();
        let is_complete = self.lost == 0 && self.unseen.is_empty() && self.faults.all > 0;
        match wired.map(|mapping| mapping.faults.all).sum() {
            0 if !is_complete => Verdict::NotKnown,
            0 if is_there => Verdict::NoFaults,
            0 => Verdict::NothingWired,
            faults => Verdict::Faults(faults),
        }
    }

    /// 1 if wired memory had faults, 2 if that is not known; else what the program gave, and what a
    /// shell says where a signal ended it.
    pub fn exit_code(&self) -> u8 {
        match self.verdict() {
            Verdict::Faults(_) => 1,
            Verdict::NotKnown => 2,
            _ => {
                let ended = self.status.code().or_else(|| self.status.signal().map(|signal| 128 + signal));
                ended.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(mappings: &[(&str, u64)]) -> Report {
        let mapping = |(name, all): &(&str, u64)| Mapping {
            name: (*name).to_owned(),
            inode: 1,
            range: 0..4096,
            faults: Faults { all: *all, in_calls: 0 },
        };
        Report {
            status: ExitStatus::from_raw(3 << 8),
            mappings: mappings.iter().map(mapping).collect(),
            faults: Faults { all: 9, in_calls: 0 },
            elsewhere: Faults::default(),
            lost: 0,
            unseen: Vec::new(),
            still_run: 0,
            counts_calls: true,
        }
    }

    fn said(report: &Report) -> (Verdict, u8) {
        (report.verdict(), report.exit_code())
    }

    #[test]
    fn faults_count_in_wired_memory_alone() {
        let segment = ("/memfd:commonhold-segment (deleted)", 5);
        assert_eq!(said(&report(&[("//anon", 5), segment])), (Verdict::NothingWired, 3));
        let arena = "/memfd:commonhold-arena (deleted)";
        assert_eq!(said(&report(&[("//anon", 5), (arena, 0)])), (Verdict::NoFaults, 3));
        let own = "/memfd:commonhold-wired (deleted)";
        assert_eq!(said(&report(&[(arena, 2), (own, 1)])), (Verdict::Faults(3), 1));
    }

    #[test]
    fn what_is_not_complete_proves_nothing() {
        let arena = "/memfd:commonhold-arena (deleted)";
        for change in [
            (|report: &mut Report| report.lost = 1) as fn(&mut Report),
            |report| report.unseen.push("sudo".into()),
            |report| report.faults.all = 0,
        ] {
            let mut none = report(&[(arena, 0)]);
            change(&mut none);
            assert_eq!(said(&none), (Verdict::NotKnown, 2));
            let mut some = report(&[(arena, 1)]);
            change(&mut some);
            assert_eq!(said(&some), (Verdict::Faults(1), 1));
        }
    }

    #[test]
    fn the_program_s_own_status_is_given() {
        let mut report = report(&[]);
        report.status = ExitStatus::from_raw(9);
        assert_eq!(report.exit_code(), 137);
        report.status = ExitStatus::from_raw(0);
        assert_eq!(report.exit_code(), 0);
    }
}
