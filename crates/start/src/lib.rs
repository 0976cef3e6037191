//! What the loader of the C library loads before anything of a program (`LD_AUDIT`), and asks for every library that it is
//! about to open: a program that is set for rebasing gets the copies that were made for it (docs/REBASE.md).
//!
//! One start, in order:
//! 1. [`la_version`]: which program is this, is there a record of it (`record`), and is everything as it was when that was
//!    written (`decide`)? If not: version 0, and the loader forgets this library.
//! 2. [`la_objsearch`]: the loader is about to try a path. If it is that of an original, it gets the copy's, if that is the
//!    file that was written; else it ends (as in 3). The loader goes on calling it by the original's name.
//! 3. [`la_objopen`]: something was mapped, and nothing was relocated yet. A copy that is not at its address, or a library
//!    that the record does not know, ends it: the program is started again without this library (`again`).
//! 4. [`la_activity`]: all is there, and nothing has run. Libraries that are opened from now on are originals, but for those
//!    that are here already as copies.
//!
//! It has no libc, allocates nothing, and does not write to anything but its own few words.
#![no_std]

mod again;
mod decide;
mod process;
mod stack;
mod system;
mod words;

use commonhold_record::{IS_THE_COPY, Record, State};
use core::ffi::{CStr, c_char, c_uint};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// The version of the loader's interface that this is written for (`LAV_CURRENT` of glibc 2.35 and later).
const INTERFACE: c_uint = 2;

/// What was decided, for the calls that follow. The loader makes them one at a time.
static RECORD: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static RECORD_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Who runs this.
static USER: AtomicU32 = AtomicU32::new(0);
static RUNS: AtomicBool = AtomicBool::new(false);
/// How many of its files came.
static SEEN: AtomicUsize = AtomicUsize::new(0);

/// The public beginning of glibc's `struct link_map` (`<link.h>`).
#[repr(C)]
pub struct LinkMap {
    address: usize,
    name: *const c_char,
    dynamic: usize,
    next: *mut LinkMap,
    previous: *mut LinkMap,
}

pub(crate) fn record() -> Option<Record<'static>> {
    let first = RECORD.load(Ordering::Relaxed);
    if first.is_null() {
        return None;
    }
    // SAFETY: set once by `la_version`, to a private mapping of so many bytes that is never unmapped.
    Record::accepted(unsafe { core::slice::from_raw_parts(first, RECORD_BYTES.load(Ordering::Relaxed)) })
}

/// The loader asks whether this library fits it. 0: go on without.
#[unsafe(no_mangle)]
pub extern "C" fn la_version(loader: c_uint) -> c_uint {
    if loader < INTERFACE {
        return 0;
    }
    let Some(decision) = decide::decide() else { return 0 };
    let bytes = decision.record;
    // A program that has a copy itself is that copy from here on.
    let program = Record::accepted(bytes).and_then(|record| record.files().next());
    if let Some(program) = program.filter(|file| file.dynamic != IS_THE_COPY && !file.copy.is_empty()) {
        if !system::is_as_written(program.copy, &program.copy_state, decision.user) {
            return 0;
        }
        again::as_copy(program.copy);
    }
    USER.store(decision.user, Ordering::Relaxed);
    RECORD_BYTES.store(bytes.len(), Ordering::Relaxed);
    RECORD.store(bytes.as_ptr().cast_mut(), Ordering::Relaxed);
    INTERFACE
}

/// What a cookie says of an object: it belongs to the program's own name space, or to one that the program made.
const ORDINARY: usize = 0;
const ELSEWHERE: usize = 1;

/// The loader is about to try a path, or has a name to search for.
///
/// # Safety
/// As the loader calls it: `name` is a string, and `cookie` that of the object for which it searches.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objsearch(
    name: *const c_char,
    cookie: *mut usize,
    _why: c_uint,
) -> *const c_char {
    // SAFETY: a string of the loader's, and a word of its own.
    let (path, space) = unsafe { (CStr::from_ptr(name).to_bytes_with_nul(), *cookie) };
    if !path.contains(&b'/') {
        return name; // a name: the paths come later
    }
    let Some(record) = record() else { return name };
    let copied = || record.files().filter(|file| !file.copy.is_empty() && file.dynamic != IS_THE_COPY);
    if !RUNS.load(Ordering::Relaxed) {
        let Some(file) = copied().find(|file| file.path == path) else { return name };
        if !system::is_as_written(file.copy, &file.copy_state, USER.load(Ordering::Relaxed)) {
            again::start(); // beside other copies the original would be wrong
        }
        return file.copy.as_ptr().cast();
    }
    // By its own path it is here already, where the program has it: the loader looks for it for another name space. By
    // another path it is the same library, and must not come a second time.
    if space == ELSEWHERE || copied().any(|file| file.path == path) {
        return name;
    }
    let Some(state) = system::state_of(path) else { return name };
    let same = |one: &State, other: &State| (one.device, one.inode) == (other.device, other.inode);
    let Some(file) = copied().find(|file| same(&file.state, &state)) else { return name };
    // The loader has it, if it is still that file.
    let is_here = system::state_of(file.copy).is_some_and(|copy| same(&file.copy_state, &copy));
    if is_here { file.copy.as_ptr().cast() } else { name }
}

/// The loader has mapped something. Nothing of it is relocated.
///
/// # Safety
/// As the loader calls it: `map` is one of its link maps, and `cookie` a word of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objopen(map: *mut LinkMap, space: isize, cookie: *mut usize) -> c_uint {
    // SAFETY: the word is ours to write.
    unsafe { *cookie = if space == 0 { ORDINARY } else { ELSEWHERE } };
    let Some(record) = record() else { return 0 };
    if RUNS.load(Ordering::Relaxed) || space != 0 {
        return 0;
    }
    // SAFETY: a link map of the loader's, whose name is a string.
    let (name, dynamic) = unsafe { (CStr::from_ptr((*map).name).to_bytes_with_nul(), (*map).dynamic) };
    // The program and the kernel's own library have no paths.
    if !name.contains(&b'/') {
        return 0;
    }
    let Some(file) = record.files().find(|file| file.path == name) else { again::start() };
    if !file.copy.is_empty() && dynamic as u64 != file.dynamic {
        again::start();
    }
    SEEN.fetch_add(1, Ordering::Relaxed);
    0
}

/// The loader's lists are as they should be: for the first time when all is there that the program was linked to, and
/// nothing of it has run.
#[unsafe(no_mangle)]
pub extern "C" fn la_activity(_cookie: *mut usize, what: c_uint) {
    const CONSISTENT: c_uint = 0;
    if what != CONSISTENT || RUNS.swap(true, Ordering::Relaxed) {
        return;
    }
    // What is bound to a library that did not come must not run.
    if record().is_some_and(|record| SEEN.load(Ordering::Relaxed) + 1 != record.len()) {
        again::start();
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    system::exit(127)
}
