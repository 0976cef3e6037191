//! The lists of the page.

use super::ROWS;
use super::bars::{Bar, bar};
use crate::report::table::lists::known_by;
use crate::report::words::{NONE, clean, mib};
use crate::report::{EqualFiles, Report, named};
use maud::{Markup, html};

/// What a list leaves out.
pub fn rest(left: usize) -> Markup {
    html! { @if left > 0 { p.rest { "… and " (left) " more: the JSON document has them (commonhold audit --json)." } } }
}

/// A section with a table of `heads` and rows; those of numbers begin with `#`. Nothing to list: `nothing`.
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
                div.scroll { table {
                    thead { tr { @for head in heads {
                        @if let Some(number) = head.strip_prefix('#') {
                            th scope="col" .n { (number) }
                        } @else {
                            th scope="col" { (head) }
                        }
                    } } }
                    tbody { @for item in items.iter().take(ROWS) { tr { (row(item)) } } }
                } }
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
    let heads = ["#Saves, MiB", "", "#Copies", "#Users", "Known by", "Files"];
    section(("Equal files", about), &heads, &report.equal_files, "None.", |group| {
        html! {
            td.n { (mib(group.saving_bytes)) }
            td.chart { (bar(Bar::Saving, group.saving_bytes, most)) }
            td.n { (group.paths.len()) }
            td.n { (named::total(group.users.iter().copied())) }
            td { (known_by(group)) }
            td { (copies(group)) }
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
                            (group.users.get(place).map_or(NONE.to_owned(), u64::to_string)) " users, "
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
    let heads = ["#Saves, MiB", "", "#RELRO, MiB", "#Data, MiB", "#Users", "File"];
    section(("Relocation", about), &heads, &relocation.libraries, "None.", |library| {
        html! {
            td.n { (mib(library.saving_bytes)) }
            td.chart { (bar(Bar::Saving, library.saving_bytes, most)) }
            td.n { (mib(library.relro_bytes)) }
            td.n { (mib(library.data_bytes)) }
            td.n { (library.users) }
            td { code { (clean(&library.path)) } }
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
    let heads = ["#Saves, MiB", "", "#Tables, MiB", "#Users", "#Size, MiB", "Segment"];
    section(("Page tables", about), &heads, &tables.segments, "No segment has several users.", |segment| {
        html! {
            td.n { (mib(segment.saving_bytes)) }
            td.chart { (bar(Bar::Saving, segment.saving_bytes, most)) }
            td.n { (mib(segment.table_bytes)) }
            td.n { (segment.users) }
            td.n { (mib(segment.size_bytes)) }
            td { code { (clean(&segment.path)) } }
        }
    })
}

/// Files whose names are gone.
pub fn deleted(report: &Report) -> Markup {
    let most = report.deleted.iter().map(|file| file.resident_bytes).max().unwrap_or(0);
    let heads = ["#Memory, MiB", "", "File", "Held by"];
    let about = html! { p { "Their memory ends with the last process that holds them. Replaced: an old version is running." } };
    section(("Deleted files still mapped", about), &heads, &report.deleted, "None.", |file| {
        let (first, left) = file.users.split_at(file.users.len().min(12));
        html! {
            td.n { (mib(file.resident_bytes)) }
            td.chart { (bar(Bar::Unique, file.resident_bytes, most)) }
            td { code { (clean(&file.path)) } @if file.replaced { " (replaced)" } }
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
    let heads = ["#Unique, MiB", "", "#Swap", "#Pss", "#Rss", "#Processes", "Of"];
    section(("What ends with whom", about), &heads, &report.unique, "No process was read.", |unique| {
        html! {
            td.n { @if !unique.exact { "≥" } (mib(unique.unique_bytes)) }
            td.chart { (bar(Bar::Unique, unique.unique_bytes, most)) }
            td.n { (mib(unique.swap_bytes)) }
            td.n { (mib(unique.proportional_bytes)) }
            td.n { (mib(unique.resident_bytes)) }
            td.n { (unique.processes) }
            td { (clean(&unique.kind)) " " code { (clean(&unique.name)) } }
        }
    })
}
