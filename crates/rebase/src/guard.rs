//! What others could have put into a store is not used: a directory or file of it counts if it belongs to root or to who
//! uses it, and nobody else may write it.

use crate::{Error, Result};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const OTHERS_MAY_WRITE: u32 = 0o022;
const ALL_MAY_READ: u32 = 0o444;

/// Whether nobody but root or this user can have made it what it is.
pub fn is_ours(metadata: &Metadata) -> bool {
    let user = rustix::process::geteuid().as_raw();
    (metadata.uid() == 0 || metadata.uid() == user) && metadata.mode() & OTHERS_MAY_WRITE == 0
}

/// The same of what is at a path itself, which is no link.
pub fn is_our_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir() && is_ours(&metadata))
}

/// The same of a file, which everybody may read.
pub fn is_our_file(path: &Path) -> bool {
    let readable = |metadata: &Metadata| metadata.mode() & ALL_MAY_READ == ALL_MAY_READ;
    fs::symlink_metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && is_ours(&metadata) && readable(&metadata))
}

/// An error, where others own or may write what is at a path.
pub fn refuse_shared(path: &Path) -> Result<()> {
    let metadata = fs::metadata(path).map_err(Error::file(path))?;
    if is_ours(&metadata) {
        return Ok(());
    }
    if metadata.mode() & OTHERS_MAY_WRITE != 0 {
        let why = "others may write there: remove it, or take that right from them and what is there away";
        return Err(Error::store(path, why));
    }
    let why = format!("it belongs to user {}, and what is there would be run by you", metadata.uid());
    Err(Error::store(path, why))
}
