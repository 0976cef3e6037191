//! What went wrong, counted.

use serde_json::{Value, json};
use std::ops::AddAssign;

/// Counts of the ways in which a trial can fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Words of which a version before an acknowledged sync came back.
    pub lost_syncs: u64,
    /// Words of which something was read that is not what was written last, nor what a loss may bring back.
    pub stale: u64,
    /// Accesses that took longer than the bound.
    pub late: u64,
    /// Clients that an error ended, of an object whose pages are never an error.
    pub errors: u64,
}

impl Tally {
    /// All together.
    pub fn total(self) -> u64 {
        self.lost_syncs + self.stale + self.late + self.errors
    }

    /// As the detail says it.
    pub fn to_json(self) -> Value {
        json!({
            "lost_acknowledged_syncs": self.lost_syncs,
            "stale_reads": self.stale,
            "faults_beyond_the_bound": self.late,
            "unexpected_errors": self.errors,
        })
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.lost_syncs += other.lost_syncs;
        self.stale += other.stale;
        self.late += other.late;
        self.errors += other.errors;
    }
}
