//! The difference of two reports: which figures changed, what came and went, and which savings were got.
//!
//! Things are matched by what they are, not by where they stand in a list: equal files by their content, libraries and
//! segments by their paths, containers by their ids. Processes, whose ids change with a restart, are taken together by
//! name.

mod table;

use super::words::clean;
use super::{FORMAT, Report, named};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use table::table;

/// The difference of two reports; the JSON document of `audit diff` too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// [`FORMAT`].
    pub format: u32,
    /// The first report.
    pub before: Side,
    /// The second.
    pub after: Side,
    /// Why the two may not be comparable.
    pub cautions: Vec<String>,
    /// Figures that changed.
    pub figures: Vec<FigureChange>,
    /// What came, went and changed, by list: `equal_files`, `relocation`, `page_tables`, `deleted`, `unique`, `advice`.
    pub lists: Vec<ListChange>,
    /// Savings that the first report found and the second finds less of, or no more: because they were got, or because
    /// what they were found in is not in use any more. The largest first.
    pub savings_got: Vec<SavingGot>,
    /// Their sum.
    pub savings_got_bytes: u64,
}

/// One of the reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// As in the report.
    pub machine: String,
    /// As in the report.
    pub scope: String,
    /// As in the report.
    pub version: String,
    /// As in the report.
    pub taken_at: u64,
    /// Samples that its figures are means of; none: one look.
    pub samples: Option<u64>,
}

/// A figure that changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FigureChange {
    /// As in [`super::SampledFigure`].
    pub name: String,
    /// Its value, or mean if sampled.
    pub before: Option<f64>,
    /// See `before`.
    pub after: Option<f64>,
    /// Both were sampled, and their 95 % intervals do not (true) or do (false) meet. None: not both have one.
    pub intervals_apart: Option<bool>,
}

/// What became of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListChange {
    /// Which.
    pub list: String,
    /// Only in the second report.
    pub came: Vec<Item>,
    /// Only in the first.
    pub went: Vec<Item>,
    /// In both, with another size.
    pub changed: Vec<ItemChange>,
    /// In both, the same.
    pub unchanged: u64,
}

/// Something in a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// What it is called.
    pub name: String,
    /// Saving of equal files, relocation, page tables and advice; memory of deleted files; unique memory with swap.
    pub bytes: u64,
}

/// Something that changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ItemChange {
    /// What it is called.
    pub name: String,
    /// See [`Item::bytes`].
    pub before_bytes: u64,
    /// See [`Item::bytes`].
    pub after_bytes: u64,
}

/// A saving that was there and is smaller now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavingGot {
    /// The list it was found in.
    pub list: String,
    /// What it is called.
    pub name: String,
    /// How much smaller.
    pub got_bytes: u64,
}

/// Lists whose sizes are savings, or memory that a restart gives back.
const SAVINGS: [&str; 4] = ["equal_files", "relocation", "page_tables", "deleted"];

/// Compares two reports.
pub fn diff(before: &Report, after: &Report) -> Difference {
    let lists: Vec<ListChange> = lists(before)
        .into_iter()
        .zip(lists(after))
        .map(|((list, before), (_, after))| list_change(list, &before, &after))
        .collect();
    let savings_got = savings_got(&lists);
    Difference {
        format: FORMAT,
        before: side(before),
        after: side(after),
        cautions: cautions(before, after),
        figures: figures(before, after),
        savings_got_bytes: named::total(savings_got.iter().map(|saving| saving.got_bytes)),
        savings_got,
        lists,
    }
}

fn side(report: &Report) -> Side {
    Side {
        machine: report.machine.clone(),
        scope: report.scope.clone(),
        version: report.version.clone(),
        taken_at: report.taken_at,
        samples: report.samples.as_ref().map(|samples| samples.count),
    }
}

/// Host name, without the kernel behind it.
fn host(report: &Report) -> &str {
    report.machine.split(", ").next().unwrap_or(&report.machine)
}

fn cautions(before: &Report, after: &Report) -> Vec<String> {
    let mut cautions = Vec::new();
    if host(before) != host(after) {
        cautions.push(format!(
            "different machines: {} and {}; compare ratios, not sizes",
            clean(host(before)),
            clean(host(after))
        ));
    } else if before.machine != after.machine {
        cautions.push(format!("another kernel: {} and {}", clean(&before.machine), clean(&after.machine)));
    }
    if before.scope != after.scope {
        cautions.push(format!("different scopes: {} and {}", clean(&before.scope), clean(&after.scope)));
    }
    if before.taken_at > after.taken_at {
        cautions.push("the first report is the later one: are they in the right order?".to_owned());
    }
    if before.version != after.version {
        cautions.push(format!(
            "made by different versions: {} and {}",
            clean(&before.version),
            clean(&after.version)
        ));
    }
    if before.samples.is_some() != after.samples.is_some() {
        cautions.push("one has means of samples, the other is one look".to_owned());
    }
    cautions.extend(seen_differently(before, after));
    cautions
}

