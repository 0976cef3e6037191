//! An allocator that can count what a row's process allocates and frees. It does so only where a row asks for it, so that
//! no other row pays for it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

struct Counting;

static BYTES: AtomicI64 = AtomicI64::new(0);
static COUNTS: AtomicBool = AtomicBool::new(false);

fn count(bytes: i64) {
    if COUNTS.load(Ordering::Relaxed) {
        BYTES.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: every call goes to the system's allocator as it came; beside that only a number changes.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc`, which is the system's too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: `pointer` came from the system's allocator with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Counts from now on. Gives what is allocated by now, of what was counted.
pub fn allocated() -> i64 {
    COUNTS.store(true, Ordering::Relaxed);
    BYTES.load(Ordering::Relaxed)
}
