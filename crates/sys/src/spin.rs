//! Whether to look again for a little before sleeping. A sleeping thread costs its waking; a looking one a processor,
//! which the peer, or whoever else, may need. So it is tried: some waits sleeping, some looking, and what was faster
//! is done for a while. Who waits for long does not look at all, so that an idle connection costs nothing.

use std::time::{Duration, Instant};

/// A wait of at most so long tells something: data followed data.
const CLOSE: Duration = Duration::from_micros(300);
/// So many close waits in a row before a look.
const IN_A_ROW: u32 = 4;
/// Waits of a trial.
const TRIAL: u32 = 64;
/// Waits until the next trial; twice as many after each in which looking did not help.
const SETTLED: u32 = 1024;
const LONGEST_SETTLED: u32 = 1 << 14;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    TrySleeping,
    TryLooking { slept: Duration },
    Settled { look: bool },
}

/// The memory of one waiter.
#[derive(Clone, Debug)]
pub struct Spin {
    phase: Phase,
    /// Waits in this phase, and their time.
    waits: u32,
    time: Duration,
    in_a_row: u32,
    settled_for: u32,
    /// How long a look is at most; nothing where there is one processor.
    longest: Duration,
}

impl Spin {
    /// One that has tried nothing, and looks for so long at most.
    pub fn new(longest: Duration) -> Spin {
        // Not the standard library's count, which reads files of control groups.
        let processors = rustix::thread::sched_getaffinity(None);
        let several_processors = processors.is_ok_and(|set| set.count() > 1);
        Self::looking(if several_processors { longest } else { Duration::ZERO })
    }

    fn looking(longest: Duration) -> Spin {
        Spin {
            phase: Phase::TrySleeping,
            waits: 0,
            time: Duration::ZERO,
            in_a_row: 0,
            settled_for: SETTLED,
            longest,
        }
    }

    /// How long to look before the next sleep.
    pub fn budget(&self) -> Duration {
        let look = matches!(self.phase, Phase::TryLooking { .. } | Phase::Settled { look: true });
        if look && self.in_a_row >= IN_A_ROW { self.longest } else { Duration::ZERO }
    }

    /// A wait has ended in data, after so long.
    pub fn waited(&mut self, time: Duration) {
        if time > CLOSE {
            self.in_a_row = 0;
            return;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.waits += 1;
        self.time += time;
        match self.phase {
            Phase::TrySleeping if self.waits >= TRIAL => self.enter(Phase::TryLooking { slept: self.time }),
            // Nine tenths: what helps less is not worth a processor. In vain as soon as the time is used up.
            Phase::TryLooking { slept } if self.time > slept * 9 / 10 => {
                self.settled_for = (self.settled_for * 2).min(LONGEST_SETTLED);
                self.enter(Phase::Settled { look: false });
            }
            Phase::TryLooking { .. } if self.waits >= TRIAL => {
                self.settled_for = SETTLED;
                self.enter(Phase::Settled { look: true });
            }
            Phase::Settled { .. } if self.waits >= self.settled_for => self.enter(Phase::TrySleeping),
            _ => {}
        }
    }

    fn enter(&mut self, phase: Phase) {
        (self.phase, self.waits, self.time) = (phase, 0, Duration::ZERO);
    }
}

/// Looks again and again for so long; none where nothing came. Where the time is nothing it does not look at all.
pub fn look<T>(budget: Duration, mut now: impl FnMut() -> Option<T>) -> Option<T> {
    let began = Instant::now();
    while began.elapsed() < budget {
        match now() {
            None => std::hint::spin_loop(),
            found => return found,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_micros(50);

    fn wait(spin: &mut Spin, times: u32, sleeping_us: u64, looking_us: u64) {
        for _ in 0..times {
            let time = if spin.budget().is_zero() { sleeping_us } else { looking_us };
            spin.waited(Duration::from_micros(time));
        }
    }

    #[test]
    fn a_look_ends_with_what_came_or_with_its_time() {
        let mut looks = 0;
        let mut third = || {
            looks += 1;
            (looks == 3).then_some(looks)
        };
        assert_eq!(look(Duration::ZERO, &mut third), None);
        assert_eq!(look(Duration::from_secs(60), &mut third), Some(3), "it did not look before");
        assert_eq!(look(Duration::from_micros(1), || None::<()>), None);
    }

    #[test]
    fn looks_where_that_is_faster() {
        let mut spin = Spin::looking(LOOK);
        wait(&mut spin, TRIAL * 2, 20, 8);
        assert_eq!(spin.phase, Phase::Settled { look: true });
        assert_eq!(spin.budget(), LOOK);
        wait(&mut spin, SETTLED, 20, 8);
        assert_eq!(spin.phase, Phase::TrySleeping);
        // The peer shares our processor: it gets it only when we sleep.
        wait(&mut spin, TRIAL * 2, 13, 63);
        assert_eq!(spin.phase, Phase::Settled { look: false });
        wait(&mut spin, SETTLED, 13, 63);
        assert_eq!(spin.phase, Phase::Settled { look: false }, "the next trial is further away");
    }

    #[test]
    fn does_not_look_when_little_happens() {
        let mut spin = Spin::looking(LOOK);
        wait(&mut spin, TRIAL * 2, 20, 8);
        wait(&mut spin, 1, 1_000, 1_000);
        assert_eq!(spin.budget(), Duration::ZERO);
        wait(&mut spin, IN_A_ROW - 1, 20, 8);
        assert_eq!(spin.budget(), Duration::ZERO);
        wait(&mut spin, 1, 20, 8);
        assert_eq!(spin.budget(), LOOK);
        let mut alone = Spin::looking(Duration::ZERO);
        wait(&mut alone, TRIAL * 2, 20, 8);
        assert_eq!(alone.budget(), Duration::ZERO);
    }
}
