//! `audit`: how much is shared, and how much could be; and the difference of two such reports. Needs no host.

mod progress;
mod sampling;
mod sets;

use crate::arguments::audit::{Audit, AuditCommand, Diff};
use crate::failure::{Done, Failure, error};
use crate::output::answer;
use commonhold_audit::report::{Report, diff, html, table};
use commonhold_audit::snapshot::{self, Scope, SnapshotOptions};
use commonhold_object::ErrorKind;
use commonhold_object::error::Doing;
use progress::Progress;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Audits, or compares.
pub fn audit(arguments: &Audit) -> Done {
    if let Some(AuditCommand::Diff(arguments)) = &arguments.command {
        return difference(arguments);
    }
    // Before a look that may take hours: what cannot be found or written then cannot be now.
    let page = arguments.html.as_deref().map(open_page).transpose()?;
    let sets = sets::find(&arguments.sets)?;
    let options = options(arguments);
    let progress = Progress::start();
    let mut report = match (arguments.every, arguments.span) {
        (Some(every), Some(span)) => sampling::sample(&options, every, span, &progress)?,
        _ => look(&options)?,
    };
    if !sets.is_empty() {
        progress.say("measuring sets of programs");
        sets::measure(&mut report, sets, arguments);
    }
    drop(progress);
    if let (Some(file), Some(path)) = (page, &arguments.html) {
        write_page(file, path, &report)?;
    }
    answer(arguments.form.json, &report, |report| table::table(report, arguments.all))
}

fn options(arguments: &Audit) -> SnapshotOptions {
    let scope = if let Some(pid) = arguments.pid {
        Scope::Tree(pid)
    } else if let Some(path) = &arguments.cgroup {
        Scope::ControlGroup(path.clone())
    } else if let Some(id) = &arguments.container {
        Scope::Container(id.clone())
    } else if let Some(directory) = &arguments.root {
        Scope::Root(directory.clone())
    } else {
        Scope::Machine
    };
    SnapshotOptions { scope, budget: arguments.budget, ..SnapshotOptions::default() }
}

/// One look.
fn look(options: &SnapshotOptions) -> Result<Report, Failure> {
    let snapshot = snapshot::take(options).map_err(|why| error(kind(&why), format!("no audit: {why}")))?;
    Ok(commonhold_audit::figures::report(&snapshot, &snapshot.scope))
}

fn kind(why: &snapshot::Error) -> ErrorKind {
    match why {
        snapshot::Error::NoProc { .. } | snapshot::Error::NoDirectory { .. } => ErrorKind::Io,
        snapshot::Error::ManyContainers { .. } => ErrorKind::Invalid,
        _ => ErrorKind::NotFound,
    }
}

/// Not emptied before there is something to put into it.
fn open_page(path: &Path) -> Result<File, Failure> {
    let file = File::options().write(true).create(true).truncate(false).open(path);
    Ok(file.doing(format!("cannot write the page {path:?}"))?)
}

fn write_page(mut file: File, path: &Path, report: &Report) -> Done {
    let written = file.set_len(0).and_then(|()| file.write_all(html::page(report).as_bytes()));
    Ok(written.doing(format!("cannot write the page {path:?}"))?)
}

fn difference(arguments: &Diff) -> Done {
    let before = read(&arguments.before)?;
    let after = read(&arguments.after)?;
    answer(arguments.form.json, &diff::diff(&before, &after), |difference| {
        diff::table(difference, arguments.all)
    })
}

fn read(path: &Path) -> Result<Report, Failure> {
    let text = std::fs::read(path).doing(format!("cannot read the report {path:?}"))?;
    Report::from_json(&text)
        .map_err(|why| error(ErrorKind::Corrupt, format!("cannot compare {path:?}: {why}")))
}
