//! `rebase.worst_ms`: programs that have little to gain must not pay for those that have.

use crate::context::Context;
use crate::failure::{Result, failed};
use crate::measure::{median, percentile};
use crate::rebase::programs::{find, programs};
use crate::rebase::watch::watch;
use crate::rebase::{Program, Rebased};
use crate::row::{Bar, Measured, Row, rounded};
use crate::sprite::table::{cell, markdown};
use serde_json::{Value, json};

const BAR: Bar = Bar::AtMost(0.1);

/// The row.
pub struct WorstMs;

impl Row for WorstMs {
    fn id(&self) -> &'static str {
        "rebase.worst_ms"
    }

    fn unit(&self) -> &'static str {
        "ms"
    }

    fn bar(&self) -> Option<Bar> {
        Some(BAR)
    }

    fn about(&self) -> &'static str {
        "the most time that any other program takes longer with copies than without, programs without copies that are started \
         so among them; its noise is what stock differs from stock"
    }

    fn page(&self, detail: &Value) -> String {
        let columns = ["program", "copies", "stock_ms", "added_ms", "noise_ms", "verdict"];
        let rows = detail["programs"].as_array().into_iter().flatten();
        let rows: Vec<Vec<String>> =
            rows.map(|row| columns.iter().map(|column| cell(&row[*column])).collect()).collect();
        format!(
            "\n{}",
            markdown(&["program", "copies", "stock ms", "added ms", "noise ms", "verdict"], &rows)
        )
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let mut programs = programs(context)?;
        // The others have rows of their own.
        programs.retain(|program| !program.path.ends_with("clang") && !program.path.ends_with("chromium"));
        let rebased = Rebased::new(context, &programs.iter().collect::<Vec<_>>())?;
        let copies = rebased.assert(&programs.iter().collect::<Vec<_>>())?;
        let mut added = Vec::new();
        let mut rows = Vec::new();
        for (program, copies) in programs.iter().zip(copies) {
            added.push(one(&rebased, program, context.pick(201, 5))?);
            rows.push(added[added.len() - 1].to_json(program, copies));
        }
        if let Some(program) = unset(&rebased)? {
            added.push(one(&rebased, &program, context.pick(201, 5))?);
            rows.push(added[added.len() - 1].to_json(&program, 0));
        }
        let each: Vec<f64> = added.iter().map(|added| added.ms).collect();
        let measured = Measured::most(&each, json!({ "programs": rows }));
        // The worst of all lies between the worst that all have at least and the worst that any has
        // at most.
        let ends =
            [-1.0, 1.0].map(|sign| added.iter().map(|a| a.ms + sign * a.noise).fold(f64::MIN, f64::max));
        Ok(Measured { interval: Some(ends), ..measured })
    }
}

/// A short program that is not set, and so has no copies: what the variables alone cost every
/// program.
fn unset(rebased: &Rebased) -> Result<Option<Program>> {
    let Some(program) = find(&["/usr/bin/true"], &[]) else { return Ok(None) };
    match watch(rebased.command(&program, true), &rebased.store, None)?.copies.len() {
        0 => Ok(Some(program)),
        copies => failed(format!("{} was not set, and has {copies} copies", program.path.display())),
    }
}

/// What one program takes longer.
struct Added {
    ms: f64,
    /// As an error of that: half of the middle half of stock against stock, over so many rounds.
    noise: f64,
    stock_ms: f64,
}

impl Added {
    fn to_json(&self, program: &Program, copies: usize) -> Value {
        json!({
            "program": program.path,
            "copies": copies,
            "stock_ms": rounded(self.stock_ms),
            "added_ms": rounded(self.ms),
            "noise_ms": rounded(self.noise),
            "verdict": BAR.judge(self.ms, Some([self.ms - self.noise, self.ms + self.noise])).to_string(),
        })
    }
}

/// Each round starts it without, with, and without copies: the first and the last say how much
/// stock differs from stock.
fn one(rebased: &Rebased, program: &Program, rounds: usize) -> Result<Added> {
    let (mut added, mut noise, mut stock) = (Vec::new(), Vec::new(), Vec::new());
    rebased.time(program, true)?;
    for _ in 0..rounds {
        let before = rebased.time(program, false)? * 1e3;
        let ours = rebased.time(program, true)? * 1e3;
        let after = rebased.time(program, false)? * 1e3;
        added.push(ours - (before + after) / 2.0);
        noise.push(after - before);
        stock.push(before);
    }
    let spread = (percentile(&noise, 0.75) - percentile(&noise, 0.25)) / 1.35;
    let noise = 2.0 * 1.25 * spread / (rounds as f64).sqrt();
    Ok(Added { ms: median(&added), noise, stock_ms: median(&stock) })
}
