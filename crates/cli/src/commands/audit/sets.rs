//! `--set`: which files a pattern means, and library code in them.

use crate::arguments::audit::{Audit, ProgramSet};
use crate::failure::{Failure, error};
use commonhold_audit::library::{Measurer, Options};
use commonhold_audit::report::Report;
use commonhold_object::ErrorKind;
use rustix::time::{ClockId, clock_gettime};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A set, and the files and folders that it was found to be.
pub struct FoundSet {
    name: String,
    programs: Vec<PathBuf>,
}

/// Finds the files of each set.
///
/// # Errors
/// A set that nothing belongs to: more likely a slip than what was meant.
pub fn find(sets: &[ProgramSet]) -> Result<Vec<FoundSet>, Failure> {
    sets.iter().map(one).collect()
}

fn one(set: &ProgramSet) -> Result<FoundSet, Failure> {
    let path = Path::new(&set.pattern);
    // A path is itself, whatever letters it has; a pattern means files, not the folders among them.
    let programs: Vec<PathBuf> = if path.exists() {
        vec![path.to_owned()]
    } else {
        let found = glob::glob(&set.pattern)
            .map_err(|why| error(ErrorKind::Invalid, format!("set {:?}: {why}", set.name)))?;
        found.flatten().filter(|path| path.is_file()).collect()
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
    let mut options = Options::default();
    if let Some(root) = &arguments.root {
        options.root.clone_from(root);
    }
    if let Some(budget) = arguments.budget {
        let end = processor_time() + budget.saturating_sub(Duration::from_millis(report.cpu_ms));
        options.goes_on = Box::new(move || processor_time() < end);
    }
    let mut measurer = Measurer::new(&arguments.archives, options);
    report.library_sets = sets.iter().map(|set| measurer.set(&set.name, &set.programs)).collect();
    report.unseen.extend(measurer.unseen());
}

/// Of this process since its start.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}
