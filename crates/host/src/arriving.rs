//! How many pages may be on their way to and from pagers that are other processes. The room of such pages is taken, nothing
//! can be evicted in their place, and the other process may never answer: so one user has a quarter of the budget for
//! them, and all users together half. Root and who runs the host are not counted.

use crate::asker;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often who waits looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// What is on its way.
#[derive(Debug)]
pub struct Arriving {
    state: Mutex<State>,
    less: Condvar,
    one: u64,
    all: u64,
}

#[derive(Debug, Default)]
struct State {
    of_user: HashMap<u32, u64>,
    all: u64,
}

/// Pages counted as being on their way until it is dropped.
#[derive(Debug)]
pub struct Arrival {
    of: Arc<Arriving>,
    uid: u32,
    pages: u64,
}

impl Arriving {
    /// Of a budget of that many pages.
    pub fn new(budget_pages: u64) -> Arc<Arriving> {
        let (one, all) = ((budget_pages / 4).max(1), (budget_pages / 2).max(1));
        Arc::new(Arriving { state: Mutex::default(), less: Condvar::new(), one, all })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most that one user may have on the way.
    pub fn of_one_user(&self) -> u64 {
        self.one
    }

    /// Counts the pages if there is room for them now.
    pub fn now(self: &Arc<Self>, uid: u32, pages: u64) -> Option<Arrival> {
        self.count(&mut self.lock(), uid, pages)
    }

    fn count(self: &Arc<Self>, state: &mut State, uid: u32, pages: u64) -> Option<Arrival> {
        let mine = state.of_user.get(&uid).copied().unwrap_or(0);
        if mine + pages > self.one || state.all + pages > self.all {
            return None;
        }
        state.of_user.insert(uid, mine + pages);
        state.all += pages;
        Some(Arrival { of: self.clone(), uid, pages })
    }

    /// Counts the pages, of which there may be [`of_one_user`](Self::of_one_user) at most, as soon as there is room for
    /// them. `None`: it was too late before there was, or nobody wants them any more.
    pub fn wait(self: &Arc<Self>, uid: u32, pages: u64, until: Instant) -> Option<Arrival> {
        let mut state = self.lock();
        loop {
            if !asker::is_wanted() {
                return None;
            }
            if let Some(arrival) = self.count(&mut state, uid, pages) {
                return Some(arrival);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self.less.wait_timeout(state, left.min(LOOK)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let mut state = self.of.lock();
        state.all -= self.pages;
        if let Some(mine) = state.of_user.get_mut(&self.uid) {
            *mine -= self.pages;
            if *mine == 0 {
                state.of_user.remove(&self.uid);
            }
        }
        drop(state);
        self.of.less.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asker::Asker;

    #[test]
    fn one_user_has_a_quarter_and_all_together_half() {
        let arriving = Arriving::new(80);
        let now = Instant::now();
        let first = arriving.wait(1, 20, now).unwrap();
        assert!(arriving.wait(1, 1, now).is_none());
        let second = arriving.wait(2, 20, now).unwrap();
        assert!(arriving.wait(3, 1, now).is_none());
        drop(first);
        assert!(arriving.wait(2, 1, now).is_none());
        assert!(arriving.wait(3, 20, now).is_some());
        drop(second);
        let state = arriving.lock();
        assert!(state.of_user.is_empty() && state.all == 0);
    }

    #[test]
    fn who_has_gone_waits_no_longer() {
        let arriving = Arriving::new(4);
        let later = Instant::now() + Duration::from_secs(3600);
        let _all = arriving.wait(1, 1, later).unwrap();
        let asker = Asker::new(1);
        let acting = asker.acts();
        let gone = asker.clone();
        std::thread::spawn(move || gone.leave());
        assert!(arriving.wait(1, 1, later).is_none());
        drop(acting);
        assert!(Asker::acting().is_none());
    }
}
