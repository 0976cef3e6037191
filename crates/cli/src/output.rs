//! Answers: tables and sentences for people, one JSON document for programs.

use crate::failure::{Done, Failure};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use commonhold_object::misleads;
use serde::Serialize;
use std::io::Write;

/// Writes lines to standard output. Never `println!`: that panics when nobody reads (`commonhold ls | head`).
pub fn say(text: impl std::fmt::Display) -> Done {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").map_err(Failure::writing)
}

/// Writes a JSON document. Programs read what it is; a terminal that it comes to obeys nothing of it.
pub fn say_json(value: &impl Serialize) -> Done {
    let text = serde_json::to_string_pretty(value).map_err(|e| Failure::writing(e.into()))?;
    say(escaped(&text))
}

/// Outside of strings JSON has no such letters but newlines, and in strings they may be written so.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for letter in json.chars() {
        if letter == '\n' || !misleads(letter) {
            out.push(letter);
        } else {
            letter.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out += &format!("\\u{unit:04x}"));
        }
    }
    out
}

/// Writes the answer in the form that was asked for.
pub fn answer<T: Serialize>(json: bool, value: &T, for_people: impl FnOnce(&T) -> String) -> Done {
    if json {
        return say_json(value);
    }
    let text = for_people(value);
    if text.is_empty() { Ok(()) } else { say(printable(&text, true)) }
}

/// Text with its control characters, and others that mislead, written out. Paths of files, tags and
/// messages come from others: a newline would break a table, an escape sequence reaches the
/// terminal.
pub fn printable(text: &str, of_lines: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' if of_lines => out.push('\n'),
            _ if misleads(character) => out.extend(character.escape_default()),
            _ => out.push(character),
        }
    }
    out
}

/// Columns, two spaces apart, without lines; the columns of the numbers in `right` are flush right.
pub fn columns(header: Option<&[&str]>, rows: Vec<Vec<String>>, right: &[usize]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if let Some(header) = header {
        table.set_header(header);
    }
    let clean = |row: Vec<String>| row.into_iter().map(|cell| printable(&cell, false)).collect::<Vec<_>>();
    table.add_rows(rows.into_iter().map(clean));
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if right.contains(&number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// `1 page`, `2 pages`.
pub fn count(number: u64, of_what: &str) -> String {
    if number == 1 { format!("1 {of_what}") } else { format!("{number} {of_what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows =
            vec![vec!["a".into(), "10".into(), "x".into()], vec!["long".into(), "5".into(), "yy".into()]];
        assert_eq!(columns(None, rows.clone(), &[1]), "a     10  x\nlong   5  yy");
        assert_eq!(columns(Some(&["A", "B", "C"]), rows, &[1]), "A      B  C\na     10  x\nlong   5  yy");
        assert_eq!(columns(None, vec![], &[]), "");
        let wild = columns(None, vec![vec!["a\nb\u{1b}[31m".into(), "x".into()]], &[]);
        assert_eq!(wild, "a\\nb\\u{1b}[31m  x");
        let json = escaped("[\n\"a\u{9b}\u{202e}\u{e0001}\"]");
        assert_eq!(json, "[\n\"a\\u009b\\u202e\\udb40\\udc01\"]");
        let read: Vec<String> = serde_json::from_str(&json).unwrap();
        assert_eq!(read, ["a\u{9b}\u{202e}\u{e0001}"]);
        assert_eq!((count(1, "page"), count(0, "page")), ("1 page".into(), "0 pages".into()));
    }
}
