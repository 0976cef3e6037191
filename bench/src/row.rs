//! A row: one bar of the project or one published table, and what a run of it gives.

use crate::context::Context;
use crate::failure::{Failure, Result};
use serde_json::{Map, Value, json};
use std::fmt;
use std::time::Duration;

/// One thing that is measured.
pub trait Row: Sync {
    /// Its name, for ever.
    fn id(&self) -> &'static str;
    /// Unit of the value.
    fn unit(&self) -> &'static str;
    /// What the value must be; none: it is reported only.
    fn bar(&self) -> Option<Bar>;
    /// What is measured, in one line.
    fn about(&self) -> &'static str;
    /// How long it may take; then it is stopped.
    fn limit(&self) -> Duration {
        Duration::from_secs(1200)
    }
    /// Measures it.
    fn run(&self, context: &Context) -> Result<Measured>;
    /// Tables for people: the published figures beside ours. Empty: the plain listing of the detail is enough.
    fn page(&self, detail: &Value) -> String {
        let _ = detail;
        String::new()
    }
}

/// What a value must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// No more than that.
    AtMost(f64),
    /// No less than that.
    AtLeast(f64),
    /// Just that.
    Exactly(f64),
    /// No less than the first, no more than the second.
    Between(f64, f64),
}

impl Bar {
    /// Whether `value` is as it must be.
    pub fn is_met(self, value: f64) -> bool {
        match self {
            Bar::AtMost(limit) => value <= limit,
            Bar::AtLeast(limit) => value >= limit,
            Bar::Exactly(wanted) => value == wanted,
            Bar::Between(least, most) => (least..=most).contains(&value),
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bar::AtMost(limit) => write!(f, "≤ {limit}"),
            Bar::AtLeast(limit) => write!(f, "≥ {limit}"),
            Bar::Exactly(wanted) => write!(f, "= {wanted}"),
            Bar::Between(least, most) => write!(f, "{least} to {most}"),
        }
    }
}

/// What a run gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The value.
    pub value: f64,
    /// How many single results it is made of.
    pub runs: usize,
    /// The least of them.
    pub min: f64,
    /// The most of them.
    pub max: f64,
    /// Everything else worth knowing.
    pub detail: Value,
}

impl Measured {
    /// A value that was got in one piece.
    pub fn single(value: f64, runs: usize, detail: Value) -> Measured {
        Measured { value, runs, min: value, max: value, detail }
    }
}

/// Rounds to four significant digits, so that people can read the detail.
pub fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    let scale = 10f64.powi(digits.clamp(-12, 12));
    (value * scale).round() / scale
}

/// The line that a run prints.
pub fn to_json(row: &dyn Row, outcome: &Result<Measured>) -> Value {
    let mut line = Map::new();
    line.insert("id".into(), json!(row.id()));
    match outcome {
        Ok(measured) => {
            line.insert("value".into(), json!(rounded(measured.value)));
            line.insert("unit".into(), json!(row.unit()));
            line.insert("runs".into(), json!(measured.runs));
            line.insert("min".into(), json!(rounded(measured.min)));
            line.insert("max".into(), json!(rounded(measured.max)));
            let mut detail = measured.detail.clone();
            if let (Some(bar), Some(map)) = (row.bar(), detail.as_object_mut()) {
                map.insert("bar".into(), json!(bar.to_string()));
                map.insert("met".into(), json!(bar.is_met(measured.value)));
            }
            line.insert("detail".into(), detail);
        }
        Err(failure) => {
            line.insert("value".into(), Value::Null);
            line.insert("unit".into(), json!(row.unit()));
            line.insert("skipped".into(), json!(failure.to_string()));
            if matches!(failure, Failure::Failed(_)) {
                line.insert("failed".into(), json!(true));
            }
        }
    }
    Value::Object(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars() {
        assert!(
            Bar::AtMost(1.3).is_met(1.3)
                && !Bar::AtMost(1.3).is_met(1.31)
                && !Bar::AtMost(1.3).is_met(f64::NAN)
        );
        assert!(Bar::AtLeast(0.6).is_met(0.6) && !Bar::AtLeast(0.6).is_met(0.59));
        assert!(Bar::Exactly(0.0).is_met(0.0) && !Bar::Exactly(0.0).is_met(1.0));
        assert_eq!(Bar::AtMost(1.02).to_string(), "≤ 1.02");
    }

    #[test]
    fn rounding_keeps_four_digits() {
        assert_eq!(rounded(1.234_56), 1.235);
        assert_eq!(rounded(123_456.0), 123_500.0);
        assert_eq!(rounded(0.000_123_456), 0.000_123_5);
        assert_eq!(rounded(0.0), 0.0);
    }
}
