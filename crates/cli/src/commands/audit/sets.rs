//! `--set`: which files a pattern means, and library code in them.

use crate::arguments::audit::{Audit, ProgramSet};
use crate::failure::{Failure, error};
use commonhold_audit::library::{Request, files_of, measure_all};
use commonhold_audit::report::Report;
use commonhold_object::ErrorKind;
use rustix::time::{ClockId, clock_gettime};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long one file may keep its reader waiting: file systems of networks may not answer at all. A large program on a
/// busy machine takes seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// A set, and the files and folders that it was found to be.
pub struct FoundSet {
    name: String,
    programs: Vec<PathBuf>,
}

/// Finds the files of each set.
///
/// # Errors
/// A set that nothing belongs to: more likely a slip than what was meant. Or a file system that does not answer.
pub fn find(sets: &[ProgramSet]) -> Result<Vec<FoundSet>, Failure> {
    sets.iter().map(one).collect()
}

fn one(set: &ProgramSet) -> Result<FoundSet, Failure> {
    let pattern = set.pattern.clone();
    let found = files_of(PATIENCE, move |put| {
        // A path is itself, whatever letters it has; a pattern means files, not the folders among them.
        if Path::new(&pattern).exists() {
            put(pattern.into());
            return;
        }
        // That it is a pattern was seen when the command line was read.
        let mut found = glob::glob(&pattern).into_iter().flatten().flatten().filter(|path| path.is_file());
        while found.next().is_some_and(&mut *put) {}
    });
    let Some(programs) = found else {
        let text = format!(
            "set {:?}: the file system of {:?} did not answer within {} s; name programs elsewhere",
            set.name,
            set.pattern,
            PATIENCE.as_secs()
        );
        return Err(error(ErrorKind::Io, text));
    };
    if programs.is_empty() {
        let text =
            format!("set {:?}: no file is {:?}; quote patterns against the shell", set.name, set.pattern);
        return Err(error(ErrorKind::NotFound, text));
    }
    Ok(FoundSet { name: set.name.clone(), programs })
}

/// Measures them into the report, in what processor time the last look has left.
pub fn measure(report: &mut Report, sets: Vec<FoundSet>, arguments: &Audit) {
    let end = arguments
        .budget
        .map(|budget| processor_time() + budget.saturating_sub(Duration::from_millis(report.cpu_ms)));
    let request = Request {
        sets: sets.into_iter().map(|set| (set.name, set.programs)).collect(),
        archives: arguments.archives.clone(),
        root: arguments.root.clone().unwrap_or_else(|| PathBuf::from("/")),
        goes_on: Arc::new(move || end.is_none_or(|end| processor_time() < end)),
        patience: PATIENCE,
    };
    let (measured, unseen) = measure_all(&request);
    report.library_sets = measured;
    report.unseen.extend(unseen);
}

/// Of this process since its start.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}
