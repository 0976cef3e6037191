//! Threads that read a connection or answer faults serve everybody, and wait for nobody. In debug builds, which the tests
//! use, what may wait says so here: on such a thread the process ends with a line in the log that fails the test.

use std::cell::Cell;

/// What that line says.
pub const WAITS: &str = "on a thread that others need";

thread_local!(static SERVES_ALL: Cell<bool> = const { Cell::new(false) });

/// As long as this is there, its thread must not wait.
pub struct ServesAll(bool);

/// From now on this thread does what others need.
pub fn serves_all() -> ServesAll {
    ServesAll(SERVES_ALL.replace(true))
}

impl Drop for ServesAll {
    fn drop(&mut self) {
        SERVES_ALL.set(self.0);
    }
}

/// Said before something that may wait: for a file, another process, or a lock that is held meanwhile.
pub fn may_wait(what: &str) {
    if cfg!(debug_assertions) && SERVES_ALL.get() {
        eprintln!("commonhold: {what} {WAITS}: {}", std::backtrace::Backtrace::force_capture());
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_serves_all_as_long_as_it_says_so() {
        may_wait("nobody is served");
        let outer = serves_all();
        drop(serves_all());
        assert!(SERVES_ALL.get(), "the first still does");
        drop(outer);
        may_wait("nobody is served");
    }
}
