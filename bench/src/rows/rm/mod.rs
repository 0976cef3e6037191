//! `mach.rm_table1` to `mach.rm_table8`: the tables of Bernadat & Black, "Real Memory Mach" (1993).
//!
//! Their system with pages and their system without are two kernels. Ours are objects of ordinary
//! pages and wired ones of the same host, so each table has a column for either, beside theirs.
//! What a table says in both is how many times as fast the wired one is ("relative").

mod child;
mod memory;
mod round;
mod table1;
mod table2;
mod table3;
mod table4;
mod table5;
mod table6;
mod table7;
mod table8;

use crate::conclusions::{self, Conclusion};
use crate::context::Context;
use crate::failure::Result;
use crate::row::{Bar, Measured, Row, rounded};
use crate::sprite::table::{cell, markdown};
use serde_json::{Value, json};

pub use table1::TABLE_1;
pub use table2::TABLE_2;
pub use table3::TABLE_3;
pub use table4::TABLE_4;
pub use table5::TABLE_5;
pub use table6::TABLE_6;
pub use table7::TABLE_7;
pub use table8::TABLE_8;

/// "Not slower, not faster": within a quarter, as the paper's own 0.9 and 1.07 are.
const ALIKE: Bar = Bar::Between(0.8, 1.25);
/// "Accounts for most of it": more than half, and not for much more than there is.
const MOST: Bar = Bar::Between(0.5, 1.5);

/// One of the tables.
pub struct Table {
    id: &'static str,
    about: &'static str,
    measure: fn(&Context) -> Result<Found>,
}

/// What a run of one gave.
struct Found {
    /// Rounds of each measurement.
    runs: usize,
    lines: Vec<Line>,
    conclusions: Vec<Conclusion>,
    /// What is to be known of the figures.
    notes: Vec<String>,
}

/// A line of a table: what was measured, and named figures, of which each becomes a column.
struct Line {
    what: String,
    figures: Vec<(&'static str, Value)>,
}

impl Line {
    fn new(what: impl Into<String>) -> Line {
        Line { what: what.into(), figures: Vec::new() }
    }

    /// One more figure.
    fn with(mut self, column: &'static str, figure: f64) -> Line {
        self.figures.push((column, json!(rounded(figure))));
        self
    }

    /// One that there may not be.
    fn maybe(self, column: &'static str, figure: Option<f64>) -> Line {
        match figure {
            Some(figure) => self.with(column, figure),
            None => self,
        }
    }
}

/// The lines as a table: the columns in the order in which they are first named.
fn table(lines: &[Line]) -> Value {
    let mut columns: Vec<&str> = Vec::new();
    for (name, _) in lines.iter().flat_map(|line| &line.figures) {
        if !columns.contains(name) {
            columns.push(name);
        }
    }
    let figure = |line: &Line, column: &str| {
        line.figures.iter().find(|(name, _)| *name == column).map_or(Value::Null, |(_, value)| value.clone())
    };
    let rows = lines.iter().map(|line| {
        let figures = columns.iter().map(|column| figure(line, column));
        std::iter::once(json!(line.what)).chain(figures).collect::<Value>()
    });
    let rows: Vec<Value> = rows.collect();
    let head: Vec<&str> = std::iter::once("").chain(columns).collect();
    json!({ "columns": head, "rows": rows })
}

impl Row for Table {
    fn id(&self) -> &'static str {
        self.id
    }

    fn unit(&self) -> &'static str {
        conclusions::UNIT
    }

    fn bar(&self) -> Option<Bar> {
        None
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let found = (self.measure)(context)?;
        let detail = json!({ "table": table(&found.lines), "notes": found.notes });
        conclusions::measured(&found.conclusions, found.runs, detail)
    }

    fn page(&self, detail: &Value) -> String {
        let words = |row: &Value| row.as_array().into_iter().flatten().map(cell).collect::<Vec<_>>();
        let head = words(&detail["table"]["columns"]);
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        let rows: Vec<Vec<String>> =
            detail["table"]["rows"].as_array().into_iter().flatten().map(words).collect();
        let notes = words(&detail["notes"]).iter().map(|note| format!("- {note}\n")).collect::<String>();
        format!("\n{}\n{notes}{}", markdown(&head, &rows), conclusions::list(detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of the conclusions hold, and how many were judged.
    pub(super) fn held(conclusions: &[Conclusion]) -> (usize, usize) {
        let measured = conclusions::measured(conclusions, 1, json!({})).unwrap();
        let judged = measured.detail["conclusions"].as_array().unwrap().iter();
        (measured.value as usize, judged.filter(|one| !one["holds"].is_null()).count())
    }

    #[test]
    fn columns_are_those_that_any_line_has() {
        let lines = [Line::new("a").with("x", 1.0), Line::new("b").with("y", 2.0).maybe("x", None)];
        let made = table(&lines);
        assert_eq!(made["columns"], json!(["", "x", "y"]));
        assert_eq!(made["rows"], json!([["a", 1.0, null], ["b", null, 2.0]]));
        let page = TABLE_1.page(&json!({ "table": made, "notes": ["of one processor."] }));
        assert!(page.contains("| a | 1.0 | – |\n| b | – | 2.0 |\n\n- of one processor.\n"), "{page}");
    }

    #[test]
    fn each_table_has_a_name_of_its_own() {
        let all = [&TABLE_1, &TABLE_2, &TABLE_3, &TABLE_4, &TABLE_5, &TABLE_6, &TABLE_7, &TABLE_8];
        for (n, table) in all.into_iter().enumerate() {
            assert_eq!(table.id, format!("mach.rm_table{}", n + 1));
        }
    }
}
