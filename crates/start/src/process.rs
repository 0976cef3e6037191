//! What a process is told of itself: its variables, and which program it is.

use crate::stack::Stack;
use crate::system::{self, File};

/// Longer paths are nobody's.
pub const LONGEST_PATH: usize = 4096;
const CHUNK_BYTES: usize = 4096;
/// Variables that matter here are shorter; of longer ones the beginning is seen.
const SEEN_BYTES: usize = 4096;
/// A path of more parts is asked of the kernel as a whole.
const MOST_PARTS: usize = 12;

/// Calls `see` with each variable, `NAME=VALUE` without its zero. Whether all could be read.
pub fn variables(stack: Option<&Stack>, mut see: impl FnMut(&[u8])) -> bool {
    match stack {
        Some(stack) => {
            stack.variables().for_each(see);
            true
        }
        None => read_variables(&mut see),
    }
}

fn read_variables(see: &mut impl FnMut(&[u8])) -> bool {
    let Ok(file) = File::open(b"/proc/self/environ\0") else { return false };
    let mut chunk = [0; CHUNK_BYTES];
    let mut variable = [0; SEEN_BYTES];
    let mut length = 0;
    loop {
        let Ok(read) = file.read(&mut chunk) else { return false };
        if read == 0 {
            return true;
        }
        for byte in &chunk[..read] {
            if *byte == 0 {
                see(&variable[..length]);
                length = 0;
            } else if length < SEEN_BYTES {
                variable[length] = *byte;
                length += 1;
            }
        }
    }
}

/// The path of this program, with a zero behind it; none if it does not fit.
pub fn program<'a>(stack: Option<&Stack>, buffer: &'a mut [u8; LONGEST_PATH]) -> Option<&'a [u8]> {
    match stack.and_then(|stack| executed(stack, buffer)) {
        Some(length) => Some(&buffer[..length]),
        None => system::program(buffer),
    }
}

/// How long the path is by which this program was executed, if that is its only one: no part of it is a symbolic link, and it is
/// not a script's.
fn executed(stack: &Stack, buffer: &mut [u8]) -> Option<usize> {
    let path = stack.executed()?;
    let buffer = buffer.get_mut(..path.len())?;
    buffer.copy_from_slice(path);
    let parts = || path[..path.len() - 1].split(|byte| *byte == b'/');
    let is_whole = path[0] == b'/' && parts().skip(1).all(|part| !matches!(part, b"" | b"." | b".."));
    if !is_whole || parts().count() > MOST_PARTS || stack.may_be_interpreter() {
        return None;
    }
    for end in (1..path.len()).filter(|end| matches!(path[*end], b'/' | 0)) {
        buffer[end] = 0;
        let is_link = system::is_link(&buffer[..=end])?;
        buffer[end] = path[end];
        if is_link {
            return None;
        }
    }
    Some(path.len())
}
