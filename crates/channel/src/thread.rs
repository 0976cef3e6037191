//! This thread's number, and the lock that the kernel frees if it dies.
//!
//! The kernel knows of each thread a list of locks (get_robust_list(2)), which the C library has
//! set up, and beside it one slot: the lock that the thread is about to take or to let go. When the
//! thread dies, and its number is in that lock, the kernel writes `FUTEX_OWNER_DIED` there and
//! wakes one who waits. Only the slot is used here: it lies in the thread's own memory, where no
//! other process can write.

use commonhold_futex::thread;
use std::cell::Cell;
use std::sync::atomic::{Ordering, compiler_fence};

/// `struct robust_list_head` of linux/futex.h.
#[repr(C)]
struct Head {
    first: usize,
    /// From a lock's entry to its word.
    word_offset: libc::c_long,
    pending: usize,
}

thread_local! {
    /// The thread that it was found out by, and its list; no thread has the number 0.
    static KNOWN: Cell<(u32, *mut Head)> = const { Cell::new((0, std::ptr::null_mut())) };
}

fn head() -> *mut Head {
    let (number, head) = KNOWN.get();
    // In a fork child the thread is another.
    if number == thread() { head } else { find_out() }
}

#[cold]
fn find_out() -> *mut Head {
    let (mut head, mut length) = (std::ptr::null_mut::<Head>(), 0_usize);
    // SAFETY: the kernel writes two numbers to places that are there.
    let got = unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut length) };
    if got != 0 || length != size_of::<Head>() {
        head = std::ptr::null_mut();
    }
    KNOWN.set((thread(), head));
    head
}

/// Whether the kernel frees the lock that this thread has when it dies. Not so of a thread that was
/// made past the C library.
pub fn is_ready() -> bool {
    !head().is_null()
}

/// From now on, the kernel frees the lock in that word if this thread dies. Gives what it was to
/// free until now.
pub(crate) fn expect_lock(word: usize) -> usize {
    let head = head();
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
    let head = head();
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
