//! Whether this program reads what the host before left, in its state directory and with the keeper: looked at before
//! anything of it is changed, so that another program can still go on with it. `docs/FORMATS.md` has all formats.
//!
//! All that lies there and has no version of its own has that of `meta.redb` (`server/fuzzing.rs` has samples).

use crate::cluster::registry;
use crate::{handovers, live, server};
use commonhold_keeper::Kept;
use commonhold_object::error::Doing;
use commonhold_object::{Format, Result};
use commonhold_registry::Registry;
use commonhold_sys::process;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Refuses to go on with what is written in another version, of files and of what the keeper has.
pub(crate) fn check(directory: &Path, kept: &[Kept]) -> Result<()> {
    for entry in kept.iter().filter(|entry| entry.key.0.ends_with("/handovers")) {
        entry.fd.as_ref().map_or(Ok(()), |memory| handovers::check_layout(memory))?;
    }
    check_live(&directory.join("live"))
}

/// The same of a state directory alone, which another host may be using; also what is damaged is refused. Nothing there is
/// changed.
pub fn check_directory(directory: &Path) -> Result<()> {
    Registry::check(directory)?;
    check_live(&directory.join("live"))?;
    registry::check_kept(directory)
}

/// Refuses a file that begins as that format in another version; one that is not there, or something else, is none.
pub(crate) fn check_file(path: &Path, format: Format, way_out: &str) -> Result<()> {
    let mut begin = Vec::new();
    match File::open(path).and_then(|file| file.take(Format::BYTES as u64).read_to_end(&mut begin)) {
        Ok(_) => format.body(&begin, path.display(), way_out).map(drop),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).doing(format_args!("reading {}", path.display())),
    }
}

/// Refuses files of this boot that say of memory what this program does not understand.
fn check_live(live: &Path) -> Result<()> {
    let boot_id = process::boot_id().doing("asking for the boot's name")?;
    server::check_clients(&live.join("clients"))?;
    let Ok(entries) = std::fs::read_dir(live) else { return Ok(()) }; // there is none yet
    for entry in entries.flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.parse::<u64>().is_ok()) {
            live::check(&entry.path(), &boot_id)?;
        }
    }
    Ok(())
}

/// A sample of what has the version of `meta.redb`: written as in the golden file, and read from it to the same.
#[cfg(test)]
pub(crate) fn is_of_the_state<T: serde::Serialize + serde::de::DeserializeOwned>(name: &str, sample: &T) {
    let kept = golden_of_the_state(name, &postcard::to_stdvec(sample).unwrap());
    assert_eq!(postcard::to_stdvec(&postcard::from_bytes::<T>(&kept).unwrap()).unwrap(), kept);
}

/// The same of plain bytes.
#[cfg(test)]
pub(crate) fn golden_of_the_state(name: &str, written: &[u8]) -> Vec<u8> {
    crate::golden::check(env!("CARGO_MANIFEST_DIR"), name, commonhold_registry::VERSION, written)
}
