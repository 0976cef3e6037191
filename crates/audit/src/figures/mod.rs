//! From what was seen to what it means: one pure function for each part of the report, and all of them together.
//!
//! `docs/AUDIT.md` defines each figure. Nothing here reads anything but the snapshot it is given.

pub mod deleted;
pub mod equal;
pub mod kernel_means;
pub mod memory;
pub mod page_tables;
pub mod relocation;
pub mod sharing;
pub mod unique;
pub(crate) mod view;

#[cfg(test)]
mod invariants;
#[cfg(test)]
pub(crate) mod made;

use crate::advice;
use crate::report::{FORMAT, Report};
use crate::snapshot::Snapshot;

/// The whole report on a snapshot: every figure, and the advice that follows from them. Sets of programs are measured
/// apart ([`crate::library`]), because that reads files.
pub fn report(snapshot: &Snapshot, scope: &str) -> Report {
    let groups = equal::groups(snapshot);
    let mut report = Report {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        scope: scope.to_owned(),
        machine: format!("{}, Linux {}", snapshot.machine.name, snapshot.machine.kernel),
        taken_at: snapshot.taken_at,
        took_ms: snapshot.took_ms,
        cpu_ms: snapshot.cpu_ms,
        processes: snapshot.processes.len() as u64,
        memory: memory::figure(snapshot),
        sharing: sharing::figure(snapshot),
        equal_files: Vec::new(),
        relocation: relocation::figure(snapshot),
        page_tables: page_tables::figure(snapshot),
        deleted: deleted::figure(snapshot),
        kernel_means: kernel_means::figure(snapshot),
        unique: unique::figure(snapshot),
        unseen: snapshot.unseen.clone(),
        ..Report::default()
    };
    report.advice = advice::advise(snapshot, &groups);
    report.equal_files = groups.into_iter().map(|group| group.figure).collect();
    report
}
