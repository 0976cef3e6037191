//! `rebase check`: a program both ways.

use super::{find, open, prepare, wrong};
use crate::arguments::rebase::Check;
use crate::failure::{Done, Failure};
use crate::output::{answer, columns};
use commonhold_rebase::check::{Comparison, Outcome, compare};
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
struct RunView {
    status: i32,
    copies: usize,
    private_kib: u64,
    relocated_kib: u64,
}

#[derive(Serialize)]
struct View {
    same: bool,
    output_is_the_same: bool,
    words: usize,
    differences: Vec<String>,
    stock: RunView,
    rebased: RunView,
}

fn run_view(outcome: &Outcome) -> RunView {
    let Outcome { status, copies, private_kib, relocated_kib, .. } = *outcome;
    RunView { status, copies, private_kib, relocated_kib }
}

fn view(comparison: &Comparison) -> View {
    let (one, other) = (&comparison.stock, &comparison.rebased);
    let lines = comparison.differences.iter().map(|one| {
        let about = one.symbol.as_ref().map(|symbol| format!(" ({symbol})")).unwrap_or_default();
        format!(
            "{}+{:#x}{about}: {} without, {} with",
            one.file.display(),
            one.address,
            one.says.0,
            one.says.1
        )
    });
    View {
        same: comparison.same(),
        output_is_the_same: (&one.output, &one.errors) == (&other.output, &other.errors),
        words: comparison.words,
        differences: lines.collect(),
        stock: run_view(one),
        rebased: run_view(other),
    }
}

impl View {
    fn text(&self) -> String {
        let row =
            |what: &str, one: u64, other: u64| vec![what.to_owned(), one.to_string(), other.to_string()];
        let rows = vec![
            row("exit status", self.stock.status as u64, self.rebased.status as u64),
            row("copies", self.stock.copies as u64, self.rebased.copies as u64),
            row("own memory, KiB", self.stock.private_kib, self.rebased.private_kib),
            row("of that relocated, KiB", self.stock.relocated_kib, self.rebased.relocated_kib),
        ];
        let table = columns(Some(&["", "STOCK", "REBASED"]), rows, &[1, 2]);
        let output = if self.output_is_the_same { "the same" } else { "DIFFERENT" };
        let words =
            format!("{} words that the loader writes, {} different", self.words, self.differences.len());
        let some: Vec<&str> = self.differences.iter().take(10).map(String::as_str).collect();
        [table, format!("output: {output}"), words, some.join("\n")].join("\n").trim_end().to_owned()
    }
}

/// Compares; what is different is a failure.
pub fn check(arguments: &Check) -> Done {
    let store = open(&arguments.rest.place)?;
    let (program, words) = arguments.command.split_first().expect("the command line requires one");
    let path = find(Path::new(program))?;
    prepare(&store, &path, false)?;
    let comparison = compare(&store, &path, program, words).map_err(wrong)?;
    answer(arguments.rest.form.json, &view(&comparison), View::text)?;
    if comparison.same() { Ok(()) } else { Err(Failure::Answered) }
}
