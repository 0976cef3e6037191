//! The difference for people.

use super::{Difference, FigureChange, Item, ItemChange, ListChange, SavingGot, Side};
use crate::report::named::{Unit, unit};
use crate::report::words::{NONE, clean, columns, mib, moment, shorten};

/// Rows of each list.
const ROWS: usize = 5;
/// Changes that would be shown as less than 0.1 MiB, or as nothing in three digits, are noise of a machine at work:
/// only `--all` has them.
const NOISE_BYTES: u64 = 52_429;
const NOISE_RATIO: f64 = 0.000_5;
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
    let row = |saving: &SavingGot| {
        vec![mib(saving.got_bytes), title(&saving.list).to_lowercase(), name(&saving.name, all)]
    };
    let mut lines = vec![format!(
        "SAVINGS GOT: {} (found before, and not any more: had, or no longer in use)",
        mib(difference.savings_got_bytes)
    )];
    lines.extend(cut(&difference.savings_got, all, |saving| saving.got_bytes, row));
    lines
}

fn figures(changes: &[FigureChange], all: bool) -> Vec<String> {
    // Counts behind a ratio and sizes behind a sum: the short table has what they come to.
    let detail = |name: &str| {
        let part = name.rsplit('.').next().unwrap_or(name);
        matches!(part, "active" | "shared" | "with_sharing_bytes" | "without_sharing_bytes")
    };
    let shown: Vec<&FigureChange> =
        changes.iter().filter(|change| all || !(detail(&change.name) || is_noise(change))).collect();
    if shown.is_empty() {
        let much = if changes.is_empty() { "" } else { " by more than noise (--all)" };
        return vec![format!("FIGURES: none changed{much}")];
    }
    let mut rows = vec![["before", "after", "change", "", "figure"].map(str::to_owned).to_vec()];
    rows.extend(shown.into_iter().map(figure));
    let mut lines = vec!["FIGURES that changed".to_owned()];
    lines.extend(columns(rows, &[0, 1, 2], 2));
    lines
}

fn is_noise(change: &FigureChange) -> bool {
    let Some((before, after)) = change.before.zip(change.after) else { return false };
    let least = match unit(&change.name) {
        Unit::Count => 0.5,
        Unit::Bytes => NOISE_BYTES as f64,
        Unit::Ratio => NOISE_RATIO,
    };
    (after - before).abs() < least
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
    let by = |item: &ItemChange| item.before_bytes.abs_diff(item.after_bytes);
    lines.extend(cut(&list.came, all, |item| item.bytes, |item| one("new ", item)));
    lines.extend(cut(&list.went, all, |item| item.bytes, |item| one("gone ", item)));
    lines.extend(cut(&list.changed, all, by, changed));
    lines
}

/// The first rows, of what is more than noise; `items` come with the largest `size` first.
fn cut<T>(items: &[T], all: bool, size: impl Fn(&T) -> u64, row: impl Fn(&T) -> Vec<String>) -> Vec<String> {
    let worth = items.iter().take_while(|item| size(item) >= NOISE_BYTES).count();
    let shown = if all { items.len() } else { worth.min(ROWS) };
    let mut lines = columns(items[..shown].iter().map(row).collect(), &[0], 2);
    let left = items.len() - shown;
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
