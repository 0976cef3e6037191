//! From the path that a record says to the image's file: `STORE/names/NAME/X` is a link to `../../content/HASH`. Whose
//! word counts is root's and this user's alone, for the store, its directories and the file.

use crate::format::{MOST_PATH, text};
use crate::rights;
use crate::system::{self, File, Status};
use crate::why::{DAMAGED, NOT_READABLE, NOT_THERE, NOT_TRUSTED};
use crate::words::{Text, same};
use core::mem::MaybeUninit;

const UP: &[u8] = b"../../";
const CONTENT: &[u8] = b"content/";
const HASH_DIGITS: usize = 64;
/// What the link has to be.
const TARGET: usize = UP.len() + CONTENT.len() + HASH_DIGITS;

const KIND: u32 = 0o170_000;
const ORDINARY: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;

/// The file of the newest version, and its bytes; none that others than root or this user could have put there, or
/// others than root, where the program may do what this user may not.
pub fn newest(path: &[u8]) -> Result<(File, u64), i32> {
    let path = text(path);
    let slash = |before: usize| path.get(..before)?.iter().rposition(|byte| *byte == b'/');
    let (Some((names, name)), Some(major)) =
        (slash(path.len()).and_then(slash).and_then(|name| Some((slash(name)?, name))), slash(path.len()))
    else {
        return Err(NOT_READABLE);
    };
    if path.len() >= MOST_PATH || path.get(names..=name) != Some(b"/names/") {
        return Err(NOT_READABLE);
    }
    let store = at_end(path, 0, names, system::directory).map_err(missing)?;
    pass(&store.status().ok_or(NOT_READABLE)?, DIRECTORY, NOT_TRUSTED)?;
    // Nobody else can put another one in the place of a directory that passes.
    for directory in [&b"names\0"[..], &b"content\0"[..]] {
        pass(&store.status_of(directory).map_err(missing)?, DIRECTORY, NOT_TRUSTED)?;
    }
    let below = names + 1;
    let status = at_end(path, below, major, |name| store.status_of(name)).map_err(missing)?;
    pass(&status, DIRECTORY, NOT_TRUSTED)?;
    let mut room = [const { MaybeUninit::uninit() }; TARGET + 2];
    let target = at_end(path, below, path.len(), |link| store.link(link, &mut room)).map_err(missing)?;
    let file = target_file(&store, target)?;
    let status = file.status().ok_or(NOT_READABLE)?;
    pass(&status, ORDINARY, DAMAGED)?;
    Ok((file, status.bytes))
}

/// Calls this with a part of a path and a zero behind it.
fn at_end<T>(path: &[u8], first: usize, end: usize, with: impl FnOnce(&[u8]) -> T) -> T {
    let mut part = Text::<MOST_PATH>::new();
    part.append(path.get(first..end).unwrap_or_default());
    part.push(0);
    with(part.get())
}

/// Only content of this store: a link that leads elsewhere is not followed.
fn target_file(store: &File, target: &[u8]) -> Result<File, i32> {
    let (Some(up), Some(rest)) = (target.get(..UP.len()), target.get(UP.len()..)) else {
        return Err(NOT_TRUSTED);
    };
    let (Some(content), Some(hash)) = (rest.get(..CONTENT.len()), rest.get(CONTENT.len()..)) else {
        return Err(NOT_TRUSTED);
    };
    let is_hash =
        hash.len() == HASH_DIGITS && hash.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !same(up, UP) || !same(content, CONTENT) || !is_hash {
        return Err(NOT_TRUSTED);
    }
    at_end(rest, 0, rest.len(), |name| system::file_below(store, name)).map_err(missing)
}

fn missing(error: isize) -> i32 {
    match error {
        system::NO_FILE => NOT_THERE,
        // A link where a directory or a file belongs, a file where a link or a directory does.
        system::IS_LINK | system::NO_DIRECTORY | system::NO_LINK => NOT_TRUSTED,
        _ => NOT_READABLE,
    }
}

fn pass(status: &Status, kind: u32, otherwise: i32) -> Result<(), i32> {
    const OTHERS_MAY_WRITE: u32 = 0o022;
    if status.mode & KIND != kind {
        return Err(otherwise);
    }
    let is_ours = || status.owner == system::user() && !rights::are_foreign();
    if status.mode & OTHERS_MAY_WRITE != 0 || status.owner != 0 && !is_ours() {
        return Err(NOT_TRUSTED);
    }
    Ok(())
}
