//! How long to wait.

use std::time::{Duration, Instant};

/// Who sleeps looks again by itself after so long: the one who was to wake it may have been killed
/// after its store, or be hostile, or somebody else was woken.
pub const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until then.
    Until(Instant),
    /// For ever.
    Forever,
}

impl From<Option<Instant>> for Wait {
    /// No deadline is for ever.
    fn from(deadline: Option<Instant>) -> Wait {
        deadline.map_or(Wait::Forever, Wait::Until)
    }
}

impl Wait {
    /// Until then, or as long as this, whichever is sooner.
    pub fn sooner(self, other: Wait) -> Wait {
        match (self, other) {
            (Wait::No, _) | (_, Wait::No) => Wait::No,
            (Wait::Until(end), Wait::Until(other)) => Wait::Until(end.min(other)),
            (Wait::Forever, wait) | (wait, Wait::Forever) => wait,
        }
    }

    /// Time that is left, `most` at most; `None`: it is over.
    pub fn left(self, now: impl FnOnce() -> Instant, most: Duration) -> Option<Duration> {
        let left = match self {
            Wait::No => return None,
            Wait::Until(end) => end.saturating_duration_since(now()),
            Wait::Forever => most,
        };
        (!left.is_zero()).then_some(left.min(most))
    }
}
