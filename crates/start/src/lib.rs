//! What the loader of the C library loads before anything of a program (`LD_AUDIT`), and asks for every library that it is
//! about to open: a program that is set for rebasing gets the copies that were made for it (docs/REBASE.md).
//!
//! One start, in order:
//! 1. [`la_version`]: which program is this, is there a record of it (`record`), and is everything as it was when that was
//!    written (`decide`)? If not: version 0, and the loader forgets this library.
//! 2. [`la_objsearch`]: the loader is about to try a path. If it is that of an original, it gets the copy's. The loader
//!    goes on calling it by the original's name.
//! 3. [`la_objopen`]: something was mapped, and nothing was relocated yet. A copy that is not at its address, or a library
//!    that the record does not know, ends it: the program is started again without this library (`again`).
//! 4. [`la_preinit`]: the program is about to run. Libraries that are opened from now on are originals, but for those that
//!    are here already as copies.
//!
//! It has no libc, allocates nothing, and does not write to anything but its own few words.
#![no_std]

mod again;
mod decide;
mod process;
mod system;
mod words;

use commonhold_record::Record;
use core::ffi::{CStr, c_char, c_uint};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// The version of the loader's interface that this is written for (`LAV_CURRENT` of glibc 2.35 and later).
const INTERFACE: c_uint = 2;

/// What was decided, for the calls that follow. The loader makes them one at a time.
static RECORD: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static RECORD_BYTES: AtomicUsize = AtomicUsize::new(0);
static RUNS: AtomicBool = AtomicBool::new(false);

/// The public beginning of glibc's `struct link_map` (`<link.h>`).
#[repr(C)]
pub struct LinkMap {
    address: usize,
    name: *const c_char,
    dynamic: usize,
    next: *mut LinkMap,
    previous: *mut LinkMap,
}

fn record() -> Option<Record<'static>> {
    let first = RECORD.load(Ordering::Relaxed);
    if first.is_null() {
        return None;
    }
    // SAFETY: set once by `la_version`, to a private mapping of so many bytes that is never unmapped.
    Record::new(unsafe { core::slice::from_raw_parts(first, RECORD_BYTES.load(Ordering::Relaxed)) })
}

/// The loader asks whether this library fits it. 0: go on without.
#[unsafe(no_mangle)]
pub extern "C" fn la_version(loader: c_uint) -> c_uint {
    if loader < INTERFACE {
        return 0;
    }
    match decide::record() {
        Some(bytes) => {
            // A program that has a copy itself is that copy from here on.
            if let Some(copy) =
                Record::new(bytes).and_then(|record| record.files().next()).map(|file| file.copy)
            {
                again::as_copy(copy);
            }
            RECORD_BYTES.store(bytes.len(), Ordering::Relaxed);
            RECORD.store(bytes.as_ptr().cast_mut(), Ordering::Relaxed);
            INTERFACE
        }
        None => 0,
    }
}

/// The loader is about to try a path, or has a name to search for.
///
/// # Safety
/// As the loader calls it: `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objsearch(
    name: *const c_char,
    _cookie: *mut usize,
    _why: c_uint,
) -> *const c_char {
    // SAFETY: a string of the loader's.
    let path = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
    if path[0] != b'/' && !path.contains(&b'/') {
        return name; // a name: the paths come later
    }
    let Some(record) = record() else { return name };
    let mut copied = record.files().filter(|file| !file.copy.is_empty());
    let found = if RUNS.load(Ordering::Relaxed) {
        // By another path it is the same library, and must not come a second time.
        let Some(state) = system::state_of(path) else { return name };
        copied.find(|file| file.state == state)
    } else {
        copied.find(|file| file.path == path)
    };
    found.map_or(name, |file| file.copy.as_ptr().cast())
}

/// The loader has mapped something. Nothing of it is relocated.
///
/// # Safety
/// As the loader calls it: `map` is one of its link maps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objopen(map: *mut LinkMap, space: isize, _cookie: *mut usize) -> c_uint {
    const ORDINARY: isize = 0;
    let Some(record) = record() else { return 0 };
    if RUNS.load(Ordering::Relaxed) || space != ORDINARY {
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
    0
}

/// All is relocated; the program is about to run.
#[unsafe(no_mangle)]
pub extern "C" fn la_preinit(_cookie: *mut usize) {
    RUNS.store(true, Ordering::Relaxed);
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    system::exit(127)
}
