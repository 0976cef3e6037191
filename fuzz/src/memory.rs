//! What one input may take of memory: some, and so many times its own length. More is a failure at
//! once, whether it is used or only asked for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// For each byte of an input. (Text of a few bytes becomes a structure of a hundred.)
const FOR_EACH_BYTE: usize = 64;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

/// While it lives no more may be taken.
pub struct Limit(());

/// For an input of that length, of a format that takes so much in any case.
pub fn limit(takes_mib: usize, length: usize) -> Limit {
    LIMIT.store(LIVE.load(Relaxed) + (takes_mib << 20) + length * FOR_EACH_BYTE, Relaxed);
    Limit(())
}

impl Drop for Limit {
    fn drop(&mut self) {
        lift();
    }
}

/// Any more may be taken: something is to be told.
pub fn lift() {
    LIMIT.store(usize::MAX, Relaxed);
}

fn take(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Relaxed).saturating_add(bytes);
    if live > LIMIT.load(Relaxed) {
        lift();
        let place = Backtrace::capture();
        let text = "commonhold-fuzz: more memory was asked for than an input of that length may take";
        eprintln!("{text}\n{place}");
        std::process::abort();
    }
}

// SAFETY: all is done by the system's allocator; here it is only counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        take(size);
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(place, layout, size) }
    }
}
