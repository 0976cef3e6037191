//! A row: one bar of the project or one published table, and what a run of it gives.

use crate::context::Context;
use crate::failure::{Failure, Result, failed};
use crate::measure::{least, median, median_interval, most};
use serde_json::{Map, Value, json};
use std::fmt;
use std::time::Duration;

/// No row may take longer: whoever runs all of them has to be able to stop in between.
pub const LONGEST: Duration = Duration::from_secs(40 * 60);

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
    /// How long it may take, [`LONGEST`] at most; then it is stopped.
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

/// Whether a value is as it must be, as far as its noise lets one tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Met,
    /// It is not.
    Missed,
    /// The limit lies within the noise.
    CannotTell,
}

impl Verdict {
    /// For `detail.met`: null where nobody can tell.
    pub fn met(self) -> Option<bool> {
        match self {
            Verdict::Met => Some(true),
            Verdict::Missed => Some(false),
            Verdict::CannotTell => None,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Met => "met",
            Verdict::Missed => "MISSED",
            Verdict::CannotTell => "cannot tell, it is within the noise",
        })
    }
}

impl Bar {
    /// What is to be said of a value that lies between those two.
    pub fn judge(self, value: f64, interval: Option<[f64; 2]>) -> Verdict {
        let [least, most] = interval.unwrap_or([value, value]);
        match (self.is_met(least), self.is_met(most)) {
            (true, true) => Verdict::Met,
            (false, false) => Verdict::Missed,
            _ => Verdict::CannotTell,
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// The value.
    pub value: f64,
    /// Its noise: between what it lies, in 95 of 100 such runs. None: it is a count, without any,
    /// or nobody knows.
    pub interval: Option<[f64; 2]>,
    /// How many single results it is made of.
    pub runs: usize,
    /// The least of them.
    pub min: f64,
    /// The most of them.
    pub max: f64,
    /// The same measured in another way that matters as much, each judged by the same bar and named
    /// with the value.
    pub beside: Vec<(String, f64, Option<[f64; 2]>)>,
    /// Everything else worth knowing.
    pub detail: Value,
}

impl Measured {
    /// A value that was got in one piece.
    pub fn single(value: f64, runs: usize, detail: Value) -> Measured {
        Measured { value, runs, min: value, max: value, detail, ..Measured::default() }
    }

    /// The worst of single results, where more is worse.
    pub fn most(each: &[f64], detail: Value) -> Measured {
        Measured { min: least(each), ..Measured::single(most(each), each.len(), detail) }
    }

    /// The median of single results, with its noise.
    pub fn median(each: &[f64], detail: Value) -> Measured {
        let interval = Some(median_interval(each));
        Measured {
            min: least(each),
            max: most(each),
            interval,
            ..Measured::single(median(each), each.len(), detail)
        }
    }

    /// With this beside it.
    pub fn beside(mut self, name: &str, value: f64, interval: Option<[f64; 2]>) -> Measured {
        self.beside.push((name.to_owned(), value, interval));
        self
    }

    /// Itself, if there is a value: a row that measured nothing has failed, whatever a bar says of
    /// nothing.
    fn there(&self) -> Result<&Measured> {
        match self.value.is_finite() && self.runs > 0 {
            true => Ok(self),
            false => failed(format!("it measured nothing: {} of {} runs", self.value, self.runs)),
        }
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
    let said = match outcome {
        Ok(measured) => measured.there().map_err(|failure| failure.to_string()),
        Err(failure) => Err(failure.to_string()),
    };
    match said {
        Ok(measured) => insert_measured(&mut line, row, measured),
        Err(why) => {
            line.insert("value".into(), Value::Null);
            line.insert("unit".into(), json!(row.unit()));
            line.insert("skipped".into(), json!(why));
            if !matches!(outcome, Err(Failure::Skipped(_))) {
                line.insert("failed".into(), json!(true));
            }
        }
    }
    Value::Object(line)
}

fn insert_measured(line: &mut Map<String, Value>, row: &dyn Row, measured: &Measured) {
    let both = |interval: Option<[f64; 2]>| interval.map(|ends| ends.map(rounded));
    line.insert("value".into(), json!(rounded(measured.value)));
    line.insert("unit".into(), json!(row.unit()));
    line.insert("interval".into(), json!(both(measured.interval)));
    line.insert("runs".into(), json!(measured.runs));
    line.insert("min".into(), json!(rounded(measured.min)));
    line.insert("max".into(), json!(rounded(measured.max)));
    let verdict = |value, interval| row.bar().map(|bar| bar.judge(value, interval));
    let beside = measured.beside.iter().map(|(name, value, interval)| {
        json!({
            "name": name,
            "value": rounded(*value),
            "interval": both(*interval),
            "verdict": verdict(*value, *interval).map(|verdict| verdict.to_string()),
        })
    });
    line.insert("beside".into(), beside.collect());
    let mut detail = measured.detail.clone();
    line.insert("of".into(), detail["of"].clone());
    if let (Some(bar), Some(map)) = (row.bar(), detail.as_object_mut()) {
        let verdict = bar.judge(measured.value, measured.interval);
        map.insert("bar".into(), json!(bar.to_string()));
        map.insert("met".into(), json!(verdict.met()));
        line.insert("verdict".into(), json!(verdict.to_string()));
    }
    line.insert("detail".into(), detail);
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
    fn a_limit_within_the_noise_is_neither_met_nor_missed() {
        let judge = |value, interval| Bar::AtMost(1.0).judge(value, interval);
        assert_eq!(judge(0.9, None), Verdict::Met);
        assert_eq!(judge(0.9, Some([0.8, 0.99])), Verdict::Met);
        assert_eq!(judge(0.9, Some([0.8, 1.1])), Verdict::CannotTell);
        assert_eq!(judge(1.05, Some([1.01, 1.1])), Verdict::Missed);
        assert_eq!(judge(f64::NAN, None), Verdict::Missed);
    }

    #[test]
    fn a_row_that_measured_nothing_has_failed() {
        let row = crate::rows::all()[0];
        for nothing in [Measured::single(f64::NAN, 3, json!({})), Measured::single(0.0, 0, json!({}))] {
            let line = to_json(row, &Ok(nothing));
            assert!(line["failed"] == true && line["value"].is_null(), "{line}");
        }
        let line = to_json(row, &Ok(Measured::median(&[1.0, 1.0, 1.5], json!({})).beside("b", 0.5, None)));
        assert!(line["detail"]["met"].is_null() && line["interval"] == json!([1.0, 1.5]), "{line}");
        assert_eq!(line["beside"][0]["verdict"], "met");
    }

    #[test]
    fn rounding_keeps_four_digits() {
        assert_eq!(rounded(1.234_56), 1.235);
        assert_eq!(rounded(123_456.0), 123_500.0);
        assert_eq!(rounded(0.000_123_456), 0.000_123_5);
        assert_eq!(rounded(0.0), 0.0);
    }
}
