//! This process.

use crate::{call, number};

/// Who runs this.
#[inline(always)]
pub fn user() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(number::GETEUID, [0; 6]) as u32 }
}

/// To standard error.
#[inline(always)]
pub fn say(text: &[u8]) {
    // SAFETY: bytes to read.
    unsafe { call(number::WRITE, [2, text.as_ptr() as usize, text.len(), 0, 0, 0]) };
}

/// Ends the process.
#[inline(always)]
pub fn exit(code: usize) -> ! {
    loop {
        // SAFETY: does not come back.
        unsafe { call(number::EXIT_GROUP, [code, 0, 0, 0, 0, 0]) };
    }
}
