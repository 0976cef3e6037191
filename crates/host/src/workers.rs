//! Threads for work that may take long: syncs, slow pagers, evictions. They come when needed and leave when idle.

use commonhold_points as points;
use std::collections::VecDeque;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
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

/// One client's share of the workers: at most [`AT_ONCE`] of its jobs run on a pool at a time, the others wait their
/// turn here, where they are in nobody else's way. It may be a share of its user's, of whose jobs as many run at a time as
/// half of the pool has threads: however many clients one user has whose files answer slowly, others are served.
#[derive(Default)]
pub struct Share {
    lanes: Mutex<Vec<Lane>>,
    /// The share of a pool's threads that it has at most, if it is not a client's: one in so many.
    one_in: Option<usize>,
    /// Of which user's share it is a part.
    of: Option<Arc<Share>>,
}

struct Lane {
    pool: Arc<Workers>,
    running: usize,
    queue: VecDeque<(Option<Arc<Share>>, Job)>,
}

/// Jobs of one client that run on one pool at a time.
pub const AT_ONCE: usize = 8;

impl Share {
    /// The share of all clients of one user.
    pub fn of_user() -> Share {
        Share { one_in: Some(2), ..Share::default() }
    }

    /// The share of another host.
    pub fn of_host() -> Share {
        Share { one_in: Some(4), ..Share::default() }
    }

    /// A client's share of its user's.
    pub fn within(user: Arc<Share>) -> Share {
        Share { of: Some(user), ..Share::default() }
    }

    fn at_once(&self, pool: &Workers) -> usize {
        self.one_in.map_or(AT_ONCE, |part| (pool.limit / part).max(1))
    }

    /// Runs `job` on `pool` when it is its turn. Jobs for one pool begin in the order in which they came.
    pub fn run(self: &Arc<Self>, pool: &Arc<Workers>, job: impl FnOnce() + Send + 'static) {
        self.run_within(self.of.clone(), pool, job);
    }

    /// The same, but then it is the turn of the share `of`, whose job it is as well.
    pub fn run_within(
        self: &Arc<Self>,
        of: Option<Arc<Share>>,
        pool: &Arc<Workers>,
        job: impl FnOnce() + Send + 'static,
    ) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let at = lanes.iter().position(|lane| Arc::ptr_eq(&lane.pool, pool)).unwrap_or_else(|| {
            lanes.push(Lane { pool: pool.clone(), running: 0, queue: VecDeque::new() });
            lanes.len() - 1
        });
        let lane = &mut lanes[at];
        if lane.running >= self.at_once(pool) {
            lane.queue.push_back((of, Box::new(job)));
            return;
        }
        lane.running += 1;
        self.start(of, pool, Box::new(job));
    }

    fn start(self: &Arc<Self>, of: Option<Arc<Share>>, pool: &Arc<Workers>, job: Job) {
        let (this, on) = (self.clone(), pool.clone());
        let job = move || {
            job();
            this.next(&on);
        };
        match of {
            Some(of) => of.run(pool, job),
            None => pool.run(job),
        }
    }

    /// A job ended: the next one may go, behind those that others gave the pool meanwhile.
    fn next(self: &Arc<Self>, pool: &Arc<Workers>) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = lanes.iter().position(|lane| Arc::ptr_eq(&lane.pool, pool)) else { return };
        match lanes[at].queue.pop_front() {
            Some((of, job)) => self.start(of, pool, job),
            None => {
                lanes[at].running -= 1;
                if lanes[at].running == 0 {
                    lanes.swap_remove(at);
                }
            }
        }
    }
}

/// Between two attempts to start a thread.
const AGAIN: Duration = Duration::from_millis(20);

/// Pools that lack a thread because it could not be started. Whoever gave them work must not wait, and nobody else may come by
/// for long. Where this thread cannot be started either the process ends: the keeper starts the next.
fn late_starter() -> &'static Sender<Arc<Workers>> {
    static STARTER: OnceLock<Sender<Arc<Workers>>> = OnceLock::new();
    STARTER.get_or_init(|| {
        let (sender, late) = channel::<Arc<Workers>>();
        let start = move || {
            for pool in late {
                while !pool.start_late() {
                    std::thread::sleep(AGAIN);
                }
            }
        };
        let starter = std::thread::Builder::new().name("starting workers".into());
        if points::thread(|| starter.spawn(start)).is_err() {
            std::process::abort();
        }
        sender
    })
}

/// An idle thread leaves after this long.
const IDLE: Duration = Duration::from_secs(5);

impl Workers {
    /// A pool without threads.
    pub fn new(limit: usize) -> Arc<Workers> {
        late_starter();
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
        if !self.start_thread(state) {
            let _ = late_starter().send(self.clone()); // it never ends
        }
    }

    fn start_thread(self: &Arc<Self>, mut state: MutexGuard<'_, State>) -> bool {
        state.threads += 1;
        drop(state);
        let this = self.clone();
        let spawned =
            points::thread(|| std::thread::Builder::new().name("worker".into()).spawn(move || this.work()));
        if spawned.is_err() {
            self.state.lock().unwrap_or_else(PoisonError::into_inner).threads -= 1;
        }
        spawned.is_ok()
    }

