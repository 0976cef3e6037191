//! The few system calls that are needed.

use commonhold_record::State;
use core::arch::asm;
use core::ffi::c_char;

const READ: usize = 0;
const CLOSE: usize = 3;
const MMAP: usize = 9;
const MUNMAP: usize = 11;
const WRITE: usize = 1;
const GETPID: usize = 39;
const EXECVE: usize = 59;
const READLINK: usize = 89;
const GETEUID: usize = 107;
const EXIT_GROUP: usize = 231;
const OPENAT: usize = 257;
const NEWFSTATAT: usize = 262;
const FACCESSAT: usize = 269;
const HERE: usize = -100_isize as usize;
const EMPTY_PATH: usize = 0x1000;
const CLOSE_ON_EXEC: usize = 0o2_000_000;

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

/// What `fstat` says of a file: all that is asked for here.
pub struct Status {
    /// What tells it from others.
    pub state: State,
    /// Its owner.
    pub owner: u32,
    /// Its mode.
    pub mode: u32,
}

fn status(directory: usize, path: &[u8], flags: usize) -> Option<Status> {
    let mut raw = [0_u64; 18];
    let place = [directory, path.as_ptr() as usize, raw.as_mut_ptr() as usize, flags, 0, 0];
    // SAFETY: a path that ends with a zero, and room for the 144 bytes of x86-64's `struct stat`.
    if path.last() != Some(&0) || unsafe { call(NEWFSTATAT, place) } < 0 {
        return None;
    }
    let ns = |at: usize| (raw[at] as i64).wrapping_mul(1_000_000_000).wrapping_add(raw[at + 1] as i64);
    let state =
        State { device: raw[0], inode: raw[1], size: raw[6], modified_ns: ns(11), changed_ns: ns(13) };
    Some(Status { state, owner: (raw[3] >> 32) as u32, mode: raw[3] as u32 })
}

/// The state of the file at a path, which ends with a zero.
pub fn state_of(path: &[u8]) -> Option<State> {
    status(HERE, path, 0).map(|status| status.state)
}

/// Whether the file at a path may be read.
pub fn may_read(path: &[u8]) -> bool {
    const READABLE: usize = 4;
    // SAFETY: a path that ends with a zero.
    path.last() == Some(&0)
        && unsafe { call(FACCESSAT, [HERE, path.as_ptr() as usize, READABLE, 0, 0, 0]) } == 0
}

/// A file that is open.
pub struct File(usize);

impl File {
    /// Opens to read.
    pub fn open(path: &[u8]) -> Option<File> {
        // SAFETY: a path that ends with a zero.
        let file = unsafe { call(OPENAT, [HERE, path.as_ptr() as usize, CLOSE_ON_EXEC, 0, 0, 0]) };
        (path.last() == Some(&0) && file >= 0).then_some(File(file as usize))
    }

    /// What it is.
    pub fn status(&self) -> Option<Status> {
        status(self.0, b"\0", EMPTY_PATH)
    }

    /// Some of its next bytes; how many they were.
    pub fn read(&self, buffer: &mut [u8]) -> Option<usize> {
        // SAFETY: room for so many bytes.
        let read = unsafe { call(READ, [self.0, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) };
        usize::try_from(read).ok()
    }

    /// Its bytes, for ever.
    pub fn map(&self, bytes: usize) -> Option<&'static [u8]> {
        const READABLE: usize = 1;
        const PRIVATE: usize = 2;
        // SAFETY: a new mapping, wherever the kernel likes.
        let first = unsafe { call(MMAP, [0, bytes, READABLE, PRIVATE, self.0, 0]) };
        // SAFETY: of so many bytes, which nobody unmaps. The file is replaced and never changed in place.
        (bytes > 0 && first > 0).then(|| unsafe { core::slice::from_raw_parts(first as *const u8, bytes) })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { call(CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// The path of this program, with a zero behind it; none if it does not fit.
pub fn program(buffer: &mut [u8]) -> Option<&[u8]> {
    let link = b"/proc/self/exe\0";
    // SAFETY: room for all but one of the buffer's bytes.
    let length = unsafe {
        call(READLINK, [link.as_ptr() as usize, buffer.as_mut_ptr() as usize, buffer.len() - 1, 0, 0, 0])
    };
    let length = usize::try_from(length).ok().filter(|length| *length > 0 && *length < buffer.len() - 1)?;
    buffer[length] = 0;
    Some(&buffer[..=length])
}

/// Who runs this.
pub fn user() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(GETEUID, [0; 6]) as u32 }
}

/// This process.
pub fn process() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(GETPID, [0; 6]) as u32 }
}

/// Memory full of zeros, for ever; none if there is none.
pub fn memory(bytes: usize) -> Option<&'static mut [u8]> {
    const READABLE_AND_WRITABLE: usize = 3;
    const PRIVATE_AND_ANONYMOUS: usize = 0x22;
    // SAFETY: a new mapping, wherever the kernel likes.
    let first =
        unsafe { call(MMAP, [0, bytes, READABLE_AND_WRITABLE, PRIVATE_AND_ANONYMOUS, usize::MAX, 0]) };
    // SAFETY: of so many bytes, which nobody else knows of.
    (bytes > 0 && first > 0).then(|| unsafe { core::slice::from_raw_parts_mut(first as *mut u8, bytes) })
}

/// Whether the page with an address may be mapped, and is not.
pub fn is_free(address: usize) -> bool {
    const PAGE_BYTES: usize = 4096;
    const PRIVATE_ANONYMOUS_AND_NEVER_ELSEWHERE: usize = 0x10_0022;
    let page = address & !(PAGE_BYTES - 1);
    // SAFETY: a new mapping, which never takes the place of another.
    let first =
        unsafe { call(MMAP, [page, PAGE_BYTES, 0, PRIVATE_ANONYMOUS_AND_NEVER_ELSEWHERE, usize::MAX, 0]) };
    if first > 0 {
        // SAFETY: the mapping that was just made, wherever an older kernel has put it.
        unsafe { call(MUNMAP, [first as usize, PAGE_BYTES, 0, 0, 0, 0]) };
    }
    first as usize == page
}

/// Runs another program instead of this one. Comes back if that cannot be.
pub fn execute(path: &[u8], arguments: *const *const c_char, environment: *const *const c_char) {
    // SAFETY: a path with its zero, and two lists of strings, each ended by a null pointer.
    unsafe { call(EXECVE, [path.as_ptr() as usize, arguments as usize, environment as usize, 0, 0, 0]) };
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
