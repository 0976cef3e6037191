//! The table on made reports: as a whole, and line by line where it matters.

use super::table;
use crate::report::{Report, made};

/// The text beside this file; `COMMONHOLD_ACCEPT=1` writes what came instead, to be looked at.
fn golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report/golden").join(name);
    if std::env::var_os("COMMONHOLD_ACCEPT").is_some() {
        std::fs::write(&path, format!("{text}\n")).expect("the golden text is written");
    }
    let expected = std::fs::read_to_string(&path).expect("there is a golden text");
    assert_eq!(format!("{text}\n"), expected, "{name}");
}

#[test]
fn a_machine() {
    golden("machine.txt", &table(&made::machine(), false));
}

#[test]
fn a_machine_with_all() {
    golden("machine_all.txt", &table(&made::machine(), true));
}

#[test]
fn samples_and_sets() {
    golden("sampled.txt", &table(&made::sampled(), false));
}

#[test]
fn nothing_at_all() {
    golden("nothing.txt", &table(&Report::default(), false));
}

#[test]
fn a_machine_is_read_in_a_minute() {
    let mut report = made::machine();
    let mut lines = 0;
    for lists in 0..7 {
        report.equal_files.extend(made::machine().equal_files);
        report.deleted.extend(made::machine().deleted);
        report.unique.extend(made::machine().unique);
        report.advice.extend(made::machine().advice);
        report.page_tables.segments.extend(made::machine().page_tables.segments);
        let before = std::mem::replace(&mut lines, table(&report, false).lines().count());
        assert!(lines <= 56 && (lists < 3 || lines == before), "{lists}: {lines}");
    }
    let text = table(&report, false);
    for line in text.lines().filter(|line| !line.starts_with("     ")) {
        assert!(line.chars().count() <= 116, "{line}");
    }
    assert!(text.contains("… and 37 more (--all)"), "{text}");
    assert!(table(&report, true).lines().count() > 100);
}

#[test]
fn names_from_outside_stay_text() {
    for all in [false, true] {
        let text = table(&made::hostile(), all);
        assert!(!text.contains(['\x1b', '\u{202e}', '\r']), "{text}");
        // Each newline is ours: no line begins with what a path had after its own.
        assert!(text.contains(r"\u{1b}[2J"), "{text}");
    }
}
