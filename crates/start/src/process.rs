//! What the kernel tells a process of itself, by `/proc/self`: its variables and arguments. (They also lie on the stack, but only
//! the loader knows where, and to be linked to the loader costs more than reading a file.)

use crate::system::File;

const CHUNK_BYTES: usize = 4096;
/// Variables that matter here are shorter; of longer ones the beginning is seen.
const SEEN_BYTES: usize = 4096;

/// Calls `see` with each variable, `NAME=VALUE` without its zero. Whether all could be read.
pub fn variables(mut see: impl FnMut(&[u8])) -> bool {
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
