//! The report for people: what was seen, the three largest savings and how to get each, then where they come from.
//!
//! About forty lines for a machine, so that it is read in a minute; what is left out is counted, and `--all` shows it.

pub(in crate::report) mod lists;
pub(in crate::report) mod sets;

use super::words::{clean, columns, count, mib, moment, ratio, shorten, span, wrap};
use super::{Advice, Report, SharingFigure, named};

/// Columns of a terminal that lines keep to, where they may be cut or wrapped.
const WIDTH: usize = 100;
/// Savings that are told with the way to get them.
const ADVICE: usize = 3;
/// Steps of each.
const STEPS: usize = 2;
/// Lines of what to heed.
const CARE: usize = 1;
/// Reasons why something was not seen.
const UNSEEN: usize = 4;
/// Table 1 of the paper: extent of sharing and memory savings ratio.
pub(super) const PAPER: (f64, f64) = (0.298, 4.12);

/// How much to show.
#[derive(Clone, Copy)]
struct Shown {
    all: bool,
}

impl Shown {
    /// Of a list: what is shown, and how many are not.
    fn cut<'a, T>(&self, list: &'a [T], most: usize) -> (&'a [T], usize) {
        let shown = if self.all { list.len() } else { list.len().min(most) };
        (&list[..shown], list.len() - shown)
    }

    /// A path or name, cut in the middle where not all is to be shown.
    fn name(&self, text: &str, most: usize) -> String {
        if self.all { clean(text) } else { shorten(text, most) }
    }

    /// The line below a list that was cut.
    fn rest(left: usize, margin: &str) -> Option<String> {
        (left > 0).then(|| format!("{margin}… and {left} more (--all)"))
    }
}

/// The whole report; `all`: nothing is cut.
pub fn table(report: &Report, all: bool) -> String {
    let shown = Shown { all };
    let mut lines = head(report);
    lines.push(String::new());
    lines.extend(table_1(report));
    lines.extend(sets::samples(report, shown));
    lines.extend(sets::table_2(report, shown));
    lines.push(String::new());
    lines.extend(savings(report, shown));
    lines.push(String::new());
    lines.extend(lists::equal_files(report, shown));
    lines.extend(lists::relocation(report, shown));
    lines.extend(lists::page_tables(report, shown));
    lines.extend(lists::deleted(report, shown));
    lines.push(kernel_means(report));
    lines.extend(lists::unique(report, shown));
    lines.extend(unseen(report, shown));
    lines.join("\n")
}

fn head(report: &Report) -> Vec<String> {
    let memory = &report.memory;
    let mut lines = vec![
        format!("{} of {}, {}", clean(&report.scope), clean(&report.machine), moment(report.taken_at)),
        format!(
            "{} read in {} ({} of processor time); sizes are MiB of memory",
            super::words::count_irregular(report.processes, "process", "processes"),
            span(report.took_ms),
            span(report.cpu_ms)
        ),
        format!(
            "{} in use by them (Pss): {} if nothing were shared (Rss), {} of one process each (USS), {} anonymous",
            mib(memory.proportional_bytes),
            mib(memory.resident_bytes),
            mib(memory.private_bytes),
            mib(memory.anonymous_bytes)
        ),
    ];
    if memory.machine_bytes > 0 {
        lines.push(format!(
            "{} on the machine, {} available",
            mib(memory.machine_bytes),
            mib(memory.available_bytes)
        ));
    }
    lines
}

fn table_1(report: &Report) -> Vec<String> {
    let row = |name: &str, figure: &SharingFigure| {
        vec![
            name.to_owned(),
            figure.active.to_string(),
            figure.shared.to_string(),
            ratio(figure.extent, 3),
            mib(figure.without_sharing_bytes),
            mib(figure.with_sharing_bytes),
            ratio(figure.savings_ratio, 2),
        ]
    };
    let heads = ["SHARING", "active", "shared", "extent", "MiB without", "MiB with", "savings ratio"];
    let mut paper = vec![String::new(); heads.len()];
    paper[0] = "programs of the paper (4.3 BSD, 1990)".to_owned();
    (paper[3], paper[6]) = (ratio(Some(PAPER.0), 3), ratio(Some(PAPER.1), 2));
    let rows = vec![
        heads.map(str::to_owned).to_vec(),
        row("texts of programs", &report.sharing.programs),
        paper,
        row("all text, libraries too", &report.sharing.all_text),
        row("all that is read only", &report.sharing.all_read_only),
    ];
    columns(rows, &[1, 2, 3, 4, 5, 6], 0)
}

fn savings(report: &Report, shown: Shown) -> Vec<String> {
    if report.advice.is_empty() {
        return vec!["LARGEST SAVINGS: none was found".to_owned()];
    }
    let (first, left) = shown.cut(&report.advice, ADVICE);
    let mut lines = vec!["LARGEST SAVINGS".to_owned()];
    for (place, advice) in first.iter().enumerate() {
        lines.extend(one_saving(place + 1, advice, shown));
    }
    if left > 0 {
        let rest = named::total(report.advice[first.len()..].iter().map(|advice| advice.saving_bytes));
        lines.push(format!("… and {left} more, {} together (--all)", mib(rest)));
    }
    lines
}

fn one_saving(number: usize, advice: &Advice, shown: Shown) -> Vec<String> {
    let what = format!(
        "{number}. {} MiB {}: {}",
        mib(advice.saving_bytes),
        clean(&advice.certainty),
        clean(&advice.what)
    );
    let mut lines = wrap(&what, 0, WIDTH);
    lines.iter_mut().skip(1).for_each(|line| line.insert_str(0, "   "));
    let (steps, left) = shown.cut(&advice.how, STEPS);
    // Commands are never cut nor wrapped: they are there to be copied.
    lines.extend(steps.iter().map(|step| format!("     {}", clean(step))));
    lines.extend(Shown::rest(left, "     "));
    let mut care = wrap(&clean(&advice.care), 3, WIDTH);
    if !shown.all && care.len() > CARE {
        care.truncate(CARE);
        care[CARE - 1].push_str(" … (--all)");
    }
    lines.extend(care);
    lines
}

fn kernel_means(report: &Report) -> String {
    let means = &report.kernel_means;
    let merged = match means.merged_saving_bytes {
        None => "KSM does not run".to_owned(),
        Some(saved) => format!("KSM merged {} (saves {} machine-wide)", mib(means.merged_bytes), mib(saved)),
    };
    format!(
        "KERNEL MEANS: {merged}; {} swapped; {} in huge pages ({} of it text), {} hugetlb",
        mib(means.swapped_bytes),
        mib(means.huge_bytes),
        mib(means.huge_text_bytes),
        mib(means.hugetlb_bytes)
    )
}

fn unseen(report: &Report, shown: Shown) -> Vec<String> {
    if report.unseen.is_empty() {
        return vec!["NOT SEEN: nothing was left out".to_owned()];
    }
    let (first, left) = shown.cut(&report.unseen, UNSEEN);
    let mut lines = vec![format!("NOT SEEN: {}", count(report.unseen.len() as u64, "kind"))];
    for one in first {
        let text = format!("{}: {}", shown.name(&one.what, WIDTH), clean(&one.why));
        let mut wrapped = wrap(&text, 2, WIDTH);
        wrapped.iter_mut().skip(1).for_each(|line| line.insert_str(0, "  "));
        lines.extend(wrapped);
    }
    lines.extend(Shown::rest(left, "  "));
    lines
}

#[cfg(test)]
mod tests;
