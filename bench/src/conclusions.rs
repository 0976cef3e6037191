//! Conclusions of a paper, asked of this run: each is a number that was measured, and a rule that
//! judges it. A row that repeats a table counts those that hold; figures of machines of another age
//! are printed beside, and never counted.

use crate::failure::{Result, failed};
use crate::row::{Bar, Measured, rounded};
use crate::sprite::table::cell;
use serde_json::{Value, json};

/// The unit of a row that counts them.
pub const UNIT: &str = "of the paper's conclusions hold";

/// One conclusion.
#[derive(Clone, Debug)]
pub struct Conclusion {
    /// What the paper says.
    says: &'static str,
    /// The number that is judged, in words.
    asks: String,
    /// That number; none: this run has nothing to judge by.
    value: Option<f64>,
    rule: Bar,
    /// Why it does not hold, or is not judged, where that is known.
    why: &'static str,
}

impl Conclusion {
    /// That `value`, which is `asks` in words, must be as `rule` says.
    pub fn new(says: &'static str, asks: impl Into<String>, value: f64, rule: Bar) -> Conclusion {
        Conclusion { says, asks: asks.into(), value: value.is_finite().then_some(value), rule, why: "" }
    }

    /// One that nothing here measures.
    pub fn not_asked(says: &'static str, why: &'static str) -> Conclusion {
        Conclusion { says, asks: "nothing".into(), value: None, rule: Bar::Exactly(1.0), why }
    }

    /// Says why it does not hold, should it not.
    pub fn unless(mut self, why: &'static str) -> Conclusion {
        self.why = why;
        self
    }

    fn holds(&self) -> bool {
        self.value.is_some_and(|value| self.rule.is_met(value))
    }

    fn to_json(&self) -> Value {
        let why = Some(self.why).filter(|why| !self.holds() && !why.is_empty());
        json!({
            "says": self.says,
            "asks": self.asks,
            "measured": self.value.map(rounded),
            "rule": self.value.map(|_| self.rule.to_string()),
            "holds": self.value.map(|_| self.holds()),
            "why": why,
        })
    }
}

/// The result of a row that asks these: how many hold, of how many. If none can be judged the row
/// has failed.
pub fn measured(conclusions: &[Conclusion], runs: usize, mut detail: Value) -> Result<Measured> {
    if conclusions.iter().all(|one| one.value.is_none()) {
        return failed("nothing was measured by which a conclusion could be judged");
    }
    detail["of"] = json!(conclusions.len());
    detail["conclusions"] = conclusions.iter().map(Conclusion::to_json).collect();
    let hold = conclusions.iter().filter(|one| one.holds()).count();
    Ok(Measured::single(hold as f64, runs, detail))
}

/// The list that a row's page has of them.
pub fn list(detail: &Value) -> String {
    let mut text = String::from("\nThe paper's conclusions, and the rule by which each is judged here:\n\n");
    for one in detail["conclusions"].as_array().into_iter().flatten() {
        let verdict = match one["holds"].as_bool() {
            Some(true) => "holds",
            Some(false) => "does not hold",
            None => "not judged",
        };
        text.push_str(&format!("- {}: **{verdict}**", cell(&one["says"])));
        if let Some(rule) = one["rule"].as_str() {
            text.push_str(&format!(". {}: {}, must be {rule}", cell(&one["asks"]), cell(&one["measured"])));
        }
        match one["why"].as_str() {
            Some(why) => text.push_str(&format!(". Why: {why}.\n")),
            None => text.push_str(".\n"),
        }
    }
    text
}

/// How far the values are from each other: the most by the least.
pub fn spread(values: &[f64]) -> f64 {
    crate::measure::most(values) / crate::measure::least(values)
}

/// Which of the ratios is furthest from 1, whichever way. NaN where any is no number.
pub fn furthest(ratios: &[f64]) -> f64 {
    let distance = |ratio: &f64| ratio.ln().abs();
    if ratios.iter().any(|ratio| ratio.is_nan()) {
        return f64::NAN;
    }
    ratios.iter().copied().max_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(f64::NAN)
}

/// Named numbers in one line, for the words of a conclusion.
pub fn named(of: &str, numbers: &[(&str, f64)]) -> String {
    let each: Vec<String> =
        numbers.iter().map(|(name, number)| format!("{name} {}", rounded(*number))).collect();
    format!("{of} ({})", each.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_is_counted_and_what_is_not_judged_is_named() {
        let all = [
            Conclusion::new("one", "a ÷ b", 1.5, Bar::Between(0.5, 2.0)).unless("never said"),
            Conclusion::new("two", "c ÷ d", 3.0, Bar::AtMost(2.0)).unless("of something"),
            Conclusion::not_asked("three", "nobody counts it"),
        ];
        let measured = measured(&all, 4, json!({})).unwrap();
        assert_eq!((measured.value, measured.detail["of"].as_u64()), (1.0, Some(3)));
        let text = list(&measured.detail);
        assert!(text.contains("- one: **holds**. a ÷ b: 1.5, must be 0.5 to 2.\n"), "{text}");
        assert!(
            text.contains("- two: **does not hold**. c ÷ d: 3.0, must be ≤ 2. Why: of something.\n"),
            "{text}"
        );
        assert!(text.contains("- three: **not judged**. Why: nobody counts it.\n"), "{text}");
    }

    #[test]
    fn a_run_without_numbers_fails() {
        let none = [Conclusion::new("one", "0 ÷ 0", f64::NAN, Bar::AtMost(1.0))];
        assert!(measured(&none, 1, json!({})).is_err());
        assert!(measured(&[], 1, json!({})).is_err());
    }

    #[test]
    fn distances_are_by_ratio() {
        assert_eq!(furthest(&[0.25, 3.0, 1.0]), 0.25);
        assert!(furthest(&[0.25, f64::NAN]).is_nan() && furthest(&[]).is_nan());
        assert_eq!(spread(&[2.0, 1.0, 4.0]), 4.0);
    }
}
