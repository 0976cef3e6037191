//! Waiting for a condition, with a deadline.

use std::time::{Duration, Instant};

/// The deadline of everything that has no own one: far more than anything takes, also on a busy machine.
pub const LONG: Duration = Duration::from_secs(60);

/// Waits until `condition` gives something; panics with `what` after [`LONG`].
pub fn until<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    within(LONG, condition).unwrap_or_else(|| panic!("waited {LONG:?} in vain: {what}"))
}

/// Waits until `condition` gives something, or the deadline has passed.
pub fn within<T>(deadline: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(found) = condition() {
            return Some(found);
        }
        if start.elapsed() > deadline {
            return None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
