//! `audit.prediction_error`: whether the audit's advice frees what it says.

use crate::audit::case::{Case, LIBRARIES};
use crate::audit::is_root;
use crate::audit::programs::python;
use crate::context::Context;
use crate::failure::{Result, failed, skipped};
use crate::row::{Bar, Measured, Row, rounded};
use commonhold_audit::figures;
use commonhold_audit::report::Report;
use commonhold_audit::snapshot::{Scope, SnapshotOptions, take};
use serde_json::{Value, json};
use std::path::Path;

/// The row.
pub struct AuditPredictionError;

impl Row for AuditPredictionError {
    fn id(&self) -> &'static str {
        "audit.prediction_error"
    }

    fn unit(&self) -> &'static str {
        "of the measured saving"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(0.1))
    }

    fn about(&self) -> &'static str {
        "two copied Python trees in use by 8 processes, ten equal libraries in two roots: the audit's advice is \
         followed and the processes are restarted; difference of predicted and measured saving ÷ measured, of all \
         frames or of those that processes map, whichever is worse"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        if !is_root() {
            return skipped("the saving is measured in page frames, whose numbers only root is told");
        }
        let Some(python) = python() else { return skipped("python3 is not installed") };
        let rounds = (0..context.pick(3, 1))
            .map(|n| round(&context.directory.join(format!("case-{n}")), &python))
            .collect::<Result<Vec<_>>>()?;
        let errors: Vec<f64> = rounds.iter().map(|(error, _)| *error).collect();
        let detail = json!({
            "measured_as": "page frames: those that the processes map (pagemap), and the cached pages of the case's \
                            files (mincore), each once; before, and after hard links and restart",
            "rounds": rounds.iter().map(|(_, detail)| detail).collect::<Vec<_>>(),
        });
        Ok(Measured::median(&errors, detail))
    }

    fn page(&self, detail: &Value) -> String {
        serde_json::to_string_pretty(detail)
            .map_or_else(|_| String::new(), |text| format!("\n```json\n{text}\n```\n"))
    }
}

/// Makes the case anew, follows the advice, measures: the error, and all about it.
fn round(directory: &Path, python: &Path) -> Result<(f64, Value)> {
    std::fs::create_dir_all(directory)?;
    let case = Case::make(directory, python)?;
    let processes = case.start()?;
    let before = case.memory(&processes)?;
    let report = audit()?;
    let (mut predicted, mut predicted_mapped, mut links, mut left) = (0, 0, 0, Vec::new());
    for advice in &report.advice {
        match case.follow(advice)? {
            0 => left.push(json!({ "what": advice.what, "bytes": advice.saving_bytes })),
            count => {
                predicted += advice.saving_bytes;
                predicted_mapped += advice.mapped_bytes.unwrap_or(0);
                links += count;
            }
        }
    }
    drop(processes);
    let processes = case.start()?;
    let after = case.memory(&processes)?;
    let measured = before.bytes() as f64 - after.bytes() as f64;
    if measured <= 0.0 {
        return failed(format!("nothing was saved: {before:?} before, {after:?} after"));
    }
    let mapped = before.mapped_bytes() as f64 - after.mapped_bytes() as f64;
    let whole_error = error(predicted, measured);
    let mapped_error = error(predicted_mapped, mapped);
    let detail = json!({
        "processes": processes.len(),
        "libraries_in_each_root": LIBRARIES,
        "libraries": case.libraries(),
        "hard_links": links,
        "predicted_bytes": predicted,
        "measured_bytes": measured,
        "of_it_mapped": {
            "predicted_bytes": predicted_mapped,
            "measured_bytes": mapped,
            "error": rounded(mapped_error),
        },
        "before_bytes": before.bytes(),
        "after_bytes": after.bytes(),
        "error": rounded(whole_error),
        "advice_that_was_not_followed": left,
    });
    drop(processes);
    std::fs::remove_dir_all(directory)?;
    Ok((whole_error.max(mapped_error), detail))
}

fn error(predicted: u64, measured: f64) -> f64 {
    (predicted as f64 - measured).abs() / measured
}

/// The audit of this process's tree: itself, which maps nothing of the case, and the case's processes.
fn audit() -> Result<Report> {
    let scope = Scope::Tree(std::process::id());
    let snapshot = take(&SnapshotOptions { scope, skip_self: false, ..SnapshotOptions::default() })?;
    Ok(figures::report(&snapshot, &snapshot.scope))
}
