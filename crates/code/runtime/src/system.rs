//! The few system calls that are needed.

use crate::format::{Header, Import};
use core::arch::asm;
use core::mem::MaybeUninit;

const READ: usize = 0;
const CLOSE: usize = 3;
const FSTAT: usize = 5;
const MMAP: usize = 9;
const MPROTECT: usize = 10;
const MUNMAP: usize = 11;
const PREAD: usize = 17;
const WRITE: usize = 1;
const NANOSLEEP: usize = 35;
const GETUID: usize = 102;
const GETGID: usize = 104;
const GETEUID: usize = 107;
const GETEGID: usize = 108;
const PRCTL: usize = 157;
const GETTID: usize = 186;
const FUTEX: usize = 202;
const EXIT_GROUP: usize = 231;
const OPENAT: usize = 257;
const NEWFSTATAT: usize = 262;
const READLINKAT: usize = 267;
const HERE: usize = -100_isize as usize;

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

unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller passes what the call wants.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Numbers, of which every pattern of bits is one.
pub trait Plain {}
impl Plain for Header {}
impl Plain for Import {}

/// A file that is open.
pub struct File(usize);

/// What a file is.
pub struct Status {
    /// Bytes.
    pub bytes: u64,
    /// Its owner.
    pub owner: u32,
    /// Its mode.
    pub mode: u32,
}

impl Status {
    /// Of x86-64's `struct stat`.
    fn of(raw: &[u64; 18]) -> Status {
        Status { bytes: raw[6], owner: (raw[3] >> 32) as u32, mode: raw[3] as u32 }
    }
}

impl File {
    /// Opens to read. The path ends with a zero.
    pub fn open(path: &[u8]) -> Result<File, isize> {
        File::open_at(HERE, path, 0)
    }

    /// Opens a directory to find what is below. The path ends with a zero.
    pub fn directory(path: &[u8]) -> Result<File, isize> {
        const PATH_ONLY: usize = 0o10_000_000;
        const DIRECTORY: usize = 0o200_000;
        File::open_at(HERE, path, PATH_ONLY | DIRECTORY)
    }

    /// Opens what is below this directory to read, not through a link. The path ends with a zero.
    pub fn file_below(&self, path: &[u8]) -> Result<File, isize> {
        const NO_FOLLOW: usize = 0o400_000;
        File::open_at(self.0, path, NO_FOLLOW)
    }

    fn open_at(below: usize, path: &[u8], flags: usize) -> Result<File, isize> {
        const CLOSE_ON_EXEC: usize = 0o2_000_000;
        // A pipe that somebody put there would be waited for.
        const DO_NOT_WAIT: usize = 0o4_000;
        if path.last() != Some(&0) {
            return Err(NO_FILE);
        }
        let flags = flags | CLOSE_ON_EXEC | DO_NOT_WAIT;
        // SAFETY: a path that ends with a zero.
        let file = unsafe { call(OPENAT, [below, path.as_ptr() as usize, flags, 0, 0, 0]) };
        if file < 0 { Err(file) } else { Ok(File(file as usize)) }
    }

    /// Where a link below this directory leads, as far as there is room. The path ends with a zero.
    pub fn link<'a>(&self, path: &[u8], room: &'a mut [MaybeUninit<u8>]) -> Result<&'a [u8], isize> {
        let place = [self.0, path.as_ptr() as usize, room.as_mut_ptr() as usize, room.len(), 0, 0];
        // SAFETY: a path that ends with a zero, and room for so many bytes.
        let bytes = unsafe { call(READLINKAT, place) };
        let read = usize::try_from(bytes).map_err(|_| bytes)?;
        // SAFETY: so many were written.
        Ok(unsafe { room.get(..read).unwrap_or_default().assume_init_ref() })
    }

    /// What it is.
    pub fn status(&self) -> Option<Status> {
        let mut raw = [0_u64; 18];
        // SAFETY: room for the 144 bytes of x86-64's `struct stat`.
        let result = unsafe { call(FSTAT, [self.0, raw.as_mut_ptr() as usize, 0, 0, 0, 0]) };
        (result >= 0).then_some(Status::of(&raw))
    }

    /// What is below this directory, itself if it is a link. The path ends with a zero.
    pub fn status_of(&self, path: &[u8]) -> Result<Status, isize> {
        const NO_FOLLOW: usize = 0x100;
        let mut raw = [0_u64; 18];
        let place = [self.0, path.as_ptr() as usize, raw.as_mut_ptr() as usize, NO_FOLLOW, 0, 0];
        // SAFETY: a path that ends with a zero, and room for x86-64's `struct stat`.
        let result = unsafe { call(NEWFSTATAT, place) };
        if result < 0 { Err(result) } else { Ok(Status::of(&raw)) }
    }

    /// What lies at a place of it; none if it is too short. `T` is one of the image's own forms: numbers, of which
    /// every pattern of bits is one.
    pub fn at<'a, T: Plain>(&self, place: u64, room: &'a mut MaybeUninit<T>) -> Option<&'a T> {
        let bytes = size_of::<T>();
        // SAFETY: room for so many bytes.
        let read = unsafe { call(PREAD, [self.0, room.as_mut_ptr() as usize, bytes, place as usize, 0, 0]) };
        // SAFETY: all were written, and every pattern of bits will do.
        (read == bytes as isize).then(|| unsafe { room.assume_init_ref() })
    }

    /// Some of its next bytes.
    pub fn next<'a>(&self, buffer: &'a mut [MaybeUninit<u8>]) -> &'a [u8] {
        let place = [self.0, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0];
        // SAFETY: room for so many bytes.
        let read = usize::try_from(unsafe { call(READ, place) }).unwrap_or(0);
        // SAFETY: so many were written.
        unsafe { buffer.get(..read).unwrap_or_default().assume_init_ref() }
    }

    /// Maps a part of it privately at an address. `over`: whatever is there (of this image's own range).
    ///
    /// # Safety
    /// What is there with `over` belongs to nobody else.
    pub unsafe fn map(&self, address: u64, bytes: u64, offset: u64, protection: usize, over: bool) -> isize {
        const PRIVATE: usize = 2;
        let flags = PRIVATE | if over { FIXED } else { FIXED_NO_REPLACE };
        let place = [address as usize, bytes as usize, protection, flags, self.0, offset as usize];
        // SAFETY: the caller's promise.
        unsafe { call(MMAP, place) }
    }
}

