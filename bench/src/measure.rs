//! Measuring two sides alternately, and what is said of the results.

use crate::failure::{Result, failed};
use crate::row::{Measured, rounded};
use serde_json::{Value, json};
use std::time::Instant;

/// Results of both sides, pair by pair.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    /// Commonhold's.
    pub ours: Vec<f64>,
    /// The peer's.
    pub theirs: Vec<f64>,
}

/// Runs both sides `pairs` times, one right after the other, in the other order each time: whatever drifts
/// meanwhile on the machine meets both.
pub fn alternate(
    pairs: usize,
    mut ours: impl FnMut(usize) -> Result<f64>,
    mut theirs: impl FnMut(usize) -> Result<f64>,
) -> Result<Pairs> {
    let mut results = Pairs::default();
    for n in 0..pairs {
        if n.is_multiple_of(2) {
            results.ours.push(ours(n)?);
            results.theirs.push(theirs(n)?);
        } else {
            results.theirs.push(theirs(n)?);
            results.ours.push(ours(n)?);
        }
    }
    Ok(results)
}

/// As [`alternate`], where each pair is the best of `tries` on either side, made in turns. For work that needs
/// this processor alone: what another program takes away is no part of it.
pub fn alternate_best(
    pairs: usize,
    tries: usize,
    mut ours: impl FnMut(usize) -> Result<f64>,
    mut theirs: impl FnMut(usize) -> Result<f64>,
) -> Result<Pairs> {
    let mut results = Pairs::default();
    for n in 0..pairs {
        let tried = alternate(tries, |k| ours(n * tries + k), |k| theirs(n * tries + k))?;
        results.ours.push(least(&tried.ours));
        results.theirs.push(least(&tried.theirs));
    }
    Ok(results)
}

impl Pairs {
    /// Ours by theirs, pair by pair.
    pub fn ratios(&self) -> Vec<f64> {
        self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| ours / theirs).collect()
    }

    /// Median of the pairs' ratios.
    pub fn ratio(&self) -> f64 {
        median(&self.ratios())
    }

    /// Between what that median lies, in 95 of 100 such runs.
    pub fn ratio_interval(&self) -> [f64; 2] {
        median_interval(&self.ratios())
    }

    /// The sum of ours by the sum of theirs: what is rare and dear counts in it.
    pub fn ratio_of_totals(&self) -> f64 {
        self.ours.iter().sum::<f64>() / self.theirs.iter().sum::<f64>()
    }

    /// Appends the pairs of `other`.
    pub fn extend(&mut self, other: Pairs) {
        self.ours.extend(other.ours);
        self.theirs.extend(other.theirs);
    }

    /// The result of a row whose value is `value`. Its noise is that of the pairs' ratios.
    pub fn measured(&self, value: f64, detail: Value) -> Measured {
        let [least, most] = self.ratio_interval();
        let interval = Some([least.min(value), most.max(value)]);
        Measured { value, interval, ..Measured::median(&self.ratios(), detail) }
    }

    /// Both medians, with `scale` applied (1e6: microseconds of seconds).
    pub fn summary(&self, scale: f64) -> Value {
        json!({
            "ratio": rounded(self.ratio()),
            "ratio_between": self.ratio_interval().map(rounded),
            "commonhold": rounded(median(&self.ours) * scale),
            "peer": rounded(median(&self.theirs) * scale),
            "pairs": self.ours.len(),
        })
    }
}

/// The middle value (the mean of both middle ones); NaN of none.
pub fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5)
}

/// An interval that has the median in it in 95 of 100 such samples, whatever the distribution: as far to either side of the
/// middle as a coin thrown so often comes. With few values it is from the least to the most.
pub fn median_interval(values: &[f64]) -> [f64; 2] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let Some(last) = sorted.len().checked_sub(1) else { return [f64::NAN; 2] };
    let below = (count / 2.0 - 1.96 * count.sqrt() / 2.0).floor().max(0.0) as usize;
    [sorted[below], sorted[last - below]]
}

/// The value below which that share of the values lies, between neighbours by their distance.
pub fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = share * last as f64;
    let (below, part) = (at.floor() as usize, at.fract());
    sorted[below] + part * (sorted[(below + 1).min(last)] - sorted[below])
}

/// A number that is more than nothing where anything was measured, whatever a bar that is a limit
/// above says of 0.
pub fn some(value: f64, what: &str) -> Result<f64> {
    if value > 0.0 { Ok(value) } else { failed(format!("nothing was measured: {what} is {value}")) }
}

/// Least value; NaN of none.
pub fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::min)
}

/// Greatest value; NaN of none.
pub fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::max)
}

/// Median seconds of one `work`: each is timed on its own, so that a pause of the whole machine counts once.
pub fn each(rounds: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let times: Result<Vec<f64>> = (0..rounds).map(|_| seconds(&mut work)).collect();
    Ok(median(&times?))
}

/// Seconds that `work` takes.
pub fn seconds<T>(work: impl FnOnce() -> Result<T>) -> Result<f64> {
    let start = Instant::now();
    let kept = work()?;
    let elapsed = start.elapsed().as_secs_f64();
    drop(kept);
    Ok(elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_swapped_every_pair() {
        let log = std::cell::RefCell::new(String::new());
        let note = |c| {
            log.borrow_mut().push(c);
            Ok(1.0)
        };
        alternate(3, |_| note('a'), |_| note('b')).unwrap();
        assert_eq!(*log.borrow(), "abbaab");
    }

    #[test]
    fn the_best_of_each_side_makes_a_pair() {
        let times = [5.0, 1.0, 4.0, 2.0, 3.0, 9.0];
        let pairs = alternate_best(2, 3, |n| Ok(times[n]), |n| Ok(times[n] * 2.0)).unwrap();
        assert_eq!((pairs.ours, pairs.theirs), (vec![1.0, 2.0], vec![2.0, 4.0]));
    }

    #[test]
    fn nothing_is_no_measurement() {
        assert_eq!(some(0.5, "time").unwrap(), 0.5);
        assert!(some(0.0, "time").is_err() && some(f64::NAN, "time").is_err());
    }

    #[test]
    fn percentiles() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(percentile(&[0.0, 10.0], 0.9), 9.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_interval_of_a_median() {
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        // 50 ± 9.8 of 100.
        assert_eq!(median_interval(&values), [40.0, 59.0]);
        assert_eq!(median_interval(&[2.0, 1.0, 3.0]), [1.0, 3.0]);
        assert!(median_interval(&[])[0].is_nan());
    }

    #[test]
    fn totals_count_the_tail() {
        let pairs = Pairs { ours: vec![1.0, 1.0, 10.0], theirs: vec![2.0, 2.0, 2.0] };
        assert_eq!((pairs.ratio(), pairs.ratio_of_totals()), (0.5, 2.0));
    }
}
