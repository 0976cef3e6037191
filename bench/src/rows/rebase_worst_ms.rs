//! `rebase.worst_ms`: programs that have little to gain must not pay for those that have.

use crate::context::Context;
use crate::failure::{Result, skipped};
use crate::measure::{median, percentile};
use crate::rebase::{Program, Rebased, find};
use crate::row::{Bar, Measured, Row, rounded};
use serde_json::{Value, json};

/// The row.
pub struct WorstMs;

/// Programs other than clang and chromium, doing something short.
fn programs() -> Vec<Program> {
    let python = "import sys; print(sum(range(1000)))";
    let all = [
        find(&["/usr/bin/git"], &["--version"]),
        find(&["/usr/bin/gdb"], &["-nx", "--version"]),
        find(&["/usr/bin/node"], &["--version"]),
        find(&["/usr/bin/python3"], &["-I", "-c", python]),
        find(&["/usr/lib/postgresql/15/bin/postgres"], &["--version"]),
        find(&["/usr/lib/postgresql/15/bin/psql"], &["--version"]),
        find(&["/usr/lib/qt5/bin/moc", "/usr/lib/qt6/libexec/moc"], &["-v"]),
        find(&["/usr/bin/ls"], &["-d", "/"]),
    ];
    all.into_iter().flatten().collect()
}

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
        let programs = programs();
        if programs.is_empty() {
            return skipped("none of git, gdb, node, python3, PostgreSQL, Qt is installed");
        }
        let rebased = Rebased::new(context, &programs.iter().collect::<Vec<_>>())?;
        let mut worst: f64 = 0.0;
        let mut rows = Vec::new();
        for program in &programs {
            let (added, row) = one(&rebased, program, context.pick(201, 5))?;
            worst = worst.max(added);
            rows.push(row);
        }
        Ok(Measured::single(worst, programs.len(), json!({ "programs": rows })))
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
