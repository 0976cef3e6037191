//! Which descriptors the library keeps for itself: for who stands before the C library in a program that knows nothing of it, and
//! may close whatever it does not know. Else nobody looks.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// Those from this number on are nobody's: so many have no program.
const MOST: usize = 1 << 16;

static OWN: [AtomicU64; MOST / 64] = [const { AtomicU64::new(0) }; MOST / 64];

fn bit(fd: i32) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((OWN.get(fd / 64)?, 1 << (fd % 64)))
}

/// The library keeps it.
pub(crate) fn note(fd: &impl AsRawFd) {
    if let Some((word, bit)) = bit(fd.as_raw_fd()) {
        word.fetch_or(bit, Ordering::AcqRel);
    }
}

/// Whether the library keeps that descriptor.
pub fn is_own(fd: i32) -> bool {
    bit(fd).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
}

/// The library is about to close it: who sees that says so.
pub fn forget_own(fd: i32) {
    if let Some((word, bit)) = bit(fd) {
        word.fetch_and(!bit, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_own_until_it_is_forgotten() {
        for fd in [60_000, 60_001, 65_535] {
            note(&fd);
            assert!(is_own(fd) && !is_own(fd - 10));
            forget_own(fd);
            assert!(!is_own(fd));
        }
        for fd in [-1, i32::MIN, 65_536, i32::MAX] {
            note(&fd);
            assert!(!is_own(fd), "{fd}");
        }
    }
}
