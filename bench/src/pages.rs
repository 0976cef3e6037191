//! What people read: a line for each row on the terminal, pages of Markdown in `docs/results`.

use crate::row::Row;
use crate::sprite::table::{cell, markdown};
use serde_json::{Map, Value};
use std::io;
use std::path::Path;

/// A line for the terminal.
pub fn one_line(row: &dyn Row, line: &Value) -> String {
    format!("{:<30} {:>10} {:<28} {}", row.id(), value(line), row.unit(), verdict(row, line))
}

fn value(line: &Value) -> String {
    line["value"].as_f64().map_or_else(|| "–".into(), |value| value.to_string())
}

fn verdict(row: &dyn Row, line: &Value) -> String {
    if let Some(why) = line["skipped"].as_str() {
        return why.to_owned();
    }
    match (row.bar(), line["value"].as_f64()) {
        (Some(bar), Some(value)) if bar.is_met(value) => format!("{bar}: met"),
        (Some(bar), _) => format!("{bar}: MISSED"),
        (None, _) => "reported".into(),
    }
}

/// Writes a page for each row, and, when all rows are there, a table of all.
pub fn write(directory: &Path, lines: &[(&'static dyn Row, Value)]) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    for (row, line) in lines {
        std::fs::write(directory.join(format!("{}.md", row.id())), without_place(&page(*row, line)))?;
    }
    if lines.len() == crate::rows::all().len() {
        std::fs::write(directory.join("README.md"), table_of_all(lines))?;
    }
    Ok(())
}

/// Where the checkout lies is nobody's business, and no figure.
fn without_place(text: &str) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    match here.to_str() {
        Some(here) if here.len() > 1 => text.replace(&format!("{here}/"), ""),
        _ => text.to_owned(),
    }
}

fn table_of_all(lines: &[(&'static dyn Row, Value)]) -> String {
    let rows: Vec<Vec<String>> = lines
        .iter()
        .map(|(row, line)| {
            let bar = row.bar().map_or_else(|| "reported".into(), |bar| bar.to_string());
            let spread = if line["min"].is_number() {
                format!("{}–{}, {} runs", cell(&line["min"]), cell(&line["max"]), cell(&line["runs"]))
            } else {
                String::new()
            };
            let id = format!("[{0}]({0}.md)", row.id());
            vec![id, bar, format!("**{}**", value(line)), row.unit().into(), spread, verdict(*row, line)]
        })
        .collect();
    let head = ["row", "must be", "measured", "unit", "spread", "verdict"];
    format!(
        "# Results\n\nWritten by `commonhold-bench run all`; what each row does on both sides stands in \
         bench/README.md.\n\nMachine: {}\n\n{}",
        machine(),
        markdown(&head, &rows)
    )
}

fn page(row: &dyn Row, line: &Value) -> String {
    let mut text = format!("# {}\n\n{}.\n\n", row.id(), upper_first(row.about()));
    text.push_str(&format!("Measured: **{}** {} ({})", value(line), row.unit(), verdict(row, line)));
    if line["min"].is_number() && line["min"] != line["max"] {
        text.push_str(&format!(
            ", {} runs from {} to {}",
            cell(&line["runs"]),
            cell(&line["min"]),
            cell(&line["max"])
        ));
    }
    text.push_str(&format!(".\n\nMachine: {}\n", machine()));
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

/// Kernel, processors and memory of this machine, in a line.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let memory = read("/proc/meminfo");
    let kib: u64 = memory.split_ascii_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let model = read("/proc/cpuinfo");
    let model =
        model.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": processor unknown");
    format!(
        "Linux {}, {cores} × {}, {} GiB.",
        read("/proc/sys/kernel/osrelease").trim(),
        model.trim_start_matches([' ', '\t', ':']),
        (kib + (1 << 19)) >> 20
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pages_show_value_and_detail() {
        let row = crate::rows::all()[0];
        let line = json!({
            "id": row.id(), "value": 1.5, "runs": 3, "min": 1.0, "max": 2.0,
            "detail": { "direct": { "ratio": 1.5 }, "list": [1, 2] },
        });
        let text = page(row, &line);
        assert!(text.contains("**1.5** ratio (≤ 1.02: MISSED), 3 runs from 1.0 to 2.0"), "{text}");
        assert!(text.contains("| direct: ratio | 1.5 |") && text.contains("| list | 1, 2 |"), "{text}");
        let skipped = json!({ "id": row.id(), "value": null, "skipped": "no host" });
        assert!(one_line(row, &skipped).ends_with("no host"));
    }
}
