//! What the rows of the audit have in common: machines full of processes, made cases, and counts that are not the
//! audit's own.

pub mod case;
pub mod crowd;
pub mod frames;
pub mod programs;
pub mod reading;
pub mod sets;
pub mod trees;
pub mod users;

/// Whether this is root: page frame numbers, other users and their files are root's alone.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
