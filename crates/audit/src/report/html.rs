//! The report as one page that needs nothing else: no script, no font, no picture from elsewhere.
//!
//! Every number of a chart stands in the table that the chart is part of, so that the page can be read without seeing
//! it. What comes from the audited machine (paths, names of processes) is text, whatever it looks like: `maud` escapes
//! it, [`clean`] shows what is invisible, and the page's own policy forbids scripts and requests altogether.

mod bars;
mod lists;
mod sets;

use super::words::{NONE, clean, count_irregular, mib, moment, ratio, span};
use super::{Advice, Report, SharingFigure, named, table};
use bars::{Bar, bar, stack};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Ours, and in the page as it is.
const STYLE: &str = include_str!("html/style.css");
/// Nothing is fetched, nothing runs.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
/// Rows of a list: a page of ten thousand processes would be read by nobody. The JSON document has all.
const ROWS: usize = 100;
/// Steps of advice that are shown at once.
const STEPS: usize = 8;

/// The whole page.
pub fn page(report: &Report) -> String {
    let title = format!("Audit: {} of {}", scope(report), clean(&report.machine));
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (head(report))
                main {
                    (memory(report))
                    (savings(report))
                    (sharing(report))
                    (sets::samples(report))
                    (sets::library_sets(report))
                    (lists::equal_files(report))
                    (lists::relocation(report))
                    (lists::page_tables(report))
                    (lists::deleted(report))
                    (kernel_means(report))
                    (lists::unique(report))
                    (unseen(report))
                }
                footer { p { "Made by commonhold " (clean(&report.version)) ". Sizes are MiB of memory." } }
            }
        }
    };
    page.into_string()
}

/// What was audited, as part of a sentence.
fn scope(report: &Report) -> String {
    if report.scope == "machine" { "this machine".to_owned() } else { clean(&report.scope) }
}

/// A table that scrolls by itself where the page is narrow, also by keyboard.
fn scrolling(name: &str, table: Markup) -> Markup {
    html! { div.scroll role="region" aria-label=(name) tabindex="0" { (table) } }
}

fn head(report: &Report) -> Markup {
    let programs = &report.sharing.programs;
    let possible = named::total(report.advice.iter().take(3).map(|advice| advice.saving_bytes));
    html! {
        header {
            h1 { "How much " (scope(report)) " shares" }
            p {
                (clean(&report.machine)) ", " (moment(report.taken_at)) ". "
                (count_irregular(report.processes, "process", "processes")) " read in " (span(report.took_ms))
                " (" (span(report.cpu_ms)) " of processor time)."
            }
            dl.tiles {
                div { dt { "In use, MiB" } dd { (mib(report.memory.proportional_bytes)) } }
                div { dt { "Programs: extent of sharing" } dd { (ratio(programs.extent, 3)) } }
                div { dt { "Programs: memory savings ratio" } dd { (ratio(programs.savings_ratio, 2)) } }
                div { dt { "Three largest savings, MiB" } dd { (mib(possible)) } }
            }
        }
    }
}

fn memory(report: &Report) -> Markup {
    let memory = &report.memory;
    let shared = memory.proportional_bytes.saturating_sub(memory.private_bytes);
    let used = memory.machine_bytes.saturating_sub(memory.available_bytes);
    let rest = used.saturating_sub(memory.proportional_bytes);
    let mut parts = vec![
        ("Of one process each (USS)", memory.private_bytes, "a"),
        ("Shared, by share (Pss − USS)", shared, "b"),
    ];
    if memory.machine_bytes > 0 {
        parts.push(("Other use of the machine", rest, "c"));
        parts.push(("Available", memory.available_bytes, "d"));
    }
    html! {
        section {
            h2 { "Memory" }
            (stack(&parts))
            (scrolling("Memory", html! { table {
                thead { tr { th scope="col" { "Part" } th scope="col" .n { "MiB" } } }
                tbody {
                    @for (name, bytes, class) in &parts {
                        tr { td { span.key.(class) {} (name) } td.n { (mib(*bytes)) } }
                    }
                    tr { td { "If nothing were shared (Rss)" } td.n { (mib(memory.resident_bytes)) } }
                    tr { td { "Anonymous" } td.n { (mib(memory.anonymous_bytes)) } }
                }
            } }))
        }
    }
}

fn savings(report: &Report) -> Markup {
    let most = report.advice.iter().map(|advice| advice.saving_bytes).max().unwrap_or(0);
    let left = report.advice.len().saturating_sub(ROWS);
    html! {
        section {
            h2 { "Largest savings" }
            @if report.advice.is_empty() { p { "None was found." } }
            ol.savings {
                @for advice in report.advice.iter().take(ROWS) { (one_saving(advice, most)) }
            }
            (lists::rest(left))
        }
    }
}

