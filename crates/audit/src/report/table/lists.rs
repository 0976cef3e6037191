//! The lists of the table: equal files, relocation, page tables, deleted files, what ends with whom.

use super::Shown;
use crate::report::words::{NONE, columns, count, count_irregular, mib};
use crate::report::{EqualFiles, Proof, RelocatedLibrary, Relocation, Report, Unique, named};

/// Rows of the lists of what wastes most, and of those of the rest.
const ROWS: usize = 3;
const FEW: usize = 2;
/// Characters of a path in the last column.
const PATH: usize = 70;

/// Heads, the rows that are shown, and how many are not.
fn list<T>(
    heads: &[&str],
    items: &[T],
    (shown, most): (Shown, usize),
    right: &[usize],
    row: impl Fn(&T) -> Vec<String>,
) -> Vec<String> {
    if items.is_empty() {
        return Vec::new();
    }
    let (first, left) = shown.cut(items, most);
    let mut rows = vec![heads.iter().map(|head| (*head).to_owned()).collect()];
    rows.extend(first.iter().map(row));
    let mut lines = columns(rows, right, 2);
    lines.extend(Shown::rest(left, "  "));
    lines
}

/// Copies that waste memory in a list; those that do not, or may not, in a line.
pub(super) fn equal_files(report: &Report, shown: Shown) -> Vec<String> {
    let all = &report.equal_files;
    let with = |proof: Proof| all.iter().filter(|group| group.proof == proof).count() as u64;
    let wasting: Vec<&EqualFiles> =
        all.iter().filter(|group| matches!(group.proof, Proof::Frames | Proof::Proportional)).collect();
    let saving = named::total(wasting.iter().map(|group| group.saving_bytes));
    let others =
        format!("sharing unproven: {}, shared already: {}", with(Proof::Unproven), with(Proof::SameFrames));
    if wasting.is_empty() {
        return vec![format!("EQUAL FILES: none that waste memory ({others})")];
    }
    let files = wasting.len() as u64;
    let mut lines = vec![format!(
        "EQUAL FILES: {} in several copies waste {} ({others})",
        count(files, "file"),
        mib(saving)
    )];
    let rest: Vec<&EqualFiles> = all.iter().filter(|group| !wasting.contains(group)).collect();
    lines.extend(copies(&wasting, shown));
    if shown.all {
        lines.extend(copies(&rest, shown));
    }
    lines
}

/// A row for each group; with `--all` one for each copy too.
fn copies(groups: &[&EqualFiles], shown: Shown) -> Vec<String> {
    if groups.is_empty() {
        return Vec::new();
    }
    let (first, left) = shown.cut(groups, ROWS);
    let mut rows = vec![["saves", "copies", "users", "known by", "file"].map(str::to_owned).to_vec()];
    for group in first {
        let name = group.paths.first().map_or("", String::as_str);
        let users = named::total(group.users.iter().copied());
        rows.push(vec![
            mib(group.saving_bytes),
            group.paths.len().to_string(),
            users.to_string(),
            known_by(group).to_owned(),
            shown.name(name, PATH),
        ]);
        for path in group.paths.iter().skip(1).filter(|_| shown.all) {
            rows.push(vec![
                String::new(),
                String::new(),
                String::new(),
                String::new(),
                shown.name(path, PATH),
            ]);
        }
    }
    let mut lines = columns(rows, &[0, 1, 2], 2);
    lines.extend(Shown::rest(left, "  "));
    lines
}

/// How it is known that the copies are, or are not, memory of their own.
pub(in crate::report) fn known_by(group: &EqualFiles) -> &'static str {
    match group.proof {
        Proof::Frames => "frames",
        Proof::Proportional => "Pss",
        Proof::Unproven => "unproven",
        Proof::SameFrames => "one memory",
    }
}

/// Libraries by what one relocated copy of each would free; written data, which that does not, comes last.
pub(in crate::report) fn by_saving(relocation: &Relocation) -> Vec<&RelocatedLibrary> {
    let mut libraries: Vec<&RelocatedLibrary> = relocation.libraries.iter().collect();
    libraries.sort_by_key(|library| std::cmp::Reverse(library.saving_bytes));
    libraries
}

