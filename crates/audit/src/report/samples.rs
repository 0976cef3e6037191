//! Figures over several samples: when each is due, what they average, and how sure that is.
//!
//! Samples taken soon after each other lean on each other: the machine has hardly changed, and an interval that takes
//! them for independent is too narrow. Where that shows (autocorrelation at lag 1), means of batches of neighbours take
//! their place, twice as many in a batch until neighbours agree no more than chance would make them.

use super::{Report, SampledFigure, Samples, named};
use statrs::distribution::{ContinuousCDF, StudentsT};
use std::time::Duration;

/// With fewer batches than this Student's t grows so large that the interval says nothing.
const LEAST_BATCHES: usize = 8;
/// Two-sided 95 %: this much lies below the upper end.
const BELOW_UPPER_END: f64 = 0.975;
/// One-sided 95 % of the normal distribution, for the test of autocorrelation.
const BEYOND_CHANCE: f64 = 1.645;

/// When samples are due: at multiples of `every` from the start, up to and with `span`.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    every: Duration,
    span: Duration,
}

/// What comes after a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// When, from the start; none: that was the last.
    pub due: Option<Duration>,
    /// The sample took so long that one or more were missed.
    pub overrun: bool,
}

impl Schedule {
    /// One sample at the start, and every `every` (not zero) from then on.
    pub fn new(every: Duration, span: Duration) -> Self {
        Self { every: every.max(Duration::from_millis(1)), span }
    }

    /// Samples if none is missed.
    pub fn count(&self) -> u64 {
        1 + u64::try_from(self.span.as_nanos() / self.every.as_nanos()).unwrap_or(u64::MAX - 1)
    }

    /// After the sample that was due at `due` and was done at `now`, both from the start. What was missed is left
    /// out, not made up for: samples keep their distance.
    pub fn after(&self, due: Duration, now: Duration) -> Next {
        let mut next = due + self.every;
        let overrun = now > next;
        if overrun {
            let step = self.every.as_nanos();
            let steps = now.as_nanos().div_ceil(step);
            next = u64::try_from(steps * step).map_or(Duration::MAX, Duration::from_nanos);
        }
        Next { due: (next <= self.span).then_some(next), overrun }
    }
}

/// Gathers the figures of samples.
#[derive(Clone, Debug)]
pub struct Gathered {
    every: Duration,
    first: u64,
    last: u64,
    count: u64,
    overruns: u64,
    values: Vec<(&'static str, Vec<f64>)>,
}

impl Gathered {
    /// None yet.
    pub fn new(every: Duration) -> Self {
        let values =
            named::of(&Report::default()).into_iter().map(|figure| (figure.name, Vec::new())).collect();
        Self { every, first: 0, last: 0, count: 0, overruns: 0, values }
    }

    /// One sample more.
    pub fn add(&mut self, report: &Report) {
        if self.count == 0 {
            self.first = report.taken_at;
        }
        self.last = report.taken_at;
        self.count += 1;
        for ((_, values), figure) in self.values.iter_mut().zip(named::of(report)) {
            values.extend(figure.value.filter(|value| value.is_finite()));
        }
    }

    /// A sample took longer than the time to the next.
    pub fn overran(&mut self) {
        self.overruns += 1;
    }

    /// Means and intervals. Figures that no sample had are left out.
    pub fn finish(&self, ended_early: bool) -> Samples {
        Samples {
            count: self.count,
            span_s: self.last.saturating_sub(self.first),
            every_ms: u64::try_from(self.every.as_millis()).unwrap_or(u64::MAX),
            overruns: self.overruns,
            ended_early,
            figures: self.values.iter().filter_map(|(name, values)| figure(name, values)).collect(),
        }
    }
}

fn figure(name: &str, values: &[f64]) -> Option<SampledFigure> {
    let min = values.iter().copied().reduce(f64::min)?;
    let max = values.iter().copied().reduce(f64::max)?;
    let (batches, dependent) = independent(values);
    let half = half_width(&batches);
    // The mean is of all samples; the batches, which may leave out the oldest few, only tell how sure it is.
    let mean = mean(values);
    Some(SampledFigure {
        name: name.to_owned(),
        count: values.len() as u64,
        mean,
        low: half.map(|half| mean - half),
        high: half.map(|half| mean + half),
        batches: batches.len() as u64,
        dependent,
        min,
        max,
    })
}

/// Values that may be taken for independent: the samples, or means of batches; and whether even those are not.
fn independent(values: &[f64]) -> (Vec<f64>, bool) {
    let mut batches = values.to_vec();
    let mut size = 1;
    while lean_on_each_other(&batches) {
        size *= 2;
        if values.len() / size < LEAST_BATCHES {
            return (batches, true);
        }
        batches = batched(values, size);
    }
    (batches, false)
}

/// Means of so many neighbours each; what is left over is left out at the start, where a machine is least settled.
fn batched(values: &[f64], size: usize) -> Vec<f64> {
    values[values.len() % size..].chunks_exact(size).map(mean).collect()
}

/// Whether neighbours agree more than chance makes independent values agree.
fn lean_on_each_other(values: &[f64]) -> bool {
    let n = values.len();
    if n < LEAST_BATCHES {
        return false;
    }
    let mean = mean(values);
    let variance: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let together: f64 = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    // Independent values have an autocorrelation of -1/n at lag 1, and 1/√n about that.
    variance > 0.0 && together / variance > BEYOND_CHANCE / (n as f64).sqrt() - 1.0 / n as f64
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Half the width of the 95 % interval of the mean; none for a single value.
fn half_width(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let mean = mean(values);
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let student = StudentsT::new(0.0, 1.0, n - 1.0).ok().filter(|_| values.len() > 1)?;
    Some(student.inverse_cdf(BELOW_UPPER_END) * (variance / n).sqrt())
}

#[cfg(test)]
mod tests;
