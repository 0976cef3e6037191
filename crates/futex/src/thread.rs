//! This thread's number, and how many forks made this process.

use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

thread_local! {
    /// The number, and the forks when it was asked for; no thread has the number 0.
    static KNOWN: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// How many forks lie between this process and the one that first asked for a number: what was
/// known of a process before a fork is another's in the child.
#[inline]
pub fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// This thread's number, among those of its process.
#[inline]
pub fn thread() -> u32 {
    let (number, forks_then) = KNOWN.get();
    if number != 0 && forks_then == forks() { number } else { find_out() }
}

#[cold]
fn find_out() -> u32 {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler touches an atomic number alone.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        assert!(failed == 0, "there is no memory to watch for forks");
    });
    // SAFETY: takes nothing, and always succeeds.
    let number = unsafe { libc::gettid() }.unsigned_abs();
    KNOWN.set((number, forks()));
    number
}
