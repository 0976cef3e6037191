//! What went wrong, counted.

use serde_json::{Value, json};
use std::ops::AddAssign;

/// Counts of the ways in which a round can fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Pages, or words, with bytes that nobody may have put there.
    pub wrong_bytes: u64,
    /// Stored pages older than an acknowledged sync, or of two generations.
    pub lost_syncs: u64,
    /// Pages that are called clean, and differ from what is stored.
    pub wrongly_clean: u64,
    /// Clients that did not go on within the bound.
    pub late: u64,
    /// Operations that still failed long after the last fault.
    pub sticky: u64,
    /// Clients that ended, though no point had killed them.
    pub died: u64,
}

impl Tally {
    /// All together.
    pub fn total(self) -> u64 {
        self.wrong_bytes + self.lost_syncs + self.wrongly_clean + self.late + self.sticky + self.died
    }

    /// As the detail says it.
    pub fn to_json(self) -> Value {
        json!({
            "wrong_bytes": self.wrong_bytes,
            "lost_acknowledged_syncs": self.lost_syncs,
            "wrongly_clean": self.wrongly_clean,
            "waits_beyond_the_bound": self.late,
            "sticky_errors": self.sticky,
            "clients_that_died": self.died,
        })
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.wrong_bytes += other.wrong_bytes;
        self.lost_syncs += other.lost_syncs;
        self.wrongly_clean += other.wrongly_clean;
        self.late += other.late;
        self.sticky += other.sticky;
        self.died += other.died;
    }
}
