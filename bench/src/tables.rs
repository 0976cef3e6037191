//! The tables of all rows, made of the results: `docs/results/README.md`, and the one in
//! `docs/PERFORMANCE.md`.

use crate::pages::{noise, value, verdict};
use crate::row::Row;
use crate::sprite::table::{cell, markdown};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// A line for each row that was ever run into a directory.
pub type Known = BTreeMap<String, Value>;

const ROWS: &str = "rows.json";
/// Between these lines of PERFORMANCE.md its table stands.
const BEGIN: &str = "<!-- The table is made of docs/results by `commonhold-bench tables`. -->\n";
const END: &str = "<!-- The table ends. -->\n";

/// What a directory knows.
pub fn read(directory: &Path) -> io::Result<Known> {
    match std::fs::read(directory.join(ROWS)) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Known::new()),
        Err(error) => Err(error),
    }
}

/// Writes what is known, and the tables; also into a PERFORMANCE.md beside the directory that has a
/// place for it.
pub fn write(directory: &Path, known: &Known) -> io::Result<()> {
    // Whole or not at all: a run that is stopped goes on with it.
    let path = directory.join(ROWS);
    let new = directory.join("rows.json.new");
    std::fs::write(&new, serde_json::to_string_pretty(known)? + "\n")?;
    std::fs::rename(new, path)?;
    std::fs::write(directory.join("README.md"), results(known))?;
    let performance = directory.with_file_name("PERFORMANCE.md");
    match std::fs::read_to_string(&performance) {
        Ok(text) => match with_table(&text, known) {
            Some(text) => std::fs::write(performance, text),
            None => Ok(()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The text with its table replaced; none: it has no place for one.
fn with_table(text: &str, known: &Known) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{}\n\n{}\n{END}{after}", origins(known), performance(known)))
}

/// The line of a row, if it is one of the row as it is: of another unit, it measured something
/// else.
fn line_of<'a>(known: &'a Known, row: &dyn Row) -> Option<&'a Value> {
    known.get(row.id()).filter(|line| line["unit"] == row.unit())
}

/// Of which commits and machines the results are.
fn origins(known: &Known) -> String {
    let rows = crate::rows::all();
    let lines: Vec<&Value> = rows.iter().filter_map(|row| line_of(known, *row)).collect();
    let all = |name: &str| {
        let each: BTreeSet<&str> =
            lines.iter().map(|line| line[name].as_str().unwrap_or("not noted")).collect();
        each.into_iter().collect::<Vec<_>>()
    };
    let (commits, machines) = (all("commit"), all("machine"));
    let missing = rows.len() - lines.len();
    let left = if missing == 0 {
        String::new()
    } else {
        format!(" {missing} of {} rows have no result.", rows.len())
    };
    match (commits.len(), machines.len()) {
        (1, 1) => format!("All of commit {}, on {}.{left}", commits[0], machines[0]),
        _ => format!(
            "**Not of one run**: of the commits {}; on {}.{left} `./run results` makes them anew.",
            commits.join(", "),
            machines.join("; ")
        ),
    }
}

fn bar(row: &dyn Row) -> String {
    row.bar().map_or_else(|| "reported".into(), |bar| bar.to_string())
}

fn performance(known: &Known) -> String {
    let rows: Vec<Vec<String>> = crate::rows::all()
        .iter()
        .map(|row| {
            let line = line_of(known, *row);
            let measured = line.map_or_else(|| "–".into(), |line| format!("{} {}", value(line), row.unit()));
            let said = line.map_or_else(|| "not measured".into(), |line| verdict(*row, line));
            let id = format!("[`{0}`](results/{0}.md)", row.id());
            let id = if line.is_some() { id } else { format!("`{}`", row.id()) };
            vec![id, row.about().into(), bar(*row), measured, line.map(noise).unwrap_or_default(), said]
        })
        .collect();
    markdown(&["id", "what", "must be", "measured", "95 of 100 such runs", "verdict"], &rows)
}

fn results(known: &Known) -> String {
    let rows: Vec<Vec<String>> = crate::rows::all()
        .iter()
        .filter_map(|row| Some((row, line_of(known, *row)?)))
        .map(|(row, line)| {
            let spread = if line["min"].is_number() {
                format!("{}–{}, {} runs", cell(&line["min"]), cell(&line["max"]), cell(&line["runs"]))
            } else {
                String::new()
            };
            let id = format!("[{0}]({0}.md)", row.id());
            let measured = format!("**{}**", value(line));
            let (noise, said) = (noise(line), verdict(*row, line));
            vec![id, bar(*row), measured, noise, row.unit().into(), spread, said, cell(&line["seconds"])]
        })
        .collect();
    let head =
        ["row", "must be", "measured", "95 of 100 such runs", "unit", "single results", "verdict", "took, s"];
    format!(
        "# Results\n\nThe last run of each row, written by `./run results`; what each does on both sides stands in \
         bench/README.md.\n\n{}\n\n{}",
        origins(known),
        markdown(&head, &rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn docs() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("docs")
    }

    #[test]
    fn the_documents_have_the_tables_of_the_results() {
        let known = read(&docs().join("results")).unwrap();
        let readme = std::fs::read_to_string(docs().join("results/README.md")).unwrap();
        assert!(readme == results(&known), "docs/results/README.md: run `commonhold-bench tables`");
        let performance = std::fs::read_to_string(docs().join("PERFORMANCE.md")).unwrap();
        let made = with_table(&performance, &known).expect("a place for the table");
        assert!(performance == made, "docs/PERFORMANCE.md: run `commonhold-bench tables`");
    }

    #[test]
    fn every_result_has_its_page_and_every_page_a_row() {
        let known = read(&docs().join("results")).unwrap();
        let rows: BTreeSet<String> = crate::rows::all().iter().map(|row| row.id().to_owned()).collect();
        let pages = std::fs::read_dir(docs().join("results")).unwrap().flatten();
        let pages: BTreeSet<String> = pages
            .filter_map(|page| Some(page.file_name().to_str()?.strip_suffix(".md")?.to_owned()))
            .collect();
        for id in pages.iter().filter(|id| *id != "README") {
            assert!(rows.contains(id) && known.contains_key(id), "{id} is no row, or has no line in {ROWS}");
        }
        for (id, line) in &known {
            assert!(pages.contains(id) || line["value"].is_null(), "{id} has no page");
        }
    }

    #[test]
    fn results_of_several_commits_say_so() {
        let rows = crate::rows::all();
        let line = |row: &dyn Row, commit: &str| json!({ "value": 1.0, "unit": row.unit(), "runs": 1, "commit": commit, "machine": "m" });
        let mut known: Known = rows.iter().map(|row| (row.id().to_owned(), line(*row, "abc"))).collect();
        assert_eq!(origins(&known), "All of commit abc, on m.");
        known.insert(rows[0].id().into(), line(rows[0], "abd"));
        assert!(
            origins(&known).starts_with("**Not of one run**: of the commits abc, abd; on m."),
            "{}",
            origins(&known)
        );
        // What a row of that name measured before it changed is no result of it.
        known.get_mut(rows[1].id()).unwrap()["unit"] = json!("apples");
        assert!(origins(&known).contains("1 of") && performance(&known).contains("not measured"));
    }

    #[test]
    fn only_the_table_is_replaced() {
        let text = format!("before\n{BEGIN}what was there\n{END}after\n");
        let made = with_table(&text, &Known::new()).unwrap();
        assert!(
            made.starts_with("before\n") && made.ends_with("after\n") && !made.contains("what was there")
        );
        assert_eq!(with_table(&made, &Known::new()).unwrap(), made);
        assert!(with_table("no place", &Known::new()).is_none());
    }
}
