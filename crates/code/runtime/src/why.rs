//! What can be in the way of an inclusion. The numbers are part of the C interface (`include/commonhold_image.h`).

use core::ffi::CStr;

/// Why an image was not included, and which: an image that another one calls may be what fails.
#[derive(Clone, Copy)]
pub struct Why {
    /// One of the numbers below.
    pub code: i32,
    /// Name and major version, with zeros behind it.
    pub name: [u8; crate::format::NAME_BYTES],
    /// The first of its addresses, and the first behind them; 0 where its header was not read.
    pub first: u64,
    pub end: u64,
}

pub const NOT_THERE: i32 = 1;
pub const NOT_READABLE: i32 = 2;
pub const NOT_TRUSTED: i32 = 3;
pub const DAMAGED: i32 = 4;
pub const ANOTHER: i32 = 5;
pub const OLDER: i32 = 6;
pub const TAKEN: i32 = 7;
pub const NO_ROOM: i32 = 8;
pub const NO_EXEC: i32 = 9;
pub const TABLE: i32 = 10;
pub const NOT_LINKED: i32 = 11;
pub const GROUP: i32 = 12;
pub const OTHER_VERSION: i32 = 13;
/// Another thread includes it now. Nobody else is told.
pub const BUSY: i32 = -1;

/// One line for people.
pub fn text(code: i32) -> &'static CStr {
    match code {
        NOT_THERE => c"the store has no such image: install it, or link the program with the store that has it",
        NOT_READABLE => c"its file cannot be opened: make the store readable for this user, and for the sandbox if there is one",
        NOT_TRUSTED => c"its file or a directory of its store belongs to another user, or others may write it, or a link leads elsewhere: they have to be root's or this user's alone, and root's for setuid programs",
        DAMAGED => c"its file is damaged or truncated: see `commonhold image verify`, and add it again",
        ANOTHER => c"its file is of another image, lineage, base or processor than the program was linked with: link the program again",
        OLDER => c"the store has an older minor version than the program was linked with: add the newer one again",
        TAKEN => c"its addresses are in use in this process: include it earlier, or see /proc/self/maps for what is there (ThreadSanitizer has them all)",
        NO_ROOM => c"there is no room for its addresses: raise `ulimit -v`",
        NO_EXEC => c"its code may not be mapped to be run: is the store mounted noexec, or the program in a sandbox that forbids it?",
        TABLE => c"it calls functions that the program's stub does not hand over: link the program with its stub",
        NOT_LINKED => c"the program has no stub of it: link it with one (`commonhold image stub`)",
        GROUP => c"an image that is declared never to be in one process with it is there: programs have one of a group",
        OTHER_VERSION => c"another version of Commonhold made its file than the stub that the program was linked with: make and link both with one version",
        _ => c"it cannot be included",
    }
}
