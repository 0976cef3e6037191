//! The difference for people.

use super::{Difference, FigureChange, Item, ItemChange, ListChange, Side};
use crate::report::named::{Unit, unit};
use crate::report::words::{NONE, clean, columns, mib, moment, shorten};

/// Rows of each list.
const ROWS: usize = 5;
/// Characters of a name.
const NAME: usize = 76;

/// The whole difference; `all`: nothing is cut.
pub fn table(difference: &Difference, all: bool) -> String {
    let mut lines = vec![
        format!("before: {}", side(&difference.before)),
        format!("after:  {}", side(&difference.after)),
        "sizes are MiB of memory".to_owned(),
    ];
    lines.extend(difference.cautions.iter().map(|caution| format!("caution: {caution}")));
    lines.push(String::new());
    lines.extend(savings(difference, all));
    lines.extend(figures(&difference.figures, all));
    for list in &difference.lists {
        lines.extend(list_change(list, all));
    }
    lines.join("\n")
}

fn side(side: &Side) -> String {
    let samples = side.samples.map_or(String::new(), |count| format!(", means of {count} samples"));
    format!("{} of {}, {}{samples}", clean(&side.scope), clean(&side.machine), moment(side.taken_at))
}

fn savings(difference: &Difference, all: bool) -> Vec<String> {
    if difference.savings_got.is_empty() {
        return vec!["SAVINGS GOT: none".to_owned()];
    }
    let rows = difference.savings_got.iter().map(|saving| {
        vec![mib(saving.got_bytes), title(&saving.list).to_lowercase(), name(&saving.name, all)]
    });
    let mut lines = vec![format!(
        "SAVINGS GOT: {} (found before, and not any more: had, or no longer in use)",
        mib(difference.savings_got_bytes)
    )];
    lines.extend(cut(rows.collect(), &[0], all));
    lines
}

fn figures(changes: &[FigureChange], all: bool) -> Vec<String> {
    // Counts behind a ratio and sizes behind a sum: the short table has what they come to.
    let detail = |name: &str| {
        let part = name.rsplit('.').next().unwrap_or(name);
        matches!(part, "active" | "shared" | "with_sharing_bytes" | "without_sharing_bytes")
    };
    let shown: Vec<&FigureChange> = changes.iter().filter(|change| all || !detail(&change.name)).collect();
    if shown.is_empty() {
        return vec!["FIGURES: none changed".to_owned()];
    }
    let mut rows = vec![["before", "after", "change", "", "figure"].map(str::to_owned).to_vec()];
    rows.extend(shown.into_iter().map(figure));
    let mut lines = vec!["FIGURES that changed".to_owned()];
    lines.extend(columns(rows, &[0, 1, 2], 2));
    lines
}

fn figure(change: &FigureChange) -> Vec<String> {
    let unit = unit(&change.name);
    let show = |value: Option<f64>| value.map_or(NONE.to_owned(), |value| unit.show(value));
    let by = change.before.zip(change.after).map(|(before, after)| after - before);
    let by =
        by.map_or(NONE.to_owned(), |by| format!("{}{}", if by > 0.0 { "+" } else { "" }, signed(unit, by)));
    let sure = match change.intervals_apart {
        Some(true) => "beyond chance",
        Some(false) => "may be chance",
        None => "",
    };
    vec![
        show(change.before),
        show(change.after),
        by,
        sure.to_owned(),
        clean(change.name.strip_suffix("_bytes").unwrap_or(&change.name)),
    ]
}

/// A change too small for its digits is not `-0.000`.
fn signed(unit: Unit, by: f64) -> String {
    let text = unit.show(by);
    if text.trim_matches(['-', '0', '.']).is_empty() { unit.show(0.0) } else { text }
}

fn list_change(list: &ListChange, all: bool) -> Vec<String> {
    let title = title(&list.list);
    if list.came.is_empty() && list.went.is_empty() && list.changed.is_empty() {
        return vec![format!("{title}: no change")];
    }
    let mut lines = vec![format!(
        "{title}: {} came, {} went, {} changed, {} as before",
        list.came.len(),
        list.went.len(),
        list.changed.len(),
        list.unchanged
    )];
    let one = |sign: &str, item: &Item| vec![format!("{sign}{}", mib(item.bytes)), name(&item.name, all)];
    let changed = |item: &ItemChange| {
        let by = item.after_bytes as f64 - item.before_bytes as f64;
        let sign = if by > 0.0 { "+" } else { "" };
        vec![
            format!("{sign}{}", signed(Unit::Bytes, by)),
            format!("{}: {} → {}", name(&item.name, all), mib(item.before_bytes), mib(item.after_bytes)),
        ]
    };
    for rows in [
        list.came.iter().map(|item| one("new ", item)).collect(),
        list.went.iter().map(|item| one("gone ", item)).collect(),
        list.changed.iter().map(changed).collect::<Vec<_>>(),
    ] {
        lines.extend(cut(rows, &[0], all));
    }
    lines
}

fn cut(mut rows: Vec<Vec<String>>, right: &[usize], all: bool) -> Vec<String> {
    let left = if all { 0 } else { rows.len().saturating_sub(ROWS) };
    rows.truncate(rows.len() - left);
    let mut lines = columns(rows, right, 2);
    if left > 0 {
        lines.push(format!("  … and {left} more (--all)"));
    }
    lines
}

fn name(text: &str, all: bool) -> String {
    if all { clean(text) } else { shorten(text, NAME) }
}

fn title(list: &str) -> String {
    match list {
        "equal_files" => "EQUAL FILES".to_owned(),
        "relocation" => "RELOCATION".to_owned(),
        "page_tables" => "PAGE TABLES".to_owned(),
        "deleted" => "DELETED FILES STILL MAPPED".to_owned(),
        "unique" => "WHAT ENDS WITH WHOM".to_owned(),
        "advice" => "ADVICE".to_owned(),
        other => clean(other),
    }
}
