//! Huge pages for one test at a time.

use commonhold_tables::Pool;
use std::sync::{Mutex, MutexGuard, PoisonError};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// So many huge pages more, for as long as it lives.
pub struct HugePages {
    pool: Pool,
    _alone: MutexGuard<'static, ()>,
}

impl HugePages {
    /// None where this is not root, or the machine has no room for them; it says so.
    pub fn more(pages: u64) -> Option<HugePages> {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        match Pool::more(pages) {
            Ok(pool) => Some(HugePages { pool, _alone: alone }),
            Err(error) => {
                crate::left_out(&format!("{pages} huge pages: {error}"));
                None
            }
        }
    }

    /// How many pages of the pool nobody has taken.
    pub fn free(&self) -> u64 {
        self.pool.free().expect("the kernel tells how many huge pages are free")
    }
}
