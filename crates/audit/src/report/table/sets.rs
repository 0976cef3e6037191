//! What only some reports have: figures over samples, and library code in sets of programs.

use super::Shown;
use crate::report::named::unit;
use crate::report::words::{clean, columns, count, ratio, span};
use crate::report::{LibrarySet, Report, SampledFigure, Samples};

/// Figures that the short table has; `--all` has every one.
const FIRST: [&str; 7] = [
    "programs.extent",
    "programs.savings_ratio",
    "all_text.extent",
    "all_text.savings_ratio",
    "memory.proportional_bytes",
    "equal_files.saving_bytes",
    "page_tables.total_bytes",
];

/// Table 2 of the paper: its sets, code fractions, disk fractions.
pub(in crate::report) const PAPER: [(&str, f64, f64, u64); 5] = [
    ("x10progs", 0.51, 0.27, 22),
    ("x11progs", 0.82, 0.55, 69),
    ("/bin", 0.76, 0.48, 45),
    ("/usr/ucb", 0.60, 0.40, 64),
    ("/usr/bin", 0.60, 0.39, 87),
];

/// Means and intervals; nothing where there was one look.
pub(super) fn samples(report: &Report, shown: Shown) -> Vec<String> {
    let Some(samples) = &report.samples else { return Vec::new() };
    let mut lines = vec![String::new(), format!("MEANS of {}", title(samples))];
    let chosen = samples.figures.iter().filter(|figure| shown.all || FIRST.contains(&figure.name.as_str()));
    let mut rows = vec![["  mean", "95 % interval", "least", "most", "figure"].map(str::to_owned).to_vec()];
    rows.extend(chosen.map(row));
    lines.extend(columns(rows, &[0, 2, 3], 2));
    if samples.figures.iter().any(|figure| figure.dependent) {
        lines.push(
            "  *: samples lean on each other for longer than was sampled; the true interval is wider"
                .to_owned(),
        );
    }
    if samples.overruns > 0 {
        lines.push(format!(
            "  {} took longer than the {} between them: the next came late; give --every more",
            count(samples.overruns, "sample"),
            span(samples.every_ms)
        ));
    }
    lines
}

/// `72 samples in 5h 55m`, and what is not a mean.
pub(in crate::report) fn title(samples: &Samples) -> String {
    let early = if samples.ended_early { ", ended early" } else { "" };
    format!(
        "{} in {}{early}; everything else is of the last",
        count(samples.count, "sample"),
        span(samples.span_s.saturating_mul(1000))
    )
}

fn row(figure: &SampledFigure) -> Vec<String> {
    let unit = unit(&figure.name);
    let star = if figure.dependent { "*" } else { "" };
    vec![
        unit.show(figure.mean),
        interval(figure).map_or("one sample has none".to_owned(), |interval| interval + star),
        unit.show(figure.min),
        unit.show(figure.max),
        clean(figure.name.strip_suffix("_bytes").unwrap_or(&figure.name)),
    ]
}

/// `0.259 – 0.283`.
pub(in crate::report) fn interval(figure: &SampledFigure) -> Option<String> {
    let unit = unit(&figure.name);
    Some(format!("{} – {}", unit.show(figure.low?), unit.show(figure.high?)))
}

/// Library code in the sets that were asked for, beside the paper's.
pub(super) fn table_2(report: &Report, shown: Shown) -> Vec<String> {
    if report.library_sets.is_empty() {
        return Vec::new();
    }
    let heads = ["LIBRARY CODE in", "programs", "code", "disk", "code, whole", "disk, whole", "counted by"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(report.library_sets.iter().map(|set| {
        vec![
            shown.name(&set.name, 40),
            set.programs.to_string(),
            ratio(set.code_fraction, 2),
            ratio(set.disk_fraction, 2),
            ratio(set.whole_code_fraction, 2),
            ratio(set.whole_disk_fraction, 2),
            counted(set),
        ]
    }));
    rows.extend(PAPER.iter().map(|(name, code, disk, programs)| {
        let mut row = vec![
            format!("{name} of the paper"),
            programs.to_string(),
            ratio(Some(*code), 2),
            ratio(Some(*disk), 2),
        ];
        row.resize(heads.len(), String::new());
        row
    }));
    let mut lines = vec![String::new()];
    lines.extend(columns(rows, &[1, 2, 3, 4, 5], 0));
    lines
}

/// `1 by symbols, 110 by archive, 9 not`.
pub(in crate::report) fn counted(set: &LibrarySet) -> String {
    let mut text = format!("{} by symbols, {} by archive", set.by_symbols, set.by_archive);
    if set.uncounted > 0 {
        text.push_str(&format!(", {} whole only", set.uncounted));
    }
    if set.skipped > 0 {
        text.push_str(&format!("; {} are no programs", set.skipped));
    }
    text
}
