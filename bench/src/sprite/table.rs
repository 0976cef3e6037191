//! What both tables of the paper have in common: rounds over several methods, and Markdown.

use crate::failure::Result;
use crate::measure::median;

/// Runs every one of `count` measurements `rounds` times, in rotated order; the median of each.
pub fn rotate(count: usize, rounds: usize, mut once: impl FnMut(usize) -> Result<f64>) -> Result<Vec<f64>> {
    let mut results = vec![Vec::new(); count];
    for round in 0..rounds {
        for n in 0..count {
            let which = (n + round) % count;
            results[which].push(once(which)?);
        }
    }
    Ok(results.iter().map(|times| median(times)).collect())
}

/// A Markdown table.
pub fn markdown(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        text.push_str(&format!("| {} |\n", row.join(" | ")));
    }
    text
}

/// A number of a result's detail, for a table.
pub fn cell(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => "–".into(),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measurement_is_made_in_every_round() {
        let mut order = Vec::new();
        let results = rotate(3, 2, |n| {
            order.push(n);
            Ok(n as f64)
        });
        assert_eq!(results.unwrap(), [0.0, 1.0, 2.0]);
        assert_eq!(order, [0, 1, 2, 1, 2, 0]);
    }

    #[test]
    fn tables_are_markdown() {
        let text = markdown(&["a", "b"], &[vec!["1".into(), "2".into()]]);
        assert_eq!(text, "| a | b |\n|---|---|\n| 1 | 2 |\n");
    }
}
