//! Waits that have lasted too long end in SIGBUS, and the page is asked for again a while later.

use super::Cache;
use commonhold_object::{PageRange, SessionId};
use std::time::Duration;

/// How long a page stays refused: long enough for whoever waited to get SIGBUS.
const REFUSED_FOR: Duration = Duration::from_secs(1);

impl Cache {
    /// Whether a fault waits that has a deadline, or a refused page is to be had again soon; none:
    /// it cannot be told now.
    pub fn waits_with_deadline(&self) -> Option<bool> {
        let inner = self.lock_soon()?;
        Some(
            !inner.refused.is_empty() || self.traits.fault_deadline_ms.is_some() && !inner.waiting.is_empty(),
        )
    }

    /// Does that on a thread of its owner's, since it may wait for clients.
    pub fn run_apart(&self, job: impl FnOnce() + Send + 'static) {
        self.apart.run_within(self.share_now(), &self.machine.urgent, job);
    }

    /// Refused pages that may be asked for again: whose, and where.
    pub fn healed(&self) -> Vec<(SessionId, u64)> {
        let mut inner = self.lock();
        let (now, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut inner.refused).into_iter().partition(|r| r.since.elapsed() > REFUSED_FOR);
        inner.refused = later;
        now.into_iter().map(|r| (r.session, r.address)).collect()
    }

    /// Ends waits that are past the object's deadline, with SIGBUS.
    pub fn end_waits(&self) {
        let Some(deadline_ms) = self.traits.fault_deadline_ms else { return };
        let deadline = Duration::from_millis(deadline_ms.into());
        let mut inner = self.lock();
        let (late, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut inner.waiting).into_iter().partition(|w| w.since.elapsed() > deadline);
        inner.waiting = waiting;
        for waiter in late {
            self.seen.waited(waiter.since.elapsed());
            self.seen.refused();
            inner.troubles.note(
                PageRange::new(waiter.page.into(), 1),
                &format!("a touch of page {} waited for {deadline_ms} ms, its fault deadline", waiter.page),
            );
            inner.refuse(&waiter.mapping, waiter.page.into());
        }
    }
}
