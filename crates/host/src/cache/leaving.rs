//! No process of this host uses an object of another host any more: what is newest here goes home, and the rest is dropped.

use super::Cache;
use crate::shared::Role;
use roaring::RoaringBitmap;
use std::sync::Arc;
use std::time::Duration;

/// Frames that are looked at at once.
const MOST_FRAMES: usize = 4096;
/// Looks at what does not go, and the time between two of them.
const MOST_LOOKS: u32 = 200;
const AGAIN: Duration = Duration::from_millis(1);

impl Cache {
    /// What is newest here goes home: whether all of it has. Else something keeps it here (its minimum hold, a home that is
    /// away or takes nothing just now), and this is to be called again.
    pub fn send_home(self: &Arc<Self>) -> bool {
        let Some(driver) = self.driver().filter(|driver| !driver.is_home()) else { return true };
        driver.leave();
        if self.role() == Some(Role::Own) {
            return true; // what was not synced was given up
        }
        let mut fruitless = 0;
        loop {
            let before = self.resident();
            if before.is_empty() {
                return true;
            }
            driver.evict(&before.iter().take(MOST_FRAMES).collect());
            fruitless = if self.resident().len() < before.len() { 0 } else { fruitless + 1 };
            if fruitless == MOST_LOOKS {
                return !driver.has_newest_here();
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// The pages that have frames.
    pub fn resident(&self) -> RoaringBitmap {
        self.lock().resident.clone()
    }
}