    /// Starts the thread that is missing, if it still is; whether none is.
    fn start_late(self: &Arc<Self>) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.idle >= state.jobs.len() || state.threads >= self.limit || self.start_thread(state)
    }

    fn work(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // A panic ends the process (`server::start`): the next host is better than one that half works.
                job();
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.idle += 1;
            let (next, waited) = self.wake.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            if waited.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                drop(state);
                commonhold_sys::memory::give_back_freed();
                return;
            }
        }
    }
}

/// Threads that wait for the pagers of one user's objects, if those are other processes. Requests wait for pages that
/// faults bring, so they must not take the threads of those.
pub struct PagerThreads {
    requests: Arc<Workers>,
    faults: Arc<Workers>,
}

impl PagerThreads {
    /// At most so many of each kind.
    pub fn new(limit: usize) -> Arc<PagerThreads> {
        Arc::new(PagerThreads { requests: Workers::new(limit), faults: Workers::new(limit) })
    }
}

/// What one object may have of them: [`AT_ONCE`] of each kind, so that a pager that never answers leaves some to the same
/// user's other objects.
pub struct ObjectThreads {
    of_user: Arc<PagerThreads>,
    share: Arc<Share>,
}

impl ObjectThreads {
    /// An object's, of that user's.
    pub fn new(of_user: Arc<PagerThreads>) -> ObjectThreads {
        ObjectThreads { of_user, share: Arc::default() }
    }

    /// For what a client asked for. The bound of the object stands in place of the client's: what hangs with one object
    /// holds up nothing that the same client asks of others. The bound of the client's user holds.
    pub fn run_request(&self, client: Option<Arc<Share>>, job: impl FnOnce() + Send + 'static) {
        let user = client.and_then(|client| client.of.clone());
        self.share.run_within(user, &self.of_user.requests, job);
    }

    /// For a fault.
    pub fn run_fault(&self, job: impl FnOnce() + Send + 'static) {
        self.share.run(&self.of_user.faults, job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    #[test]
    fn one_client_does_not_take_all_threads_and_its_jobs_keep_their_order() {
        let pool = Workers::new(AT_ONCE + 1);
        let greedy = Arc::new(Share::default());
        let (started, order) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let (done, all_done) = mpsc::channel();
        for n in 0..AT_ONCE + 5 {
            let (started, order) = (started.clone(), order.clone());
            let (released, done) = (released.clone(), done.clone());
            greedy.run(&pool, move || {
                started.fetch_add(1, Ordering::SeqCst);
                if n < AT_ONCE {
                    let _ = released.lock().unwrap().recv();
                } else {
                    order.lock().unwrap().push(n);
                }
                let _ = done.send(());
            });
        }
        // Another client is served although the first one's jobs all hang.
        let (other, others) = mpsc::channel();
        Arc::new(Share::default()).run(&pool, move || other.send(()).unwrap());
        others.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(started.load(Ordering::SeqCst) <= AT_ONCE);
        release.send(()).unwrap(); // one of them ends: the others follow one by one
        for _ in 0..6 {
            all_done.recv_timeout(Duration::from_secs(10)).unwrap();
        }
        assert_eq!(*order.lock().unwrap(), (AT_ONCE..AT_ONCE + 5).collect::<Vec<_>>());
        drop(release);
    }

    #[test]
    fn what_hangs_with_one_object_holds_up_none_of_the_same_clients_others() {
        let of_user = PagerThreads::new(4 * AT_ONCE);
        let [hanging, other] = [0, 1].map(|_| ObjectThreads::new(of_user.clone()));
        let client = Arc::new(Share::within(Arc::new(Share::of_user())));
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        for _ in 0..2 * AT_ONCE {
            let released = released.clone();
            hanging.run_request(Some(client.clone()), move || {
                let _ = released.lock().unwrap().recv();
            });
        }
        let (done, is_done) = mpsc::channel();
        other.run_request(Some(client), move || done.send(()).unwrap());
        is_done.recv_timeout(Duration::from_secs(10)).unwrap();
        drop(release);
    }

    #[test]
    fn many_clients_of_one_user_do_not_take_all_threads() {
        let pool = Workers::new(2 * AT_ONCE);
        let user = Arc::new(Share::of_user());
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let (done, all_done) = mpsc::channel();
        let clients: Vec<_> = (0..4 * AT_ONCE).map(|_| Arc::new(Share::within(user.clone()))).collect();
        for client in &clients {
            let (released, done) = (released.clone(), done.clone());
            client.run(&pool, move || {
                let _ = released.lock().unwrap().recv();
                let _ = done.send(());
            });
        }
        let (other, others) = mpsc::channel();
        Arc::new(Share::within(Arc::new(Share::of_user()))).run(&pool, move || other.send(()).unwrap());
        others.recv_timeout(Duration::from_secs(10)).unwrap();
        drop(release); // now all of them end, one after another
        for _ in &clients {
            all_done.recv_timeout(Duration::from_secs(10)).unwrap();
        }
    }
}
