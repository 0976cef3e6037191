//! Connections that a host ends before it says anything: it is out of descriptors, or dies again and again. Each of
//! them looked like a success, so without this nothing would ever end the attempts, or slow them down.

use super::recovery::HOST_DEADLINE;
use std::time::{Duration, Instant};

/// Losses further apart have nothing to do with each other.
const TOGETHER: Duration = Duration::from_secs(5);

/// A row of such losses.
#[derive(Debug, Default)]
pub(super) struct Unheard {
    row: Option<(Instant, Instant)>,
}

impl Unheard {
    /// One more.
    pub(super) fn lost(&mut self) {
        let now = Instant::now();
        let since = self.current().map_or(now, |(since, _)| since);
        self.row = Some((since, now));
    }

    /// The host spoke.
    pub(super) fn heard(&mut self) {
        self.row = None;
    }

    /// Whether the last connection ended so.
    pub(super) fn is_under_way(&self) -> bool {
        self.current().is_some()
    }

    /// Whether it goes on for so long that who waits shall fail; asked again, it begins anew.
    pub(super) fn take_long(&mut self) -> bool {
        let long = self.current().is_some_and(|(since, _)| since.elapsed() > HOST_DEADLINE);
        if long {
            self.row = None;
        }
        long
    }

    fn current(&self) -> Option<(Instant, Instant)> {
        self.row.filter(|(_, last)| last.elapsed() < TOGETHER)
    }
}
