//! How much processor time reading may take, and whether it is spent.

use std::time::Duration;

/// Work that looks at frames or content stops earlier than work that every figure needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// smaps of processes, headers of files.
    Needed,
    /// Frame numbers and map counts: finer, not needed.
    Frames,
    /// Hashes: last, whatever is left.
    Content,
}

/// Processor time of this process (all threads) from one moment on.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    began: Duration,
    limit: Option<Duration>,
}

impl Budget {
    /// Begins now.
    pub fn new(limit: Option<Duration>) -> Self {
        Self { began: processor_time(), limit }
    }

    /// Processor time since it began.
    pub fn spent(&self) -> Duration {
        processor_time().saturating_sub(self.began)
    }

    /// Whether work of this kind may still begin.
    pub fn allows(&self, work: Work) -> bool {
        self.limit.is_none_or(|limit| fits(self.spent(), limit, work))
    }

    /// Why something was left out.
    pub fn why(&self) -> String {
        let seconds = self.limit.unwrap_or_default().as_secs_f64();
        format!("the budget of {seconds} s of processor time was spent: give a larger --budget")
    }
}

fn fits(spent: Duration, limit: Duration, work: Work) -> bool {
    let part = match work {
        Work::Needed => 0.85,
        Work::Frames => 0.6,
        Work::Content => 1.0,
    };
    spent < limit.mul_f64(part)
}

fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_allows_everything() {
        let budget = Budget::new(None);
        assert!(budget.allows(Work::Needed) && budget.allows(Work::Frames) && budget.allows(Work::Content));
    }

    #[test]
    fn a_spent_budget_allows_nothing_and_says_how_much_it_was() {
        let budget = Budget::new(Some(Duration::ZERO));
        assert!(!budget.allows(Work::Needed) && !budget.allows(Work::Content));
        assert!(budget.why().contains("0 s"), "{}", budget.why());
    }

    #[test]
    fn frames_stop_before_content_does() {
        let of_ten = |seconds, work| fits(Duration::from_secs(seconds), Duration::from_secs(10), work);
        assert!(of_ten(5, Work::Frames) && !of_ten(7, Work::Frames));
        assert!(of_ten(8, Work::Needed) && !of_ten(9, Work::Needed));
        assert!(of_ten(9, Work::Content) && !of_ten(10, Work::Content));
    }
}
