//! Several measurements in turns, and what is said of them.

use crate::failure::Result;
use crate::measure::median;

/// Results of each measurement, round by round.
pub struct Rounds(Vec<Vec<f64>>);

impl Rounds {
    /// Makes every one of `count` measurements once a round, in rotated order, and backwards every
    /// second round: whatever drifts meanwhile on the machine meets all of them.
    pub fn run(count: usize, rounds: usize, mut once: impl FnMut(usize) -> Result<f64>) -> Result<Rounds> {
        let mut results = vec![Vec::new(); count];
        for round in 0..rounds {
            for n in 0..count {
                let which = (n + round / 2) % count;
                let which = if round.is_multiple_of(2) { which } else { count - 1 - which };
                results[which].push(once(which)?);
            }
        }
        Ok(Rounds(results))
    }

    /// The median of one of them.
    pub fn of(&self, which: usize) -> f64 {
        median(&self.0[which])
    }

    /// How many rounds.
    pub fn len(&self) -> usize {
        self.0.first().map_or(0, Vec::len)
    }

    /// The median of one by another, round by round.
    pub fn ratio(&self, dividend: usize, divisor: usize) -> f64 {
        let pairs = self.0[dividend].iter().zip(&self.0[divisor]);
        median(&pairs.map(|(above, below)| above / below).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_made_once_a_round_and_backwards_every_second() {
        let mut order = Vec::new();
        let rounds = Rounds::run(3, 3, |n| {
            order.push(n);
            Ok(n as f64 + 1.0)
        })
        .unwrap();
        assert_eq!(order, [0, 1, 2, 2, 1, 0, 1, 2, 0]);
        assert_eq!((rounds.of(1), rounds.len(), rounds.ratio(2, 0)), (2.0, 3, 3.0));
    }
}
