//! What only some pages have: figures over samples, and library code in sets of programs.

use super::{bars, scrolling};
use crate::report::named::unit;
use crate::report::table::sets::{PAPER, counted, interval, title};
use crate::report::words::{NONE, clean, count, ratio, span};
use crate::report::{LibrarySet, Report, SampledFigure, Samples};
use maud::{Markup, html};

/// Means and intervals.
pub fn samples(report: &Report) -> Markup {
    html! { @if let Some(samples) = &report.samples { (of(samples)) } }
}

fn of(samples: &Samples) -> Markup {
    html! {
        section {
            h2 { "Over time" }
            p { "Means of " (title(samples)) ". Intervals are 95 % (Student's t, over batches where samples lean on each other)." }
            @if samples.overruns > 0 {
                p {
                    (count(samples.overruns, "sample")) " took longer than the "
                    (span(samples.every_ms)) " between them: the next came late."
                }
            }
            (scrolling("Over time", html! { table {
                thead { tr {
                    th scope="col" { "Figure" } th scope="col" .n { "Mean" } th scope="col" { "95 % interval" }
                    th scope="col" .n { "Least" } th scope="col" .n { "Most" } td {}
                } }
                tbody { @for figure in &samples.figures { (row(figure)) } }
            } }))
            @if samples.figures.iter().any(|figure| figure.dependent) {
                p { "*: samples lean on each other for longer than was sampled; the true interval is wider." }
            }
        }
    }
}

fn row(figure: &SampledFigure) -> Markup {
    let unit = unit(&figure.name);
    html! {
        tr {
            td { (clean(&figure.name)) }
            td.n { (unit.show(figure.mean)) }
            td { (interval(figure).unwrap_or(NONE.to_owned())) @if figure.dependent { "*" } }
            td.n { (unit.show(figure.min)) }
            td.n { (unit.show(figure.max)) }
            td.chart { (bars::interval(figure.mean, figure.low.zip(figure.high), figure.min, figure.max)) }
        }
    }
}

/// Library code.
pub fn library_sets(report: &Report) -> Markup {
    html! { @if !report.library_sets.is_empty() {
        section {
            h2 { "Library code in sets of programs" }
            p {
                "Code: library code ÷ all code. Disk: library code ÷ disk space. Whole: the same with each needed "
                "library counted whole (Govindan, Table 2)."
            }
            (scrolling("Library code", html! { table {
                thead { tr {
                    th scope="col" { "Set" } th scope="col" .n { "Programs" } th scope="col" .n { "Code" }
                    th scope="col" .n { "Disk" } th scope="col" .n { "Code, whole" } th scope="col" .n { "Disk, whole" }
                    th scope="col" { "Counted" } th scope="col" { "Most" }
                } }
                tbody {
                    @for set in &report.library_sets { (set_row(set)) }
                    @for (name, code, disk, programs) in PAPER {
                        tr {
                            td { (name) " of the paper" } td.n { (programs) } td.n { (ratio(Some(code), 2)) }
                            td.n { (ratio(Some(disk), 2)) } td.n { (NONE) } td.n { (NONE) } td {} td {}
                        }
                    }
                }
            } }))
        }
    } }
}

fn set_row(set: &LibrarySet) -> Markup {
    html! {
        tr {
            td { (clean(&set.name)) }
            td.n { (set.programs) }
            td.n { (ratio(set.code_fraction, 2)) }
            td.n { (ratio(set.disk_fraction, 2)) }
            td.n { (ratio(set.whole_code_fraction, 2)) }
            td.n { (ratio(set.whole_disk_fraction, 2)) }
            td { (counted(set)) }
            td { @if let Some((path, fraction)) = &set.most { code { (clean(path)) } " " (ratio(Some(*fraction), 2)) } }
        }
    }
}
