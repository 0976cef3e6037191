//! The lists of the page.

use super::bars::{Bar, bar};
use super::{ROWS, scrolling};
use crate::report::table::lists::{by_saving, known_by};
use crate::report::words::{NONE, clean, count, mib};
use crate::report::{EqualFiles, Report, named};
use maud::{Markup, html};

/// What a list leaves out.
pub fn rest(left: usize) -> Markup {
    html! { @if left > 0 { p.rest { "… and " (left) " more: the JSON document has them (commonhold audit --json)." } } }
}

/// The head of a column: of numbers if it begins with `#`; of charts, which are not read out, if it is empty.
fn head(name: &str) -> Markup {
    html! {
        @if name.is_empty() {
            td {}
        } @else if let Some(number) = name.strip_prefix('#') {
            th scope="col" .n { (number) }
        } @else {
            th scope="col" { (name) }
        }
    }
}

/// A section with a table of `heads` and rows. Nothing to list: `nothing`.
fn section<T>(
    (title, about): (&str, Markup),
    heads: &[&str],
    items: &[T],
    nothing: &str,
    row: impl Fn(&T) -> Markup,
) -> Markup {
    html! {
        section {
            h2 { (title) }
            (about)
            @if items.is_empty() {
                p { (nothing) }
            } @else {
                (scrolling(title, html! { table {
                    thead { tr { @for name in heads { (head(name)) } } }
                    tbody { @for item in items.iter().take(ROWS) { tr { (row(item)) } } }
                } }))
                (rest(items.len().saturating_sub(ROWS)))
            }
        }
    }
}

/// Files of equal content.
pub fn equal_files(report: &Report) -> Markup {
    let most = report.equal_files.iter().map(|group| group.saving_bytes).max().unwrap_or(0);
    let about = html! { p {
        "Files with equal bytes and different inodes. They waste memory only where their page frames are known to "
        "differ: by frame numbers, or by Pss."
    } };
    let heads = ["Files", "#Saves, MiB", "", "#Copies", "#Users", "Known by"];
    section(("Equal files", about), &heads, &report.equal_files, "None.", |group| {
        html! {
            td.name { (copies(group)) }
            td.n { (mib(group.saving_bytes)) }
            td.chart { (bar(Bar::Saving, group.saving_bytes, most)) }
            td.n { (group.paths.len()) }
            td.n { (named::total(group.users.iter().copied())) }
            td { (known_by(group)) }
        }
    })
}

fn copies(group: &EqualFiles) -> Markup {
    let Some((first, others)) = group.paths.split_first() else { return html! { (NONE) } };
    html! {
        @if others.is_empty() {
            code { (clean(first)) }
        } @else {
            details {
                summary { code { (clean(first)) } }
                ul {
                    @for (place, path) in group.paths.iter().enumerate().take(ROWS) {
                        li {
                            code { (clean(path)) } ": "
                            (group.users.get(place).map_or(NONE.to_owned(), |users| count(*users, "user"))) ", "
                            (group.resident_bytes.get(place).copied().flatten().map_or(NONE.to_owned(), mib)) " MiB"
                        }
                    }
                }
                (rest(group.paths.len().saturating_sub(ROWS)))
            }
        }
    }
}

/// Private copies of pages of files.
pub fn relocation(report: &Report) -> Markup {
    let relocation = &report.relocation;
    let most = relocation.libraries.iter().map(|library| library.saving_bytes).max().unwrap_or(0);
    let about = html! { p {
        "Pages of libraries that each process has for itself: " (mib(relocation.relro_bytes))
        " MiB changed by the loader and read-only since (RELRO), " (mib(relocation.data_bytes))
        " MiB of written data. Saves: what one relocated copy for all would free."
    } };
    let heads = ["File", "#Saves, MiB", "", "#RELRO, MiB", "#Data, MiB", "#Users"];
    section(("Relocation", about), &heads, &by_saving(relocation), "None.", |library| {
        html! {
            td.name { code { (clean(&library.path)) } }
            td.n { (mib(library.saving_bytes)) }
            td.chart { (bar(Bar::Saving, library.saving_bytes, most)) }
            td.n { (mib(library.relro_bytes)) }
            td.n { (mib(library.data_bytes)) }
            td.n { (library.users) }
        }
    })
}

/// Page tables.
pub fn page_tables(report: &Report) -> Markup {
    let tables = &report.page_tables;
    let most = tables.segments.iter().map(|segment| segment.saving_bytes).max().unwrap_or(0);
    let about = html! { p {
        (mib(tables.total_bytes)) " MiB in scope, " (mib(tables.machine_bytes))
        " MiB on the whole machine. One set for each shared segment would save " (mib(tables.saving_bytes)) " MiB."
    } };
    let heads = ["Segment", "#Saves, MiB", "", "#Tables, MiB", "#Users", "#Size, MiB"];
    section(("Page tables", about), &heads, &tables.segments, "No segment has several users.", |segment| {
        html! {
            td.name { code { (clean(&segment.path)) } }
            td.n { (mib(segment.saving_bytes)) }
            td.chart { (bar(Bar::Saving, segment.saving_bytes, most)) }
            td.n { (mib(segment.table_bytes)) }
            td.n { (segment.users) }
            td.n { (mib(segment.size_bytes)) }
        }
    })
}

/// Files whose names are gone.
pub fn deleted(report: &Report) -> Markup {
    let most = report.deleted.iter().map(|file| file.resident_bytes).max().unwrap_or(0);
    let heads = ["File", "#Memory, MiB", "", "Held by"];
    let about = html! { p { "Their memory ends with the last process that holds them. Replaced: an old version is running." } };
    section(("Deleted files still mapped", about), &heads, &report.deleted, "None.", |file| {
        let (first, left) = file.users.split_at(file.users.len().min(12));
        html! {
            td.name { code { (clean(&file.path)) } @if file.replaced { " (replaced)" } }
            td.n { (mib(file.resident_bytes)) }
            td.chart { (bar(Bar::Unique, file.resident_bytes, most)) }
            td {
                (clean(&first.join(", ")))
                @if !left.is_empty() { " and " (left.len()) " more" }
            }
        }
    })
}

/// What ends with whom.
pub fn unique(report: &Report) -> Markup {
    let most = report.unique.iter().map(|unique| unique.unique_bytes).max().unwrap_or(0);
    let about = html! { p {
        "Memory that nobody else maps: it is free when that process, container or control group ends. "
        "≥: at least, where it could not be counted by page frames."
    } };
    let heads = ["Of", "#Unique, MiB", "", "#Swap", "#Pss", "#Rss", "#Processes"];
    section(("What ends with whom", about), &heads, &report.unique, "No process was read.", |unique| {
        html! {
            td.name { (clean(&unique.kind)) " " code { (clean(&unique.name)) } }
            td.n { @if !unique.exact { "≥" } (mib(unique.unique_bytes)) }
            td.chart { (bar(Bar::Unique, unique.unique_bytes, most)) }
            td.n { (mib(unique.swap_bytes)) }
            td.n { (mib(unique.proportional_bytes)) }
            td.n { (mib(unique.resident_bytes)) }
            td.n { (unique.processes) }
        }
    })
}
