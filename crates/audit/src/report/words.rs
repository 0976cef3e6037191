//! Numbers and names as people read them, on a terminal and in a page.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Absent: not known, or without meaning.
pub const NONE: &str = "–";

/// MiB with one digit; what is less than half a digit and not nothing is `<0.1`.
pub fn mib(bytes: u64) -> String {
    if bytes == 0 {
        return "0.0".to_owned();
    }
    let value = bytes as f64 / f64::from(1 << 20);
    if value < 0.05 { "<0.1".to_owned() } else { format!("{value:.1}") }
}

/// A figure without a unit.
pub fn ratio(value: Option<f64>, digits: usize) -> String {
    value.map_or(NONE.to_owned(), |value| format!("{value:.digits$}"))
}

/// `1 page`, `2 pages`.
pub fn count(number: u64, of_what: &str) -> String {
    if number == 1 { format!("1 {of_what}") } else { format!("{number} {of_what}s") }
}

/// `1 copy`, `2 copies`.
pub fn count_irregular(number: u64, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

/// `2026-11-21 06:32 UTC`.
pub fn moment(seconds: u64) -> String {
    // 9999-12-31 is as far as the notation goes; a document may say anything.
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).filter(|_| seconds <= 253_402_300_799);
    let text = humantime::format_rfc3339_seconds(time.unwrap_or(SystemTime::UNIX_EPOCH)).to_string();
    format!("{} UTC", text[..16].replace('T', " "))
}

/// `1.2 s`, `4min 5s`.
pub fn span(milliseconds: u64) -> String {
    if milliseconds < 60_000 {
        return format!("{:.1} s", milliseconds as f64 / 1000.0);
    }
    humantime::format_duration(Duration::from_secs(milliseconds / 1000)).to_string()
}

/// A name from outside as harmless text: control characters, which a terminal would obey, and marks that turn the
/// direction of writing or show nothing at all, become escapes.
pub fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for letter in text.chars() {
        let invisible = matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
        if letter.is_control() || invisible {
            clean.extend(letter.escape_default());
        } else {
            clean.push(letter);
        }
    }
    clean
}

/// As [`clean`], and at most so many characters: a path keeps its start and, more of it, its end.
pub fn shorten(text: &str, most: usize) -> String {
    let text = clean(text);
    let letters = text.chars().count();
    if letters <= most || most < 4 {
        return text;
    }
    let start = most / 3;
    let end = most - 1 - start;
    let head: String = text.chars().take(start).collect();
    let tail: String = text.chars().skip(letters - end).collect();
    format!("{head}…{tail}")
}

/// Columns, two spaces apart and `indent` from the left; those in `right` are flush right. The first row may be heads.
pub fn columns(rows: Vec<Vec<String>>, right: &[usize], indent: usize) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.add_rows(rows);
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if right.contains(&number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let margin = " ".repeat(indent);
    table.trim_fmt().lines().map(|line| format!("{margin}{line}")).collect()
}

/// Sentences in lines of at most so many characters, each `indent` from the left. Longer words stay whole.
pub fn wrap(text: &str, indent: usize, width: usize) -> Vec<String> {
    let margin = " ".repeat(indent);
    let mut lines: Vec<String> = Vec::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let letters = word.chars().count();
        match lines.last_mut() {
            Some(line) if length + 1 + letters <= width => {
                line.push(' ');
                line.push_str(word);
                length += 1 + letters;
            }
            _ => {
                lines.push(format!("{margin}{word}"));
                length = indent + letters;
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_moments_and_spans() {
        for (bytes, text) in [
            (0, "0.0"),
            (1, "<0.1"),
            (52_428, "<0.1"),
            (52_429, "0.1"),
            (1 << 20, "1.0"),
            (5 << 40, "5242880.0"),
        ] {
            assert_eq!(mib(bytes), text);
        }
        assert_eq!(moment(1_795_242_742), "2026-11-21 06:32 UTC");
        assert_eq!(moment(u64::MAX), "1970-01-01 00:00 UTC");
        assert_eq!((span(1_240), span(245_900)), ("1.2 s".to_owned(), "4m 5s".to_owned()));
        assert_eq!((count(1, "page"), count(2, "page")), ("1 page".to_owned(), "2 pages".to_owned()));
    }

    #[test]
    fn names_from_outside_cannot_speak_to_the_terminal() {
        assert_eq!(clean("/usr/lib/größe x"), "/usr/lib/größe x");
        assert_eq!(clean("a\x1b[2Jb\nc\rd\x07\u{9b}e"), r"a\u{1b}[2Jb\nc\rd\u{7}\u{9b}e");
        assert_eq!(clean("safe\u{202e}txt.exe\u{200b}"), r"safe\u{202e}txt.exe\u{200b}");
    }

    #[test]
    fn long_paths_keep_their_ends() {
        assert_eq!(shorten("/usr/lib/x", 20), "/usr/lib/x");
        let short = shorten("/srv/environments/one/lib/python3.11/site-packages/numpy/core.so", 30);
        assert_eq!((short.as_str(), short.chars().count()), ("/srv/envir…kages/numpy/core.so", 30));
        assert_eq!(shorten("größe größe größe", 9), "grö…größe");
    }

    #[test]
    fn lines_of_words() {
        assert_eq!(wrap("one two three four", 2, 10), ["  one two", "  three", "  four"]);
        assert_eq!(wrap("extraordinarily", 0, 5), ["extraordinarily"]);
        let rows = vec![vec!["MiB".into(), "what".into()], vec!["10.0".into(), "x y".into()]];
        assert_eq!(columns(rows, &[0], 2), ["   MiB  what", "  10.0  x y"]);
    }
}
