//! At the home: when it is looked whether an object lacks replicas. One thread for all objects, which sleeps until something
//! happens that could change that: hosts come and go, one that could not keep an object may be tried again, or one counts no
//! more. What takes long is done by others.

use super::home::Home;
use crate::cluster::{Cluster, lock};
use commonhold_points as points;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// After an attempt that failed as a whole.
const AGAIN: Duration = Duration::from_millis(500);

/// The objects of this home that others keep, from when it schedules.
#[derive(Default)]
pub(in crate::cluster) struct Looking {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    objects: HashMap<u128, One>,
    /// There is a thread.
    is_running: bool,
}

struct One {
    home: Weak<Home>,
    /// Then it is looked at; none: when something happens.
    at: Option<Instant>,
    /// It is just being looked at.
    is_looked_at: bool,
}

impl Looking {
    /// It is to be looked at then, or before.
    pub fn look_at(&self, object: u128, at: Instant) {
        if let Some(one) = lock(&self.state).objects.get_mut(&object) {
            one.at = Some(one.at.map_or(at, |before| before.min(at)));
            self.changed.notify_one();
        }
    }

    /// All are to be looked at now.
    fn look_at_all(&self) {
        let now = Instant::now();
        lock(&self.state).objects.values_mut().for_each(|one| one.at = Some(now));
        self.changed.notify_one();
    }

    /// It is no more.
    pub fn forget(&self, object: u128) {
        lock(&self.state).objects.remove(&object);
        self.changed.notify_one();
    }

    /// One is looked after from now on. Whether a thread must be found for it.
    fn begin(&self, home: &Arc<Home>) -> bool {
        let mut state = lock(&self.state);
        let one = One { home: Arc::downgrade(home), at: Some(Instant::now()), is_looked_at: false };
        state.objects.insert(home.object, one);
        self.changed.notify_one();
        !std::mem::replace(&mut state.is_running, true)
    }

    /// It was looked at.
    fn is_done(&self, object: u128, again: Option<Instant>) {
        if let Some(one) = lock(&self.state).objects.get_mut(&object) {
            one.is_looked_at = false;
        }
        // Also what was wanted meanwhile.
        match again {
            Some(at) => self.look_at(object, at),
            None => self.changed.notify_one(),
        }
    }

    /// Waits until some are to be looked at. None: there are no more at all.
    fn next(&self) -> Option<Vec<Arc<Home>>> {
        let mut state = lock(&self.state);
        loop {
            if state.objects.is_empty() {
                state.is_running = false;
                return None;
            }
            let now = Instant::now();
            let (mut due, mut next) = (Vec::new(), None::<Instant>);
            for one in state.objects.values_mut().filter(|one| !one.is_looked_at) {
                match one.at {
                    Some(at) if at <= now => {
                        (one.at, one.is_looked_at) = (None, true);
                        due.extend(one.home.upgrade());
                    }
                    Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
                    None => {}
                }
            }
            if !due.is_empty() {
                return Some(due);
            }
            let woken = |state: std::sync::LockResult<_>| state.unwrap_or_else(PoisonError::into_inner);
            state = match next {
                Some(next) => {
                    let waited = self.changed.wait_timeout(state, next - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => woken(self.changed.wait(state)),
            };
        }
    }
}

impl Cluster {
    /// Other hosts belong than before, or may be tried again.
    pub(in crate::cluster) fn look_at_replicas(&self) {
        self.looking.look_at_all();
    }

    /// Sees to it from now on that enough hosts keep the object, if there are so many.
    pub(in crate::cluster) fn look_after(self: &Arc<Self>, home: &Arc<Home>) {
        if !self.looking.begin(home) {
            return;
        }
        let (this, looking) = (Arc::downgrade(self), self.looking.clone());
        let watching = move || {
            while let Some(due) = looking.next() {
                let Some(this) = this.upgrade() else { return };
                for home in due {
                    let cluster = this.clone();
                    this.pools.filling.run(move || cluster.look_now(&home));
                }
            }
        };
        if points::thread(|| {
            std::thread::Builder::new().name("replicas".into()).stack_size(64 << 10).spawn(watching)
        })
        .is_err()
        {
            std::process::abort(); // the keeper starts the next, which tries again
        }
    }

    fn look_now(&self, home: &Home) {
        if self.lease.is_fenced() {
            return self.looking.forget(home.object);
        }
        let again = home.fill().unwrap_or_else(|error| {
            self.report(format_args!("object {:032x}: its replicas: {error}", home.object));
            Some(Instant::now() + AGAIN)
        });
        self.looking.is_done(home.object, again);
    }
}

#[cfg(test)]
mod tests {
    use super::super::home;
    use super::*;
    use std::sync::mpsc::channel;

    fn home(object: u128) -> Arc<Home> {
        let state = home::State::new(tempfile::tempfile().unwrap(), 0, Default::default(), Vec::new());
        Arc::new(Home::alone(object, state))
    }

    #[test]
    fn each_is_looked_at_when_something_happens_and_never_twice_at_once() {
        let looking = Arc::new(Looking::default());
        let homes: Vec<_> = (0..3).map(home).collect();
        assert!(looking.begin(&homes[0]) && !looking.begin(&homes[1]) && !looking.begin(&homes[2]));
        let objects = |due: Vec<Arc<Home>>| {
            let mut objects: Vec<u128> = due.iter().map(|home| home.object).collect();
            objects.sort();
            objects
        };
        assert_eq!(objects(looking.next().unwrap()), [0, 1, 2]);
        // What is wanted while it is looked at is done after that.
        looking.look_at_all();
        looking.is_done(1, None);
        assert_eq!(objects(looking.next().unwrap()), [1]);
        looking.is_done(0, Some(Instant::now() + Duration::from_secs(3600)));
        assert_eq!(objects(looking.next().unwrap()), [0]);
        (0..2).for_each(|object| looking.is_done(object, None));
        // Now nothing happens until something does.
        let (sender, heard) = channel();
        let waits = looking.clone();
        let thread = std::thread::spawn(move || {
            while let Some(due) = waits.next() {
                sender.send(due.len()).unwrap();
            }
        });
        looking.look_at(0, Instant::now() + Duration::from_millis(20));
        looking.look_at(1, Instant::now() + Duration::from_secs(3600));
        assert_eq!(heard.recv().unwrap(), 1);
        looking.look_at(1, Instant::now());
        assert_eq!(heard.recv().unwrap(), 1);
        (0..3).for_each(|object| looking.forget(object));
        thread.join().unwrap();
        assert!(heard.recv().is_err() && looking.begin(&homes[0]), "a thread is found again");
    }
}
