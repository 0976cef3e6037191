//! This thread's number, and the lock that the kernel frees if it dies.
//!
//! The kernel knows of each thread a list of locks (get_robust_list(2)), which the C library has
//! set up, and beside it one slot: the lock that the thread is about to take or to let go. When the
//! thread dies, and its number is in that lock, the kernel writes `FUTEX_OWNER_DIED` there and
//! wakes one who waits. Only the slot is used here: it lies in the thread's own memory, where no
//! other process can write.

use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

/// `struct robust_list_head` of linux/futex.h.
#[repr(C)]
struct Head {
    first: usize,
    /// From a lock's entry to its word.
    word_offset: libc::c_long,
    pending: usize,
}

#[derive(Clone, Copy)]
struct Known {
    number: u32,
    /// Which process of those that came from each other by fork.
    process: u32,
    head: *mut Head,
}

thread_local! {
    static KNOWN: Cell<Known> =
        const { Cell::new(Known { number: 0, process: 0, head: std::ptr::null_mut() }) };
}

/// Counts forks: what a thread knows of itself is another in the child.
static PROCESS: AtomicU32 = AtomicU32::new(1);

extern "C" fn in_child() {
    PROCESS.fetch_add(1, Ordering::Relaxed);
}

fn known() -> Known {
    let known = KNOWN.get();
    if known.process == PROCESS.load(Ordering::Relaxed) { known } else { find_out() }
}

#[cold]
fn find_out() -> Known {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler touches an atomic number alone.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        assert!(failed == 0, "there is no memory to watch for forks");
    });
    let (mut head, mut length) = (std::ptr::null_mut::<Head>(), 0_usize);
    // SAFETY: the kernel writes two numbers to places that are there.
    let got = unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut length) };
    if got != 0 || length != size_of::<Head>() {
        head = std::ptr::null_mut();
    }
    // SAFETY: takes nothing, and always succeeds.
    let number = unsafe { libc::gettid() }.unsigned_abs();
    let known = Known { number, process: PROCESS.load(Ordering::Relaxed), head };
    KNOWN.set(known);
    known
}

/// Whether the kernel frees the lock that this thread has when it dies. Not so of a thread that was
/// made past the C library.
pub fn is_ready() -> bool {
    !known().head.is_null()
}

/// Its number.
pub(crate) fn number() -> u32 {
    known().number
}

/// From now on, the kernel frees the lock in that word if this thread dies. Gives what it was to
/// free until now.
pub(crate) fn expect_lock(word: usize) -> usize {
    let head = known().head;
    if head.is_null() {
        return 0;
    }
    // SAFETY: this thread's own, set up by the C library for as long as it lives; nobody else uses
    // it.
    let offset = unsafe { (*head).word_offset } as isize;
    expect(word.wrapping_add_signed(offset.wrapping_neg()))
}

/// Changes what the kernel frees; gives what it was.
pub(crate) fn expect(entry: usize) -> usize {
    let head = known().head;
    if head.is_null() {
        return 0;
    }
    // SAFETY: as above. Volatile: it is the kernel that reads it.
    unsafe {
        let slot = &raw mut (*head).pending;
        let before = slot.read_volatile();
        // Locks are taken after it, and were let go before it.
        compiler_fence(Ordering::SeqCst);
        slot.write_volatile(entry);
        compiler_fence(Ordering::SeqCst);
        before
    }
}