/// What one of the two could not see for a reason that the other did not have.
fn seen_differently(before: &Report, after: &Report) -> Vec<String> {
    let only = |one: &Report, other: &Report, when: &str| -> Vec<String> {
        let new = one.unseen.iter().filter(|unseen| !other.unseen.iter().any(|seen| seen.why == unseen.why));
        new.map(|unseen| format!("not seen {when}: {}: {}", clean(&unseen.what), clean(&unseen.why)))
            .collect()
    };
    let mut all = only(before, after, "before, but after");
    all.extend(only(after, before, "after, but before"));
    all
}

fn figures(before: &Report, after: &Report) -> Vec<FigureChange> {
    let changes = named::of(before).into_iter().zip(named::of(after)).map(|(one, other)| {
        let (old, new) = (value(before, &one), value(after, &other));
        FigureChange {
            name: one.name.to_owned(),
            before: old.value,
            after: new.value,
            intervals_apart: old.interval.zip(new.interval).map(|(old, new)| old.1 < new.0 || new.1 < old.0),
        }
    });
    changes.filter(|change| change.before != change.after).collect()
}

/// A figure as it is compared: the mean where there is one.
struct Value {
    value: Option<f64>,
    interval: Option<(f64, f64)>,
}

fn value(report: &Report, figure: &named::Named) -> Value {
    let figures = report.samples.iter().flat_map(|samples| &samples.figures);
    match figures.into_iter().find(|sampled| sampled.name == figure.name) {
        Some(sampled) => Value { value: Some(sampled.mean), interval: sampled.low.zip(sampled.high) },
        None => Value { value: figure.value, interval: None },
    }
}

/// Things of a list by identity: the name for people, and bytes.
type Things = BTreeMap<String, Item>;

fn lists(report: &Report) -> [(&'static str, Things); 6] {
    let equal = report.equal_files.iter().map(|group| {
        let name = group.paths.first().cloned().unwrap_or_default();
        (group.identity.clone(), name, group.saving_bytes)
    });
    let by_name = |name: &str, bytes: u64| (name.to_owned(), name.to_owned(), bytes);
    let unique = report.unique.iter().map(|unique| {
        let name = match unique.name.rsplit_once(" (") {
            Some((name, _)) if unique.kind == "process" => format!("processes {name}"),
            _ => format!("{} {}", unique.kind, unique.name),
        };
        by_name(&name, unique.unique_bytes.saturating_add(unique.swap_bytes))
    });
    [
        ("equal_files", things(equal)),
        (
            "relocation",
            things(
                report
                    .relocation
                    .libraries
                    .iter()
                    .map(|library| by_name(&library.path, library.saving_bytes)),
            ),
        ),
        (
            "page_tables",
            things(
                report
                    .page_tables
                    .segments
                    .iter()
                    .map(|segment| by_name(&segment.path, segment.saving_bytes)),
            ),
        ),
        ("deleted", things(report.deleted.iter().map(|file| by_name(&file.path, file.resident_bytes)))),
        ("unique", things(unique)),
        ("advice", things(report.advice.iter().map(|advice| by_name(&advice.what, advice.saving_bytes)))),
    ]
}

/// What has one identity counts together.
fn things(all: impl Iterator<Item = (String, String, u64)>) -> Things {
    let mut things = Things::new();
    for (identity, name, bytes) in all {
        let item = things.entry(identity).or_insert(Item { name, bytes: 0 });
        item.bytes = item.bytes.saturating_add(bytes);
    }
    things
}

fn list_change(list: &str, before: &Things, after: &Things) -> ListChange {
    let mut change = ListChange { list: list.to_owned(), ..ListChange::default() };
    for (identity, old) in before {
        match after.get(identity) {
            None => change.went.push(old.clone()),
            Some(new) if new.bytes == old.bytes => change.unchanged += 1,
            Some(new) => change.changed.push(ItemChange {
                name: new.name.clone(),
                before_bytes: old.bytes,
                after_bytes: new.bytes,
            }),
        }
    }
    change.came =
        after.iter().filter(|(key, _)| !before.contains_key(*key)).map(|(_, item)| item.clone()).collect();
    change.came.sort_by(|one, other| (other.bytes, &one.name).cmp(&(one.bytes, &other.name)));
    change.went.sort_by(|one, other| (other.bytes, &one.name).cmp(&(one.bytes, &other.name)));
    let size = |change: &ItemChange| change.before_bytes.abs_diff(change.after_bytes);
    change.changed.sort_by(|one, other| (size(other), &one.name).cmp(&(size(one), &other.name)));
    change
}

fn savings_got(lists: &[ListChange]) -> Vec<SavingGot> {
    let mut got = Vec::new();
    for list in lists.iter().filter(|list| SAVINGS.contains(&list.list.as_str())) {
        let mut add = |name: &str, got_bytes: u64| {
            if got_bytes > 0 {
                got.push(SavingGot { list: list.list.clone(), name: name.to_owned(), got_bytes });
            }
        };
        list.went.iter().for_each(|item| add(&item.name, item.bytes));
        list.changed
            .iter()
            .for_each(|item| add(&item.name, item.before_bytes.saturating_sub(item.after_bytes)));
    }
    got.sort_by(|one, other| (other.got_bytes, &one.name).cmp(&(one.got_bytes, &other.name)));
    got
}

#[cfg(test)]
mod tests;
