//! `commonhold.toml`: what a host is started with, written down, so that it comes back as it was by `commonhold host start`
//! alone. A key is an option without its two dashes: of `host start`, and in each `[[object]]` of `create`. So what is
//! understood, and what it means, is said in one place, the command line, whose word counts where both say something.

mod file;
mod merge;
mod objects;
mod table;

pub use objects::{Wanted, make};

use crate::arguments::host::Start;
use crate::place::{HostPlace, SYSTEM_STATE_DIRECTORY};
use commonhold::{Error, Result};
use std::path::{Path, PathBuf};

/// Its name in a state directory.
const NAME: &str = "commonhold.toml";
/// Where the system's host has it, if it is there: with what else the machine's administrator writes.
const SYSTEM_FILE: &str = "/etc/commonhold/commonhold.toml";

/// What a file says.
#[derive(Debug)]
pub struct Configuration {
    /// As if it had been on the command line.
    pub start: Start,
    /// Objects that are to be there.
    pub objects: Vec<Wanted>,
}

/// What the arguments and the file that counts say together, and the objects that are to be there.
pub fn with_file(place: &HostPlace, arguments: Start) -> Result<(Start, Vec<Wanted>)> {
    let Some((path, of_state)) = find(place, &arguments)? else { return Ok((arguments, Vec::new())) };
    let path = std::path::absolute(&path).map_err(|error| Error::io(path.display(), &error))?;
    let text = file::read(&path)?;
    let Configuration { start, objects } = table::read(&path, &text)?;
    if let (Some(directory), Some(said)) = (of_state, &start.state)
        && *said != directory
    {
        return Err(Error::invalid(format!(
            "{}: it lies in the state directory {}, and names another, {}: leave out `state`, or give this file by --config",
            path.display(),
            directory.display(),
            said.display()
        )));
    }
    Ok((arguments.over(start), objects))
}

/// The file that counts, and in which state directory it lies, where that is why.
fn find(place: &HostPlace, arguments: &Start) -> Result<Option<(PathBuf, Option<PathBuf>)>> {
    if let Some(path) = &arguments.config {
        return Ok(Some((path.clone(), None)));
    }
    let state = place.to_start(arguments.state.clone())?;
    let own = state.join(NAME);
    let is_there = |path: &Path| std::fs::symlink_metadata(path).is_ok();
    let is_system = rustix::process::geteuid().is_root() && state == Path::new(SYSTEM_STATE_DIRECTORY);
    if is_system && is_there(Path::new(SYSTEM_FILE)) {
        if is_there(&own) {
            eprintln!("commonhold: {} is not read: {SYSTEM_FILE} is there, and counts", own.display());
        }
        return Ok(Some((SYSTEM_FILE.into(), None)));
    }
    Ok(is_there(&own).then(|| (own, std::path::absolute(state).ok())))
}
