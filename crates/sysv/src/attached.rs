//! What this process has attached. A forked child has the same.

use crate::anonymous::Anonymous;
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// One attach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attached {
    /// The twin's number.
    pub(crate) id: i32,
    /// Bytes of addresses that it takes.
    pub(crate) length: usize,
    /// Where the twin is attached, by which the kernel counts this one.
    pub(crate) twin: usize,
}

/// All of it, by address.
#[derive(Debug)]
pub(crate) struct All {
    pub(crate) segments: BTreeMap<usize, Attached>,
    pub(crate) anonymous: BTreeMap<usize, Anonymous>,
}

static ALL: Mutex<All> = Mutex::new(All { segments: BTreeMap::new(), anonymous: BTreeMap::new() });

/// Locks what is attached. The first time, fork and exit get to know of it.
pub(crate) fn all() -> MutexGuard<'static, All> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: functions of this library, which is never unloaded (build.rs). Without memory for the handlers a fork while
        // another thread attaches would leave the child without the table.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork));
            libc::atexit(at_exit);
        }
    });
    lock()
}

fn lock() -> MutexGuard<'static, All> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Slot(UnsafeCell<Option<MutexGuard<'static, All>>>);

// SAFETY: only who holds the lock touches it: the thread that forks, and its image in the child.
unsafe impl Sync for Slot {}

static HELD: Slot = Slot(UnsafeCell::new(None));

extern "C" fn before_fork() {
    let guard = lock();
    // SAFETY: this thread holds the lock.
    unsafe { *HELD.0.get() = Some(guard) };
}

extern "C" fn after_fork() {
    // SAFETY: this thread, or the one that it is the image of, holds the lock.
    drop(unsafe { (*HELD.0.get()).take() });
}

/// Segments that were removed go with their last process: the object, too.
extern "C" fn at_exit() {
    let _ = std::panic::catch_unwind(|| crate::attach::leave_removed(&lock().segments));
}
