//! `audit.seconds`: what an audit of a machine costs, against reading the same files once.

use crate::audit::crowd::Crowd;
use crate::audit::reading::{Done, Plan};
use crate::context::Context;
use crate::failure::Result;
use crate::measure::{Pairs, alternate, median, seconds};
use crate::row::{Bar, Measured, Row, rounded};
use commonhold_audit::figures;
use commonhold_audit::snapshot::{Snapshot, SnapshotOptions, take};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::cell::{Cell, RefCell};

/// The row.
pub struct AuditSeconds;

impl Row for AuditSeconds {
    fn id(&self) -> &'static str {
        "audit.seconds"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(3.0))
    }

    fn about(&self) -> &'static str {
        "a full audit of a machine with 300 processes (figures, advice and the JSON document included) ÷ reading \
         the same files once"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let crowd = Crowd::start(context.pick(300, 40), &context.directory)?;
        // The first look brings files into memory: afterwards both sides find them there.
        let first = audit()?;
        let plan = RefCell::new(Plan::of(&first));
        let done = Cell::new(plan.borrow().read()?);
        let processor = RefCell::new(Pairs::default());
        let pairs = alternate(
            context.pick(9, 2),
            |_| {
                let before = processor_seconds();
                let mut seen = None;
                let time = seconds(|| {
                    seen = Some(audit()?);
                    Ok(())
                })?;
                processor.borrow_mut().ours.push(processor_seconds() - before);
                plan.replace(seen.as_ref().map(Plan::of).unwrap_or_default());
                Ok(time)
            },
            |_| {
                let before = processor_seconds();
                let time = seconds(|| {
                    done.set(plan.borrow().read()?);
                    Ok(())
                })?;
                processor.borrow_mut().theirs.push(processor_seconds() - before);
                Ok(time)
            },
        )?;
        let Done { processes, files, whole, bytes } = done.get();
        let processor = processor.into_inner();
        let detail = json!({
            "processes_read": processes,
            "of_these_started_by_the_row": crowd.len(),
            "programs": crowd.programs,
            "mapped_files_opened": files,
            "of_these_read_whole": whole,
            "bytes_read_by_the_peer": bytes,
            "seconds": { "audit": rounded(median(&pairs.ours)), "reading_once": rounded(median(&pairs.theirs)) },
            "processor_seconds": {
                "audit": rounded(median(&processor.ours)),
                "reading_once": rounded(median(&processor.theirs)),
            },
            "ratio_of_processor_seconds": rounded(processor.ratio()),
            "page_frames": if first.has_frames { "read" } else { "not read: only root is told" },
        });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

/// All that `commonhold audit --json` does but to print it.
fn audit() -> Result<Snapshot> {
    let snapshot = take(&SnapshotOptions::default())?;
    let report = figures::report(&snapshot, &snapshot.scope);
    std::hint::black_box(serde_json::to_string(&report)?);
    Ok(snapshot)
}

/// Of all threads of this process, those that ended too.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
