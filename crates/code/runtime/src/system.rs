//! What inclusion asks of the kernel.

pub use commonhold_kernel::{File, Status, exit, say, user};

use crate::format::{Header, Import};
use commonhold_kernel::{Plain, call, number};
use core::mem::MaybeUninit;

/// No such file.
pub const NO_FILE: isize = -2;
/// A part of the path is no directory.
pub const NO_DIRECTORY: isize = -20;
/// A link where none is followed.
pub const IS_LINK: isize = -40;
/// No link where one is read.
pub const NO_LINK: isize = -22;
/// No memory, or no addresses within the limits.
pub const NO_MEMORY: isize = -12;
/// More memory than may be locked.
pub const TRY_AGAIN: isize = -11;
/// The addresses are in use.
pub const IN_USE: isize = -17;

/// Pages that may be read.
pub const READABLE: usize = 1;
/// Pages that may be read and written.
pub const WRITABLE: usize = 3;
/// Pages that may be read and run.
pub const EXECUTABLE: usize = 5;

// SAFETY: `repr(C)`, plain numbers, and all fields lie at multiples of their size.
unsafe impl Plain for Header {}
// SAFETY: as above.
unsafe impl Plain for Import {}

/// A pipe that somebody put there would be waited for.
const DO_NOT_WAIT: usize = 0o4_000;

/// Opens a directory to find what is below. The path ends with a zero.
pub fn directory(path: &[u8]) -> Result<File, isize> {
    const PATH_ONLY: usize = 0o10_000_000;
    const DIRECTORY: usize = 0o200_000;
    File::open_with(path, PATH_ONLY | DIRECTORY | DO_NOT_WAIT)
}

/// Opens what is below a directory to read, not through a link. The path ends with a zero.
pub fn file_below(directory: &File, path: &[u8]) -> Result<File, isize> {
    const NO_FOLLOW: usize = 0o400_000;
    directory.open_below(path, NO_FOLLOW | DO_NOT_WAIT)
}

/// Maps a part of a file privately at an address. `over`: whatever is there (of this image's own range).
///
/// # Safety
/// What is there with `over` belongs to nobody else.
pub unsafe fn map(
    file: &File,
    address: u64,
    bytes: u64,
    offset: u64,
    protection: usize,
    over: bool,
) -> isize {
    const PRIVATE: usize = 2;
    let flags = PRIVATE | if over { FIXED } else { FIXED_NO_REPLACE };
    let place = [address as usize, bytes as usize, protection, flags, file.number(), offset as usize];
    // SAFETY: the caller's promise.
    unsafe { call(number::MMAP, place) }
}

const FIXED: usize = 0x10;
const FIXED_NO_REPLACE: usize = 0x10_0000;

/// Maps zeros over what is there.
///
/// # Safety
/// What is there belongs to nobody else.
pub unsafe fn map_zeros(address: u64, bytes: u64) -> isize {
    const PRIVATE_AND_ANONYMOUS: usize = 0x22;
    let place = [address as usize, bytes as usize, WRITABLE, PRIVATE_AND_ANONYMOUS | FIXED, usize::MAX, 0];
    // SAFETY: the caller's promise.
    unsafe { call(number::MMAP, place) }
}

/// What was mapped may only be read from now on.
///
/// # Safety
/// The pages belong to the caller, and nobody writes them any more.
pub unsafe fn protect(address: u64, bytes: u64) -> isize {
    // SAFETY: the caller's promise.
    unsafe { call(number::MPROTECT, [address as usize, bytes as usize, READABLE, 0, 0, 0]) }
}

/// Gives addresses back.
///
/// # Safety
/// Nobody uses them.
pub unsafe fn unmap(address: u64, bytes: u64) {
    // SAFETY: the caller's promise.
    unsafe { call(number::MUNMAP, [address as usize, bytes as usize, 0, 0, 0, 0]) };
}

/// Whether the ids of who started it are those that it runs with, and others of this user may look into it.
pub fn is_plainly_ours() -> bool {
    const GET_DUMPABLE: usize = 3;
    // SAFETY: numbers only.
    let ask = |number, what| unsafe { call(number, [what, 0, 0, 0, 0, 0]) };
    ask(number::GETUID, 0) == ask(number::GETEUID, 0)
        && ask(number::GETGID, 0) == ask(number::GETEGID, 0)
        && ask(number::PRCTL, GET_DUMPABLE) == 1
}

/// What the kernel told the program when it started, in pairs of words; nothing before Linux 6.4.
pub fn told(room: &mut [MaybeUninit<u64>; 128]) -> &[u64] {
    const GET_AUXV: usize = 0x4155_5856;
    let place = [GET_AUXV, room.as_mut_ptr() as usize, size_of_val(room), 0, 0, 0];
    // SAFETY: room for so many bytes.
    let bytes = usize::try_from(unsafe { call(number::PRCTL, place) }).unwrap_or(0);
    // SAFETY: so many were written.
    unsafe { room.get(..bytes / 8).unwrap_or_default().assume_init_ref() }
}

/// This thread.
pub fn thread() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(number::GETTID, [0; 6]) as u32 }
}

/// Waits while the word has this value; may come back early.
pub fn wait(word: &core::sync::atomic::AtomicU32, value: u32) {
    const WAIT_PRIVATE: usize = 128;
    // SAFETY: a word that lives.
    unsafe { call(number::FUTEX, [word.as_ptr() as usize, WAIT_PRIVATE, value as usize, 0, 0, 0]) };
}

/// Wakes all that wait.
pub fn wake(word: &core::sync::atomic::AtomicU32) {
    const WAKE_PRIVATE: usize = 129;
    // SAFETY: a word that lives.
    unsafe { call(number::FUTEX, [word.as_ptr() as usize, WAKE_PRIVATE, i32::MAX as usize, 0, 0, 0]) };
}

/// A moment.
pub fn pause() {
    let time = [0_u64, 50_000];
    // SAFETY: seconds and nanoseconds.
    unsafe { call(number::NANOSLEEP, [time.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}
