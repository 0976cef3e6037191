//! For the fuzz targets: a report that somebody else wrote.

use super::{FORMAT, Report, diff, html, made, named, table};

/// Any bytes as a report, which is then shown in all ways.
pub fn reports(bytes: &[u8]) {
    let Ok(report) = Report::from_json(bytes) else { return };
    let again = serde_json::to_vec(&report).expect("what was read can be written");
    assert!(Report::from_json(&again).is_ok());
    assert!(!table::table(&report, true).is_empty() && !html::page(&report).is_empty());
    assert!(!named::of(&report).is_empty());
    let difference = diff::diff(&Report { format: FORMAT, ..Report::default() }, &report);
    let _ = diff::table(&difference, true); // nothing, if all is as it was
}

/// Samples of those.
pub fn sample_reports() -> Vec<Vec<u8>> {
    let all = [made::machine(), made::after(), made::sampled(), made::hostile(), Report::default()];
    let one = |report: Report| serde_json::to_vec(&Report { format: FORMAT, ..report });
    all.map(|report| one(report).expect("it can be encoded")).into()
}