/// Private copies of pages of files.
pub(super) fn relocation(report: &Report, shown: Shown) -> Vec<String> {
    let relocation = &report.relocation;
    if relocation.libraries.is_empty() {
        return vec!["RELOCATION: no private copies of pages of libraries".to_owned()];
    }
    let mut lines = vec![format!(
        "RELOCATION: {} of private copies after relocation (RELRO), {} of written data",
        mib(relocation.relro_bytes),
        mib(relocation.data_bytes)
    )];
    let heads = ["saves", "RELRO", "data", "users", "file"];
    lines.extend(list(&heads, &by_saving(relocation), (shown, FEW), &[0, 1, 2, 3], |library| {
        vec![
            mib(library.saving_bytes),
            mib(library.relro_bytes),
            mib(library.data_bytes),
            library.users.to_string(),
            shown.name(&library.path, PATH),
        ]
    }));
    lines
}

/// Page tables.
pub(super) fn page_tables(report: &Report, shown: Shown) -> Vec<String> {
    let tables = &report.page_tables;
    let mut lines = vec![format!(
        "PAGE TABLES: {} in scope, {} on the machine; one set for each shared segment would save {}",
        mib(tables.total_bytes),
        mib(tables.machine_bytes),
        mib(tables.saving_bytes)
    )];
    let heads = ["saves", "tables", "users", "size", "segment"];
    lines.extend(list(&heads, &tables.segments, (shown, FEW), &[0, 1, 2, 3], |segment| {
        vec![
            mib(segment.saving_bytes),
            mib(segment.table_bytes),
            segment.users.to_string(),
            mib(segment.size_bytes),
            shown.name(&segment.path, PATH),
        ]
    }));
    lines
}

/// Files that are mapped though their names are gone.
pub(super) fn deleted(report: &Report, shown: Shown) -> Vec<String> {
    if report.deleted.is_empty() {
        return vec!["DELETED FILES STILL MAPPED: none".to_owned()];
    }
    let bytes = named::total(report.deleted.iter().map(|file| file.resident_bytes));
    let mut lines = vec![format!(
        "DELETED FILES STILL MAPPED: {}, {} in memory",
        count(report.deleted.len() as u64, "file"),
        mib(bytes)
    )];
    let heads = ["memory", "file", "held by"];
    lines.extend(list(&heads, &report.deleted, (shown, FEW), &[0], |file| {
        let (first, left) = shown.cut(&file.users, 2);
        let mut users = first.join(", ");
        if left > 0 {
            users.push_str(&format!(" and {left} more"));
        }
        let what = if file.replaced { " (replaced)" } else { "" };
        vec![
            mib(file.resident_bytes),
            format!("{}{what}", shown.name(&file.path, 45)),
            shown.name(&users, 45),
        ]
    }));
    lines
}

/// What ends with a container, a control group or a process.
pub(super) fn unique(report: &Report, shown: Shown) -> Vec<String> {
    if report.unique.is_empty() {
        return vec!["WHAT ENDS WITH WHOM: no process was read".to_owned()];
    }
    let mut lines = vec!["WHAT ENDS WITH WHOM (unique memory; ≥: at least)".to_owned()];
    let heads = ["unique", "swap", "Pss", "Rss", "of"];
    lines.extend(list(&heads, &report.unique, (shown, ROWS), &[0, 1, 2, 3], |unique| {
        let bound = if unique.exact { "" } else { "≥" };
        vec![
            format!("{bound}{}", mib(unique.unique_bytes)),
            if unique.swap_bytes == 0 { NONE.to_owned() } else { mib(unique.swap_bytes) },
            mib(unique.proportional_bytes),
            mib(unique.resident_bytes),
            whom(unique, shown),
        ]
    }));
    lines
}

fn whom(unique: &Unique, shown: Shown) -> String {
    let name = shown.name(&format!("{} {}", unique.kind, unique.name), PATH);
    if unique.processes == 1 {
        return name;
    }
    format!("{name}, {}", count_irregular(unique.processes, "process", "processes"))
}
