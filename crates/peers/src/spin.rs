//! Whether to look again for a little before sleeping: a sleeping thread costs its waking, a looking one a processor.
//! Answers come tens of microseconds after requests; where they do, looking pays. Elsewhere nobody looks.

use std::time::{Duration, Instant};

/// Longest look.
const LOOK: Duration = Duration::from_micros(50);
/// A wait that ended within so long would have been worth looking through: a look, and a waking.
const SHORT: Duration = Duration::from_micros(80);
/// Score from which on one looks, and the highest.
const WORTH: u32 = 4;
const HIGHEST: u32 = 8;

/// The memory of one waiter.
#[derive(Debug)]
pub struct Spin {
    score: u32,
    several_processors: bool,
}

impl Spin {
    /// One that does not look yet.
    pub fn new() -> Spin {
        let several_processors = std::thread::available_parallelism().is_ok_and(|n| n.get() > 1);
        Spin { score: 0, several_processors }
    }

    /// How long to look before the next sleep.
    pub fn budget(&self) -> Duration {
        if self.several_processors && self.score >= WORTH { LOOK } else { Duration::ZERO }
    }

    /// A wait that began then has ended: in data, after looking or sleeping.
    pub fn waited(&mut self, since: Instant) {
        if since.elapsed() <= SHORT {
            self.score = (self.score + 1).min(HIGHEST);
        } else {
            self.score = self.score.saturating_sub(2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_only_after_several_short_waits() {
        let mut spin = Spin { score: 0, several_processors: true };
        let long_ago = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        for _ in 0..WORTH {
            assert_eq!(spin.budget(), Duration::ZERO);
            // A time to come: no time has passed, however slow the machine.
            spin.waited(Instant::now() + Duration::from_secs(1));
        }
        assert_eq!(spin.budget(), LOOK);
        spin.waited(long_ago);
        assert_eq!(spin.budget(), Duration::ZERO);
        spin.waited(long_ago);
        spin.waited(long_ago);
        assert_eq!(spin.score, 0);
        assert_eq!(Spin { score: HIGHEST, several_processors: false }.budget(), Duration::ZERO);
    }
}
