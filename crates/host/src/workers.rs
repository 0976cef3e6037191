//! Threads for work that may take long: syncs, slow pagers, evictions. They come when needed and leave when idle.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// A pool of at most `limit` threads.
pub struct Workers {
    state: Mutex<State>,
    wake: Condvar,
    limit: usize,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
}

/// An idle thread leaves after this long.
const IDLE: Duration = Duration::from_secs(5);

impl Workers {
    /// A pool without threads.
    pub fn new(limit: usize) -> Arc<Workers> {
        Arc::new(Workers { state: Mutex::default(), wake: Condvar::new(), limit })
    }

    /// Runs `job` as soon as a thread is free.
    pub fn run(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.jobs.push_back(Box::new(job));
        if state.idle >= state.jobs.len() || state.threads >= self.limit {
            self.wake.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let this = self.clone();
        let spawned = std::thread::Builder::new().name("worker".into()).spawn(move || this.work());
        if spawned.is_err() {
            self.state.lock().unwrap_or_else(PoisonError::into_inner).threads -= 1;
        }
    }

    fn work(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // A panic in one job must not take the pool's bookkeeping with it.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.idle += 1;
            let (next, waited) = self.wake.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            if waited.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}
