//! How soon a host that died is started again, and when it is not.

use commonhold_points as points;
use std::time::Duration;

/// How the keeper restarts a host that dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartPolicy {
    /// A host that died sooner after its start than this died *young*: the next one waits.
    pub young_ms: u64,
    /// Pause after the second death in a row of a young host; doubled at each further one.
    pub first_ms: u64,
    /// Longest pause.
    pub longest_ms: u64,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        RestartPolicy { young_ms: 10_000, first_ms: 100, longest_ms: 5_000 }
    }
}

/// The pause before the next host. The first death is followed at once, however young the host was.
#[derive(Debug)]
pub(crate) struct Backoff {
    policy: RestartPolicy,
    next_ms: u64,
}

impl Backoff {
    pub fn new(policy: RestartPolicy) -> Self {
        Backoff { policy, next_ms: 0 }
    }

    /// Whether a host that lived this long died young.
    pub fn young(&self, lived: Duration) -> bool {
        lived < Duration::from_millis(self.policy.young_ms)
    }

    /// The pause after the death of a host that lived this long.
    pub fn after_death(&mut self, lived: Duration) -> Duration {
        if !self.young(lived) {
            self.next_ms = 0;
        }
        let pause = self.next_ms;
        if points::mutant("keeper.no_backoff") {
            return Duration::ZERO;
        }
        let doubled = pause.saturating_mul(2).max(self.policy.first_ms);
        self.next_ms = doubled.min(self.policy.longest_ms);
        Duration::from_millis(pause)
    }
}

/// How a host process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Not our child: the kernel does not say.
    Unknown,
}

/// What the host asked for before it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asked {
    #[default]
    Nothing,
    /// The keeper shall end too.
    Exit,
    /// Another host shall follow.
    Restart,
}

/// What the keeper does about a host that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    End,
    StartAfter(Duration),
}

/// Decides. `told_to_stop`: this host was sent SIGTERM on the keeper's behalf. A host that crashed meanwhile is
/// started again all the same: what only it and the keeper hold must not go because of a crash.
pub(crate) fn decide(
    asked: &Asked,
    told_to_stop: bool,
    ending: Ending,
    lived: Duration,
    backoff: &mut Backoff,
) -> Next {
    const SIGTERM: i32 = 15;
    match asked {
        Asked::Exit => Next::End,
        Asked::Restart => Next::StartAfter(Duration::ZERO),
        Asked::Nothing if told_to_stop && matches!(ending, Ending::Code(0) | Ending::Signal(SIGTERM)) => {
            Next::End
        }
        Asked::Nothing => Next::StartAfter(backoff.after_death(lived)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YOUNG: Duration = Duration::from_secs(1);
    const OLD: Duration = Duration::from_secs(11);

    #[test]
    fn pauses_double_up_to_the_longest_and_start_anew() {
        let mut backoff = Backoff::new(RestartPolicy::default());
        let mut pause = |lived| backoff.after_death(lived).as_millis();
        let young: Vec<u128> = (0..9).map(|_| pause(YOUNG)).collect();
        assert_eq!(young, [0, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(pause(OLD), 0);
        assert_eq!(pause(YOUNG), 100);
        assert_eq!(pause(OLD), 0);
    }

    #[test]
    fn what_follows_which_end() {
        let mut backoff = Backoff::new(RestartPolicy::default());
        let mut next = |asked, stop, ending| decide(&asked, stop, ending, OLD, &mut backoff);
        let at_once = Next::StartAfter(Duration::ZERO);
        assert_eq!(next(Asked::Exit, false, Ending::Signal(9)), Next::End);
        assert_eq!(next(Asked::Restart, true, Ending::Code(0)), at_once);
        assert_eq!(next(Asked::Nothing, false, Ending::Code(0)), at_once);
        assert_eq!(next(Asked::Nothing, false, Ending::Signal(15)), at_once);
        assert_eq!(next(Asked::Nothing, true, Ending::Signal(15)), Next::End);
        assert_eq!(next(Asked::Nothing, true, Ending::Code(0)), Next::End);
        assert_eq!(next(Asked::Nothing, true, Ending::Code(1)), at_once);
        assert_eq!(next(Asked::Nothing, true, Ending::Signal(11)), at_once);
        assert_eq!(next(Asked::Nothing, true, Ending::Unknown), at_once);
    }
}
