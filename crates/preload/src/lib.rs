//! `libcommonhold_preload.so`, which `commonhold run` puts in front of programs (`docs/UNMODIFIED.md`). It is in C, `preload.c`:
//! every program that is run so loads it, and what Rust's own library brings would cost each of them more than all else.
//!
//! The Rust here is for `commonhold run`: where the library is, and whether a program would load it.

mod program;

pub use program::{Heed, check, find};

use commonhold_object::{Error, ErrorKind, Result};
use std::path::PathBuf;

/// The library's file name. The build puts it beside the programs.
const LIBRARY: &str = "libcommonhold_preload.so";
/// What it loads.
const LOADS: &str = "libcommonhold_sysv.so";

/// Where the library is: beside this program, or where libraries are installed.
pub fn library() -> Result<PathBuf> {
    let own = std::env::current_exe().map_err(|error| Error::io("asking where this program is", &error))?;
    let beside = own.parent().unwrap_or(&own);
    let places = [beside.to_owned(), beside.join("../lib"), beside.join("../lib/commonhold")];
    let has_both = |place: &&PathBuf| place.join(LIBRARY).is_file() && place.join(LOADS).is_file();
    let found = places.iter().find(has_both).map(|place| place.join(LIBRARY));
    found.ok_or_else(|| {
        let text = format!("{LIBRARY} and {LOADS} are not installed: they belong beside {}", own.display());
        Error::new(ErrorKind::NotFound, text)
    })
}
