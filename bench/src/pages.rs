//! What people read: a line for each row on the terminal, pages of Markdown in `docs/results`.

use crate::row::{Bar, Row};
use crate::sprite::table::{cell, markdown};
use crate::tables;
use serde_json::{Map, Value};
use std::io;
use std::path::Path;

/// A line for the terminal.
pub fn one_line(row: &dyn Row, line: &Value) -> String {
    format!("{:<30} {:>10} {:<28} {}", row.id(), value(line), row.unit(), verdict(row, line))
}

/// The value; of how many, or its noise, if it has such.
pub fn value(line: &Value) -> String {
    let Some(value) = line["value"].as_f64() else { return "–".into() };
    match line["of"].as_u64() {
        Some(of) => format!("{value} of {of}"),
        None => value.to_string(),
    }
}

/// Between what the value lies.
pub fn noise(line: &Value) -> String {
    match line["interval"].as_array().map(Vec::as_slice) {
        Some([least, most]) => format!("{} to {}", cell(least), cell(most)),
        _ => String::new(),
    }
}

/// Whether it is as it must be; what is beside it, too.
pub fn verdict(row: &dyn Row, line: &Value) -> String {
    if let Some(why) = line["skipped"].as_str() {
        return why.to_owned();
    }
    let judged = |bar: Bar| bar.judge(line["value"].as_f64().unwrap_or(f64::NAN), None).to_string();
    let own = match (row.bar(), line["verdict"].as_str()) {
        (Some(bar), Some(verdict)) => format!("{bar}: {verdict}"),
        // Results of before values had their noise.
        (Some(bar), None) => format!("{bar}: {}", judged(bar)),
        (None, _) => "reported".into(),
    };
    let beside = line["beside"].as_array().into_iter().flatten().map(|one| {
        format!(
            "; {}: {} {}",
            cell(&one["name"]),
            cell(&one["value"]),
            one["verdict"].as_str().unwrap_or_default()
        )
    });
    own + beside.collect::<String>().trim_end()
}

/// Writes the page of a row that was run; what is known without its detail goes to [`tables`].
pub fn write(directory: &Path, row: &dyn Row, line: &Value) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let mut known = tables::read(directory)?;
    std::fs::write(directory.join(format!("{}.md", row.id())), without_place(&page(row, line)))?;
    let mut short = line.clone();
    short.as_object_mut().map(|line| line.remove("detail"));
    known.insert(row.id().to_owned(), short);
    tables::write(directory, &known)
}

/// Where the checkout lies is nobody's business, and no figure.
fn without_place(text: &str) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    match here.to_str() {
        Some(here) if here.len() > 1 => text.replace(&format!("{here}/"), ""),
        _ => text.to_owned(),
    }
}

fn page(row: &dyn Row, line: &Value) -> String {
    let mut text = format!("# {}\n\n{}.\n\n", row.id(), upper_first(row.about()));
    text.push_str(&format!("Measured: **{}** {} ({})", value(line), row.unit(), verdict(row, line)));
    if !noise(line).is_empty() {
        text.push_str(&format!(", in 95 of 100 such runs {}", noise(line)));
    }
    if line["min"].is_number() && line["min"] != line["max"] {
        text.push_str(&format!(
            ", {} runs from {} to {}",
            cell(&line["runs"]),
            cell(&line["min"]),
            cell(&line["max"])
        ));
    }
    text.push_str(&format!(".\n\nMachine: {}. Commit: {}.\n", cell(&line["machine"]), cell(&line["commit"])));
    if line["quick"] == true {
        text.push_str("\nMade with few rounds, to see that it works: nobody's figure.\n");
    }
    let tables = row.page(&line["detail"]);
    if tables.is_empty() {
        if let Some(detail) = line["detail"].as_object() {
            let mut rows = Vec::new();
            flatten("", detail, &mut rows);
            text.push_str(&format!("\n{}", markdown(&["detail", ""], &rows)));
        }
    } else {
        text.push_str(&tables);
    }
    text
}

fn flatten(prefix: &str, detail: &Map<String, Value>, rows: &mut Vec<Vec<String>>) {
    for (name, value) in detail {
        let name = format!("{prefix}{}", name.replace('_', " "));
        match value {
            Value::Object(inner) => flatten(&format!("{name}: "), inner, rows),
            Value::Array(values) => {
                rows.push(vec![name, values.iter().map(cell).collect::<Vec<_>>().join(", ")])
            }
            other => rows.push(vec![name, cell(other)]),
        }
    }
}

fn upper_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pages_show_value_and_detail() {
        let row = crate::rows::all()[0];
        let line = json!({
            "id": row.id(), "value": 1.5, "runs": 3, "min": 1.0, "max": 2.0, "verdict": "MISSED", "interval": [1.4, 1.6],
            "beside": [{ "name": "writes", "value": 1.0, "verdict": "met" }],
            "detail": { "direct": { "ratio": 1.5 }, "list": [1, 2] },
        });
        let text = page(row, &line);
        let said = "**1.5** ratio (≤ 1.02: MISSED; writes: 1.0 met), in 95 of 100 such runs 1.4 to 1.6, 3 runs from 1.0 to 2.0";
        assert!(text.contains(said), "{text}");
        assert!(text.contains("| direct: ratio | 1.5 |") && text.contains("| list | 1, 2 |"), "{text}");
        let skipped = json!({ "id": row.id(), "value": null, "skipped": "no host" });
        assert!(one_line(row, &skipped).ends_with("no host"));
    }

    #[test]
    fn the_table_has_what_was_run_before_too() {
        let directory = tempfile::tempdir().unwrap();
        let line = |row: &dyn Row, value: f64| json!({ "value": value, "unit": row.unit(), "runs": 1, "min": value, "max": value, "detail": {} });
        let rows = crate::rows::all();
        write(directory.path(), rows[0], &line(rows[0], 1.25)).unwrap();
        write(directory.path(), rows[1], &line(rows[1], 2.5)).unwrap();
        write(directory.path(), rows[1], &line(rows[1], 3.5)).unwrap();
        let table = std::fs::read_to_string(directory.path().join("README.md")).unwrap();
        assert!(
            table.contains("**1.25**") && table.contains("**3.5**") && !table.contains("**2.5**"),
            "{table}"
        );
        std::fs::write(directory.path().join("rows.json"), "no rows").unwrap();
        write(directory.path(), rows[0], &line(rows[0], 1.0)).unwrap_err();
    }
}
