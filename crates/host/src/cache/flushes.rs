//! When a flush of the stored object can be believed.

use crate::pagers::Pager;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The flushes of one object, by syncs and evictions.
#[derive(Default)]
pub(super) struct Flushes {
    one_at_a_time: Mutex<()>,
    failed: AtomicU64,
}

impl Flushes {
    /// How many have failed: asked before the first page is written.
    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Ordering::SeqCst)
    }

    /// Makes durable what was written since `failed_before` was asked for. The kernel tells of a failure once, whoever's
    /// pages it was that could not be written; so who wrote before a flush that failed must not believe a later one.
    pub(super) fn flush(&self, pager: &dyn Pager, failed_before: u64) -> Result<()> {
        let _one_at_a_time = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        if self.failed() != failed_before && !points::mutant("cache.later_flush_believed") {
            let what =
                "a flush of the stored object failed meanwhile: everything is kept in memory, try again";
            return Err(Error::new(ErrorKind::Io, what));
        }
        let result = pager.flush();
        if result.is_err() {
            self.failed.fetch_add(1, Ordering::SeqCst);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// Fails once.
    #[derive(Default)]
    struct Once(AtomicBool);

    impl Pager for Once {
        fn is_anonymous(&self) -> bool {
            false
        }
        fn page_in(&self, _offset: u64, _buffer: &mut [u8]) -> Result<()> {
            Ok(())
        }
        fn page_out(&self, _offset: u64, _data: &[u8]) -> Result<()> {
            Ok(())
        }
        fn flush(&self) -> Result<()> {
            let failed = self.0.swap(true, Ordering::SeqCst);
            if failed { Ok(()) } else { Err(Error::new(ErrorKind::Io, "the disk")) }
        }
    }

    #[test]
    fn who_wrote_before_a_flush_that_failed_believes_no_later_one() {
        let (flushes, pager) = (Flushes::default(), Once::default());
        let (first, second) = (flushes.failed(), flushes.failed());
        flushes.flush(&pager, first).unwrap_err();
        let why = flushes.flush(&pager, second).unwrap_err();
        assert!(why.message.contains("failed meanwhile"), "{why}");
        flushes.flush(&pager, flushes.failed()).unwrap();
    }
}
