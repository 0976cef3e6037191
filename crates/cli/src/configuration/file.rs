//! Reads the file: not one that is no file, is too long, or that somebody else can write.

use commonhold::{Error, ErrorKind, Result};
use commonhold_sys::ownership::{who_else_writes, writer};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Longest file, bytes: some thousand objects.
const MOST_BYTES: u64 = 1 << 20;

/// Its text.
pub fn read(path: &Path) -> Result<String> {
    let wrong = |kind, why: String| Error::new(kind, format!("{}: {why}", path.display()));
    let io = |error: std::io::Error| {
        Error::io(format!("{}: the configuration cannot be read", path.display()), &error)
    };
    // A pipe is not waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| io(error.into()))?;
    let file = File::from(opened);
    let found = file.metadata().map_err(io)?;
    if !found.is_file() {
        return Err(wrong(ErrorKind::Invalid, "it is no ordinary file".to_owned()));
    }
    let own = rustix::process::geteuid().as_raw();
    let beside = who_else_writes(path, &[own]).map_err(io)?;
    // What was opened, if somebody has just put it there.
    if let Some(who) = writer(&found, &[own]).or(beside) {
        let why = format!(
            "{who} can write it, and this host would do what it says: give it and its directories to you or root, \
             and chmod go-w them"
        );
        return Err(wrong(ErrorKind::Permission, why));
    }
    let too_long =
        || wrong(ErrorKind::TooMany, format!("it is longer than {MOST_BYTES} bytes, the most that is read"));
    if found.len() > MOST_BYTES {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(too_long());
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = super::table::line_of_bytes(error.as_bytes(), error.utf8_error().valid_up_to());
        Error::invalid(format!("{}:{line}: that is no UTF-8", path.display()))
    })
}
