//! `segment-client`: a process that has a segment open and, as it was told, attached.

use crate::failure::{Result, failed};
use crate::objects;
use crate::processes::minor_faults;
use crate::view::View;
use crate::worker;
use commonhold::{Access, Host, MapFlags, MapOptions};
use std::path::Path;

/// Arguments: state directory, name, and how: `shared` (by the tables that all share), `own` (by tables of its own), `open` (not
/// at all). It touches every page of 4 KiB, says how often it faulted meanwhile, and sleeps until its input ends.
pub fn run(arguments: &[String]) -> Result<()> {
    let [state, name, how] = arguments else { return failed("segment-client takes three arguments") };
    let object = Host::connect_to(Path::new(state))?.open(name, Access::ReadWrite)?;
    let flags = MapFlags { own_tables: how == "own", ..MapFlags::default() };
    let mapping = match how.as_str() {
        "open" => None,
        _ => Some(object.map(&MapOptions { flags, ..objects::everything() })?),
    };
    worker::say("ready")?;
    let before = minor_faults();
    if let Some(mapping) = &mapping {
        View::of(mapping).write_pages();
    }
    worker::say(&(minor_faults() - before).to_string())?;
    worker::wait_for_end();
    Ok(())
}
