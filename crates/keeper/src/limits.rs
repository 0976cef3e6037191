//! The limits of this process: open files, and how soon the kernel kills it for memory.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;

/// Descriptors wished for.
const WISHED: u64 = 1 << 20;
/// Descriptors that a process needs for itself.
const OWN: usize = 64;

/// Raises the limit on open files to the hard limit, and that to a million where it is allowed. Gives what it is now.
pub fn raise_descriptor_limit() -> u64 {
    let raise =
        |to: u64| setrlimit(Resource::Nofile, Rlimit { current: Some(to), maximum: Some(to) }).is_ok();
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    if hard >= WISHED || !raise(WISHED) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many descriptors may be kept under that limit.
pub(crate) fn keepable(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(OWN).min(u32::MAX as usize)
}

/// Makes the kernel choose this process last when memory runs out, as far as it is allowed. Gives the score from
/// before, which the hosts started from here get back.
pub(crate) fn be_killed_last() -> Option<String> {
    let path = Path::new("/proc/self/oom_score_adj");
    let before = std::fs::read_to_string(path).ok()?.trim().to_owned();
    // The least score is for those with CAP_SYS_RESOURCE; others may go down to 0 at most.
    for score in ["-1000", "0"] {
        let lower = score.parse::<i32>().ok() < before.parse::<i32>().ok();
        if lower && std::fs::write(path, score).is_ok() {
            break;
        }
    }
    Some(before)
}

/// Gives a process the score back that this one had.
pub(crate) fn give_score(pid: u32, score: &str) {
    // Not allowed, or dead already: then it keeps the keeper's.
    let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), score);
}
