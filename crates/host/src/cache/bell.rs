//! Rings for those who wait for something to change under a lock. Where nobody waits it costs no system call: it is rung
//! for every page that another host sends.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::Duration;

/// The bell. Always the same lock goes with it, under which whoever rings has changed something before.
#[derive(Default)]
pub struct Bell {
    rung: Condvar,
    waiting: AtomicUsize,
}

impl Bell {
    /// Whoever waits looks again.
    pub fn ring(&self) {
        // Who waits counted itself while it held the lock, and so before the change or after it.
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.rung.notify_all();
        }
    }

    /// Lets the lock go until the bell is rung, or for so long.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>, longest: Duration) -> MutexGuard<'a, T> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waited = self.rung.wait_timeout(guard, longest);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn whoever_waits_is_woken() {
        let shared = Arc::new((Mutex::new(false), Bell::default()));
        let other = shared.clone();
        let waiter = std::thread::spawn(move || {
            let mut guard = other.0.lock().unwrap();
            while !*guard {
                guard = other.1.wait(guard, Duration::from_secs(3600));
            }
        });
        *shared.0.lock().unwrap() = true;
        shared.1.ring();
        waiter.join().unwrap();
    }
}
