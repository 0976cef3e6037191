//! `rebase.worst_ms`: programs that have little to gain must not pay for those that have.

use crate::context::Context;
use crate::failure::{Result, failed};
use crate::measure::{median, percentile};
use crate::rebase::programs::{find, programs};
use crate::rebase::watch::watch;
use crate::rebase::{Program, Rebased};
use crate::row::{Bar, Measured, Row, rounded};
use serde_json::{Value, json};

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
        Some(Bar::AtMost(0.1))
    }

    fn about(&self) -> &'static str {
        "the most time that any other program takes longer with copies than without; 0 where that is within what stock \
         differs from stock"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let mut programs = programs(context)?;
        // The others have rows of their own.
        programs.retain(|program| !program.path.ends_with("clang") && !program.path.ends_with("chromium"));
        let rebased = Rebased::new(context, &programs.iter().collect::<Vec<_>>())?;
        let copies = rebased.assert(&programs.iter().collect::<Vec<_>>())?;
        let mut worst: f64 = 0.0;
        let mut rows = Vec::new();
        for (program, copies) in programs.iter().zip(copies) {
            let (added, mut row) = one(&rebased, program, context.pick(201, 5))?;
            worst = worst.max(added);
            row["copies"] = json!(copies);
            rows.push(row);
        }
        let mut detail = json!({ "programs": rows });
        if let Some(program) = unset(&rebased)? {
            detail["not_set_but_started_so"] = one(&rebased, &program, context.pick(201, 5))?.1;
        }
        Ok(Measured::single(worst, programs.len(), detail))
    }
}

/// A short program that is not set, and so has no copies: what the variables alone cost every program. It is in the detail
/// only, as the row is about programs that are set.
fn unset(rebased: &Rebased) -> Result<Option<Program>> {
    let Some(program) = find(&["/usr/bin/true"], &[]) else { return Ok(None) };
    match watch(rebased.command(&program, true), &rebased.store, None)?.copies.len() {
        0 => Ok(Some(program)),
        copies => failed(format!("{} was not set, and has {copies} copies", program.path.display())),
    }
}

/// Milliseconds that one program takes longer, and what there is to say of it. Each round starts it without, with, and
/// without copies: the first and the last say how much stock differs from stock.
fn one(rebased: &Rebased, program: &Program, rounds: usize) -> Result<(f64, Value)> {
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
    // Half of the middle half of stock against stock, as an error of the median of so many rounds.
    let spread = (percentile(&noise, 0.75) - percentile(&noise, 0.25)) / 1.35;
    let error = 2.0 * 1.25 * spread / (rounds as f64).sqrt();
    let most = median(&added);
    let counted = if most <= error { 0.0 } else { most };
    let detail = json!({
        "program": program.path,
        "stock_ms": rounded(median(&stock)),
        "added_ms": rounded(most),
        "stock_against_stock_ms": rounded(error),
        "counted_ms": rounded(counted),
    });
    Ok((counted, detail))
}
