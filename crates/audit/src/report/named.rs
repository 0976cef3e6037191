//! The figures of a report by name: what samples average and what the difference compares.

use super::{Report, SharingFigure, words};

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Memory.
    Bytes,
    /// One quantity divided by another.
    Ratio,
}

impl Unit {
    /// A value for people, without its unit: bytes as MiB.
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Count => format!("{value:.0}"),
            Unit::Bytes if value < 0.0 => format!("-{}", words::mib(-value as u64)),
            Unit::Bytes => words::mib(value as u64),
            Unit::Ratio => format!("{value:.3}"),
        }
    }
}

/// The unit of a figure, told by its name: documents may name figures that this program does not know.
pub fn unit(name: &str) -> Unit {
    match of(&Report::default()).iter().find(|figure| figure.name == name) {
        Some(figure) => figure.unit,
        None if name.ends_with("_bytes") => Unit::Bytes,
        None => Unit::Ratio,
    }
}

/// A figure of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// `programs.extent`, `programs.savings_ratio`, … Of figures in bytes the name ends so.
    pub name: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// None: it has no value, such as a ratio of nothing.
    pub value: Option<f64>,
}

/// Every figure that is one number, always all of them and in the same order.
pub fn of(report: &Report) -> Vec<Named> {
    let mut all = vec![Named { name: "processes", unit: Unit::Count, value: Some(report.processes as f64) }];
    let sharing = &report.sharing;
    all.extend(sharing_of(
        [
            "programs.active",
            "programs.shared",
            "programs.extent",
            "programs.without_sharing_bytes",
            "programs.with_sharing_bytes",
            "programs.savings_ratio",
        ],
        &sharing.programs,
    ));
    all.extend(sharing_of(
        [
            "all_text.active",
            "all_text.shared",
            "all_text.extent",
            "all_text.without_sharing_bytes",
            "all_text.with_sharing_bytes",
            "all_text.savings_ratio",
        ],
        &sharing.all_text,
    ));
    all.extend(sharing_of(
        [
            "all_read_only.active",
            "all_read_only.shared",
            "all_read_only.extent",
            "all_read_only.without_sharing_bytes",
            "all_read_only.with_sharing_bytes",
            "all_read_only.savings_ratio",
        ],
        &sharing.all_read_only,
    ));
    all.extend(sizes(report).into_iter().map(|(name, bytes)| Named {
        name,
        unit: Unit::Bytes,
        value: Some(bytes as f64),
    }));
    all
}

fn sharing_of(names: [&'static str; 6], figure: &SharingFigure) -> [Named; 6] {
    let [active, shared, extent, without, with, ratio] = names;
    let count = |name, value: u64| Named { name, unit: Unit::Count, value: Some(value as f64) };
    let bytes = |name, value: u64| Named { name, unit: Unit::Bytes, value: Some(value as f64) };
    [
        count(active, figure.active),
        count(shared, figure.shared),
        Named { name: extent, unit: Unit::Ratio, value: figure.extent },
        bytes(without, figure.without_sharing_bytes),
        bytes(with, figure.with_sharing_bytes),
        Named { name: ratio, unit: Unit::Ratio, value: figure.savings_ratio },
    ]
}

fn sizes(report: &Report) -> [(&'static str, u64); 17] {
    let (memory, means) = (&report.memory, &report.kernel_means);
    [
        ("memory.resident_bytes", memory.resident_bytes),
        ("memory.proportional_bytes", memory.proportional_bytes),
        ("memory.private_bytes", memory.private_bytes),
        ("memory.anonymous_bytes", memory.anonymous_bytes),
        ("memory.available_bytes", memory.available_bytes),
        ("equal_files.saving_bytes", total(report.equal_files.iter().map(|group| group.saving_bytes))),
        ("relocation.relro_bytes", report.relocation.relro_bytes),
        ("relocation.data_bytes", report.relocation.data_bytes),
        ("relocation.saving_bytes", total(report.relocation.libraries.iter().map(|one| one.saving_bytes))),
        ("page_tables.total_bytes", report.page_tables.total_bytes),
        ("page_tables.machine_bytes", report.page_tables.machine_bytes),
        ("page_tables.saving_bytes", report.page_tables.saving_bytes),
        ("deleted.resident_bytes", total(report.deleted.iter().map(|file| file.resident_bytes))),
        ("kernel_means.merged_bytes", means.merged_bytes),
        ("kernel_means.swapped_bytes", means.swapped_bytes),
        ("kernel_means.huge_bytes", means.huge_bytes),
        ("kernel_means.hugetlb_bytes", means.hugetlb_bytes),
    ]
}

/// The sum; a document that was made up may have more than there are numbers for.
pub fn total(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::super::made;
    use super::*;

    #[test]
    fn every_report_has_the_same_names_each_once() {
        let names = |report: &Report| of(report).iter().map(|figure| figure.name).collect::<Vec<_>>();
        assert_eq!(names(&made::machine()), names(&Report::default()));
        let mut sorted = names(&Report::default());
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), of(&Report::default()).len());
        for figure in of(&made::machine()) {
            assert_eq!(figure.unit == Unit::Bytes, figure.name.ends_with("_bytes"), "{}", figure.name);
        }
    }

    #[test]
    fn sums_of_made_up_documents_do_not_overflow() {
        assert_eq!(total([u64::MAX, 1].into_iter()), u64::MAX);
        assert_eq!(Unit::Bytes.show(-1_048_576.0), "-1.0");
        assert_eq!(Unit::Bytes.show(f64::MAX).len(), 16);
    }
}