fn one_saving(advice: &Advice, most: u64) -> Markup {
    let (first, further) = advice.how.split_at(advice.how.len().min(STEPS));
    let text = |steps: &[String]| steps.iter().map(|step| clean(step)).collect::<Vec<_>>().join("\n");
    html! {
        li {
            h3 { (mib(advice.saving_bytes)) " MiB: " (clean(&advice.what)) }
            (bar(Bar::Saving, advice.saving_bytes, most))
            p.sure { (clean(&advice.certainty)) }
            @if !first.is_empty() { pre { (text(first)) } }
            @if !further.is_empty() {
                details { summary { (further.len()) " more steps" } pre { (text(further)) } }
            }
            @if !advice.care.is_empty() { p { (clean(&advice.care)) } }
        }
    }
}

fn sharing(report: &Report) -> Markup {
    let rows = [
        ("Texts of programs", &report.sharing.programs),
        ("All text, libraries too", &report.sharing.all_text),
        ("All that is read only", &report.sharing.all_read_only),
    ];
    let most = rows.iter().map(|(_, figure)| figure.without_sharing_bytes).max().unwrap_or(0);
    html! {
        section {
            h2 { "Sharing" }
            p {
                "Extent: segments that more than one process maps ÷ segments in memory. Savings ratio: memory if "
                "each process had its own ÷ memory that is used. The paper found " (table::PAPER.0) " and "
                (table::PAPER.1) " for programs of 4.3 BSD (Govindan, Table 1)."
            }
            (scrolling("Sharing", html! { table {
                thead { tr {
                    th scope="col" { "What" } th scope="col" .n { "Active" } th scope="col" .n { "Shared" }
                    th scope="col" .n { "Extent" } th scope="col" .n { "Without, MiB" } th scope="col" .n { "With, MiB" }
                    th scope="col" .n { "Ratio" } th scope="col" { "Without and with" }
                } }
                tbody {
                    @for (name, figure) in rows { (sharing_row(name, figure, most)) }
                    tr {
                        td { "Programs of the paper" } td.n { (NONE) } td.n { (NONE) } td.n { (table::PAPER.0) }
                        td.n { (NONE) } td.n { (NONE) } td.n { (table::PAPER.1) } td {}
                    }
                }
            } }))
        }
    }
}

fn sharing_row(name: &str, figure: &SharingFigure, most: u64) -> Markup {
    html! {
        tr {
            td { (name) }
            td.n { (figure.active) }
            td.n { (figure.shared) }
            td.n { (ratio(figure.extent, 3)) }
            td.n { (mib(figure.without_sharing_bytes)) }
            td.n { (mib(figure.with_sharing_bytes)) }
            td.n { (ratio(figure.savings_ratio, 2)) }
            td.chart {
                (bar(Bar::Without, figure.without_sharing_bytes, most))
                (bar(Bar::With, figure.with_sharing_bytes, most))
            }
        }
    }
}

fn kernel_means(report: &Report) -> Markup {
    let means = &report.kernel_means;
    let saved = means.merged_saving_bytes.map_or("KSM does not run".to_owned(), mib);
    html! {
        section {
            h2 { "What the kernel's own means do" }
            (scrolling("Kernel means", html! { table {
                thead { tr { th scope="col" { "Means" } th scope="col" .n { "MiB" } } }
                tbody {
                    tr { td { "Mapped pages that KSM merged" } td.n { (mib(means.merged_bytes)) } }
                    tr { td { "Saved by KSM on the whole machine" } td.n { (saved) } }
                    tr { td { "Swapped out" } td.n { (mib(means.swapped_bytes)) } }
                    tr { td { "In huge pages" } td.n { (mib(means.huge_bytes)) } }
                    tr { td { "Of that text of files" } td.n { (mib(means.huge_text_bytes)) } }
                    tr { td { "In hugetlb pages" } td.n { (mib(means.hugetlb_bytes)) } }
                }
            } }))
        }
    }
}

fn unseen(report: &Report) -> Markup {
    html! {
        section {
            h2 { "Not seen" }
            @if report.unseen.is_empty() { p { "Nothing was left out." } }
            ul {
                @for one in report.unseen.iter().take(ROWS) {
                    li { (clean(&one.what)) ": " (clean(&one.why)) }
                }
            }
            (lists::rest(report.unseen.len().saturating_sub(ROWS)))
        }
    }
}

#[cfg(test)]
mod tests;
