//! `govindan.table2`: library code in sets of programs (Govindan, Table 2).

use crate::audit::sets::{Published, TABLE};
use crate::context::Context;
use crate::failure::Result;
use crate::row::{Bar, Measured, Row, rounded};
use crate::sprite::table::{cell, markdown};
use commonhold_audit::library::{Measurer, Options};
use commonhold_audit::report::LibrarySet;
use serde_json::{Value, json};

/// A quick run measures so many programs of a set.
const QUICK: usize = 40;

/// The row.
pub struct GovindanTable2;

impl Row for GovindanTable2 {
    fn id(&self) -> &'static str {
        "govindan.table2"
    }

    fn unit(&self) -> &'static str {
        "published figures reproduced"
    }

    fn bar(&self) -> Option<Bar> {
        None
    }

    fn about(&self) -> &'static str {
        "Govindan's Table 2, code and disk space fractions of library code in sets of programs, on this machine's \
         programs"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let mut measurer = Measurer::new(&[], Options::default());
        let table: Vec<Value> = TABLE
            .iter()
            .map(|published| {
                let mut programs = published.today.map_or_else(Vec::new, |today| today.programs());
                programs.truncate(context.pick(usize::MAX, QUICK));
                line(published, &measurer.set(published.name, &programs))
            })
            .collect();
        let figures = table.iter().flat_map(|line| [&line["code_fraction"], &line["disk_fraction"]]);
        let reproduced = figures.filter(|figure| figure.is_number()).count();
        let unseen = measurer.unseen();
        let detail = json!({
            "table": table,
            "sets": "programs with the names of 4.3BSD's and X11's; /usr/bin: all others there. x10progs: no program \
                     of X10 is left",
            "library_code": "a static program's by its symbols; else the members of archives that its undefined \
                             symbols pull in: what it would hold if it were static, as the paper's were",
            "not_used": unseen.len(),
        });
        Ok(Measured::single(reproduced as f64, 1, detail))
    }

    fn page(&self, detail: &Value) -> String {
        let columns = [
            "set",
            "published_code_fraction",
            "code_fraction",
            "published_disk_fraction",
            "disk_fraction",
            "published_programs",
            "counted",
            "uncounted",
            "whole_code_fraction",
        ];
        let row = |row: &Value| columns.iter().map(|column| cell(&row[*column])).collect();
        let rows: Vec<Vec<String>> = detail["table"].as_array().into_iter().flatten().map(row).collect();
        let head = [
            "set",
            "published code fraction",
            "code fraction",
            "published disk fraction",
            "disk fraction",
            "published programs",
            "programs counted",
            "not counted",
            "code fraction, libraries whole",
        ];
        format!(
            "\n{}\nSets: {}.\n\nNot counted: programs with a library that has no archive here (`libNAME.a`, in Debian's \
             -dev packages). Library code: {}.\n",
            markdown(&head, &rows),
            cell(&detail["sets"]),
            cell(&detail["library_code"])
        )
    }
}

fn line(published: &Published, set: &LibrarySet) -> Value {
    let round = |value: Option<f64>| value.map(rounded);
    json!({
        "set": published.name,
        "published_code_fraction": published.code,
        "published_disk_fraction": published.disk,
        "published_programs": published.programs,
        "code_fraction": round(set.code_fraction),
        "disk_fraction": round(set.disk_fraction),
        "programs": set.programs,
        "counted": set.by_symbols + set.by_archive,
        "by_symbols": set.by_symbols,
        "by_archive": set.by_archive,
        "uncounted": set.uncounted,
        "skipped": set.skipped,
        "whole_code_fraction": round(set.whole_code_fraction),
        "whole_disk_fraction": round(set.whole_disk_fraction),
        "most": set.most.as_ref().map(|(program, part)| json!({ "program": program, "code_fraction": rounded(*part) })),
    })
}
