//! Errands of this process, and whose descriptors are open meanwhile: a child that is forked while another thread asks closes
//! them.

use crate::Wishes;
use commonhold::{Errand, Error};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// So many descriptors of threads that ask at once are closed in a child; more stay there until it executes.
const MOST: usize = 256;
const NONE: i32 = -1;

static OPEN: [AtomicI32; MOST] = [const { AtomicI32::new(NONE) }; MOST];

/// A descriptor that children close, for as long as this lives; it has to go before the descriptor does.
pub(crate) struct Hidden(Option<usize>);

impl Hidden {
    pub(crate) fn new(fd: BorrowedFd<'_>) -> Hidden {
        let fd = fd.as_raw_fd();
        let takes =
            |slot: &AtomicI32| slot.compare_exchange(NONE, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        Hidden(OPEN.iter().position(takes))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            OPEN[slot].store(NONE, Ordering::Release);
        }
    }
}

/// In a forked child: closes what the threads that are not here had open.
pub(crate) fn close_others() {
    for slot in &OPEN {
        let fd = slot.swap(NONE, Ordering::AcqRel);
        if fd != NONE {
            // SAFETY: it is open in this child alone, and only a thread that is not here knew of it.
            unsafe { libc::close(fd) };
        }
    }
}

/// Asks the host of this process something, of whose answers each may take so long.
pub(crate) fn ask<T>(
    patience: Duration,
    what: impl FnOnce(&mut Errand) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut errand = match &Wishes::of_this_process().host {
        Some(directory) => Errand::to(directory, patience)?,
        None => Errand::begin()?,
    };
    let hidden = Hidden::new(errand.connection());
    let answer = what(&mut errand);
    drop(hidden);
    answer
}
