//! `govindan.table2`: library code in sets of programs (Govindan, Table 2).

use crate::audit::sets::{Published, TABLE};
use crate::conclusions::{self, Conclusion, named};
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
        conclusions::UNIT
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
        let judged = conclude(&table);
        let unseen = measurer.unseen();
        let detail = json!({
            "table": table,
            "sets": "programs with the names of 4.3BSD's and X11's; /usr/bin: all others there. x10progs: no program \
                     of X10 is left",
            "library_code": "a static program's by its symbols; else the members of archives that its undefined \
                             symbols pull in: what it would hold if it were static, as the paper's were",
            "not_used": unseen.len(),
        });
        conclusions::measured(&judged, 1, detail)
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
            "\n{}{}\nSets: {}.\n\nNot counted: programs with a library that has no archive here (`libNAME.a`, in Debian's \
             -dev packages). Library code: {}.\n",
            markdown(&head, &rows),
            conclusions::list(detail),
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

/// What the paper says of its table.
fn conclude(table: &[Value]) -> Vec<Conclusion> {
    let of = |set: &str, figure: &str| {
        let line = table.iter().find(|line| line["set"] == set);
        line.and_then(|line| line[figure].as_f64()).unwrap_or(f64::NAN)
    };
    const SYSTEM: [&str; 3] = ["/bin", "/usr/ucb", "/usr/bin"];
    let system = |figure: &str| SYSTEM.map(|set| (set, of(set, figure)));
    // A set of which nothing was counted leaves nothing to judge by.
    let sum = |sets: &[(&str, f64)]| sets.iter().map(|set| set.1).sum::<f64>();
    let largest = |figure: &str| {
        let others = system(figure);
        let most = crate::measure::most(&others.map(|set| set.1));
        of("x11progs", figure) / if sum(&others).is_nan() { f64::NAN } else { most }
    };
    // Outside of the paper's range by so much; 0 within it.
    let outside = |figure: &str, least: f64, most: f64| {
        let sets = system(figure);
        let beyond = sets.iter().map(|set| (least - set.1).max(set.1 - most).max(0.0)).fold(0.0, f64::max);
        (named("furthest outside of the range", &sets), if sum(&sets).is_nan() { f64::NAN } else { beyond })
    };
    let today = "programs of today call more libraries, and do more of their work there";
    let (code, disk) = (outside("code_fraction", 0.60, 0.76), outside("disk_fraction", 0.39, 0.48));
    let most = table
        .iter()
        .find(|line| line["set"] == "x11progs")
        .and_then(|line| line["most"]["code_fraction"].as_f64());
    vec![
        Conclusion::new(
            "the largest code fraction is that of the programs of X11",
            "x11progs ÷ the largest of the system's sets",
            largest("code_fraction"),
            Bar::AtLeast(1.0),
        ),
        Conclusion::new(
            "the largest disk space fraction is that of the programs of X11",
            "x11progs ÷ the largest of the system's sets",
            largest("disk_fraction"),
            Bar::AtLeast(1.0),
        ),
        Conclusion::new(
            "code fractions of the system's programs are 0.60 to 0.76",
            code.0,
            code.1,
            Bar::AtMost(0.0),
        )
        .unless(today),
        Conclusion::new(
            "disk space fractions of the system's programs are 0.39 to 0.48",
            disk.0,
            disk.1,
            Bar::AtMost(0.0),
        )
        .unless(today),
        Conclusion::new(
            "single programs of X11 have code fractions up to 0.96",
            "the largest of one of x11progs",
            most.unwrap_or(f64::NAN),
            Bar::AtLeast(0.9),
        ),
        Conclusion::not_asked("the programs of X10 have the smallest fractions", "no program of X10 is left"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_own_figures_have_all_that_it_says() {
        let line = |set: &Published| json!({"set": set.name, "code_fraction": set.code, "disk_fraction": set.disk, "most": {"code_fraction": 0.96}});
        let mut table: Vec<Value> = TABLE.iter().map(line).collect();
        let value = |table: &[Value]| conclusions::measured(&conclude(table), 1, json!({})).unwrap();
        assert_eq!(value(&table).value, 5.0);
        table[3] = json!({"set": "/usr/ucb", "code_fraction": 0.9, "disk_fraction": 0.9});
        assert_eq!(value(&table).value, 1.0, "{}", value(&table).detail);
        table[3] = json!({"set": "/usr/ucb"});
        let judged = value(&table);
        assert_eq!(judged.value, 1.0, "{}", judged.detail);
        assert!(judged.detail["conclusions"][0]["holds"].is_null());
    }
}