const FIXED: usize = 0x10;
const FIXED_NO_REPLACE: usize = 0x10_0000;

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { call(CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// Maps zeros over what is there.
///
/// # Safety
/// What is there belongs to nobody else.
pub unsafe fn map_zeros(address: u64, bytes: u64) -> isize {
    const PRIVATE_AND_ANONYMOUS: usize = 0x22;
    let place = [address as usize, bytes as usize, WRITABLE, PRIVATE_AND_ANONYMOUS | FIXED, usize::MAX, 0];
    // SAFETY: the caller's promise.
    unsafe { call(MMAP, place) }
}

/// What was mapped may only be read from now on.
///
/// # Safety
/// The pages belong to the caller, and nobody writes them any more.
pub unsafe fn protect(address: u64, bytes: u64) -> isize {
    // SAFETY: the caller's promise.
    unsafe { call(MPROTECT, [address as usize, bytes as usize, READABLE, 0, 0, 0]) }
}

/// Gives addresses back.
///
/// # Safety
/// Nobody uses them.
pub unsafe fn unmap(address: u64, bytes: u64) {
    // SAFETY: the caller's promise.
    unsafe { call(MUNMAP, [address as usize, bytes as usize, 0, 0, 0, 0]) };
}

/// Who runs this.
pub fn user() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(GETEUID, [0; 6]) as u32 }
}

/// Whether the ids of who started it are those that it runs with, and others of this user may look into it.
pub fn is_plainly_ours() -> bool {
    const GET_DUMPABLE: usize = 3;
    // SAFETY: numbers only.
    let ask = |number, what| unsafe { call(number, [what, 0, 0, 0, 0, 0]) };
    ask(GETUID, 0) == ask(GETEUID, 0) && ask(GETGID, 0) == ask(GETEGID, 0) && ask(PRCTL, GET_DUMPABLE) == 1
}

/// What the kernel told the program when it started, in pairs of words; nothing before Linux 6.4.
pub fn told(room: &mut [MaybeUninit<u64>; 128]) -> &[u64] {
    const GET_AUXV: usize = 0x4155_5856;
    let place = [GET_AUXV, room.as_mut_ptr() as usize, size_of_val(room), 0, 0, 0];
    // SAFETY: room for so many bytes.
    let bytes = usize::try_from(unsafe { call(PRCTL, place) }).unwrap_or(0);
    // SAFETY: so many were written.
    unsafe { room.get(..bytes / 8).unwrap_or_default().assume_init_ref() }
}

/// This thread.
pub fn thread() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(GETTID, [0; 6]) as u32 }
}

/// Waits while the word has this value; may come back early.
pub fn wait(word: &core::sync::atomic::AtomicU32, value: u32) {
    const WAIT_PRIVATE: usize = 128;
    // SAFETY: a word that lives.
    unsafe { call(FUTEX, [word.as_ptr() as usize, WAIT_PRIVATE, value as usize, 0, 0, 0]) };
}

/// Wakes all that wait.
pub fn wake(word: &core::sync::atomic::AtomicU32) {
    const WAKE_PRIVATE: usize = 129;
    // SAFETY: a word that lives.
    unsafe { call(FUTEX, [word.as_ptr() as usize, WAKE_PRIVATE, i32::MAX as usize, 0, 0, 0]) };
}

/// A moment.
pub fn pause() {
    let time = [0_u64, 50_000];
    // SAFETY: seconds and nanoseconds.
    unsafe { call(NANOSLEEP, [time.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}

/// To standard error.
pub fn say(text: &[u8]) {
    // SAFETY: bytes to read.
    unsafe { call(WRITE, [2, text.as_ptr() as usize, text.len(), 0, 0, 0]) };
}

/// Ends the process.
pub fn exit(code: usize) -> ! {
    loop {
        // SAFETY: does not come back.
        unsafe { call(EXIT_GROUP, [code, 0, 0, 0, 0, 0]) };
    }
}
