//! The machine's pool of huge pages, which one test at a time may enlarge.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const POOL: &str = "/proc/sys/vm/nr_hugepages";

const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

fn number_in(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// So many huge pages more, for as long as it lives.
pub struct HugePages {
    before: u64,
    _alone: MutexGuard<'static, ()>,
}

impl HugePages {
    /// None where the machine has no room for them; it says so.
    pub fn more(pages: u64) -> Option<HugePages> {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let before = number_in(POOL)?;
        let set = |number: u64| std::fs::write(POOL, number.to_string());
        // What processes that were just ended had comes back in a moment.
        for _ in 0..50 {
            if set(before + pages).is_ok() && number_in(FREE) >= Some(pages) {
                return Some(HugePages { before, _alone: alone });
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = set(before); // what it could not give stays as it was
        crate::left_out(&format!("{pages} huge pages, which this machine does not give"));
        None
    }

    /// How many pages of the pool nobody has taken.
    pub fn free(&self) -> u64 {
        number_in(FREE).expect("the kernel tells how many huge pages are free")
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let put_back = std::fs::write(POOL, self.before.to_string());
        if !std::thread::panicking() {
            put_back.expect("the pool can be put back");
        }
    }
}
