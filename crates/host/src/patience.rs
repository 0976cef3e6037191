//! Calls about objects that hosts share, which a client can make wait: the kernel lets nobody write
//! to an object's memory, cut it off, punch holes in it or look for them while somebody does so by
//! write(2), and that waits for the page that is written from. Who owns that page can keep it away
//! for ever, and no signal ends the wait of the others.
//!
//! So another thread makes such a call, and if that stands still the call has failed for whoever
//! wanted it. It may be carried out late: then it does what any writer of the memory could have
//! done. Until it has come back, nothing of that memory is tried again; and the owner of an object
//! with which that happened is waited for less for a while.

use commonhold_points as points;
use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long anybody waits for what a client can make wait.
pub const PATIENCE: Duration = Duration::from_millis(500);
/// The same where a client of that user made it take longer.
pub const LITTLE: Duration = Duration::from_millis(2);
/// For how long that.
const SUSPECT_FOR: Duration = Duration::from_secs(60);
/// Calls about objects of one user that may be under way at once, those that do not come back among them: each has a thread,
/// and may have what others need as well (`refuge`).
const AT_ONCE: usize = 4;
/// Between two looks at the thread; and how often it must stand still.
const LOOK: Duration = Duration::from_millis(1);
const LOOKS: u32 = 3;

type Job = Box<dyn FnOnce() + Send>;

/// Who makes calls wait.
#[derive(Debug, Default)]
pub struct Patience {
    state: Mutex<State>,
    /// A call came back.
    came_back: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Memory of which a call has not come back.
    stuck: HashSet<usize>,
    /// Users with whose objects that happened, and when.
    suspects: HashMap<u32, Instant>,
    /// How many calls are under way, by user.
    under_way: HashMap<u32, usize>,
}

/// As long as this is there, a call is under way.
struct UnderWay(Arc<Patience>, u32);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if let Entry::Occupied(mut calls) = state.under_way.entry(self.1) {
            *calls.get_mut() -= 1;
            if *calls.get() == 0 {
                calls.remove();
            }
        }
        drop(state);
        self.0.came_back.notify_all();
    }
}

/// The thread that makes such calls for another.
struct Caller {
    number: u32,
    jobs: Sender<Job>,
}

thread_local! {
    static CALLER: RefCell<Option<Caller>> = const { RefCell::new(None) };
}

impl Caller {
    fn start() -> io::Result<Caller> {
        let (jobs, to_do) = channel::<Job>();
        let (tell, told) = channel();
        let work = move || {
            let is_told = tell.send(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()).is_ok();
            // It ends with whoever it calls for, or when that one gave it up.
            to_do.iter().take_while(|_| is_told).for_each(|job| job());
        };
        points::thread(|| {
            std::thread::Builder::new().name("caller".into()).stack_size(256 << 10).spawn(work)
        })?;
        Ok(Caller { number: told.recv().map_err(io::Error::other)?, jobs })
    }

    /// Whether its thread waits for what no signal ends.
    fn stands_still(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", self.number));
        // The name is in brackets, and may hold anything.
        stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D')))
    }

    /// What comes of it; none if it does not come back.
    fn wait<T>(&self, came: &Receiver<T>, patience: Duration) -> Option<T> {
        let (mut wait, mut still) = (patience, 0);
        while still < LOOKS {
            match came.recv_timeout(wait) {
                Ok(result) => return Some(result),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            still = if self.stands_still() { still + 1 } else { 0 };
            wait = LOOK;
        }
        None
    }
}

impl Patience {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call on that memory, and says how long to wait for it. An error: one has not come back, or too many of that
    /// user have not.
    fn begin(self: &Arc<Self>, memory: usize, uid: u32) -> io::Result<(UnderWay, Duration)> {
        let mut state = self.lock();
        let is_suspect = state.suspects.get(&uid).is_some_and(|since| since.elapsed() < SUSPECT_FOR);
        let patience = if is_suspect { LITTLE } else { PATIENCE };
        let until = Instant::now() + patience;
        loop {
            if state.stuck.contains(&memory) {
                return Err(stuck());
            }
            let calls = state.under_way.entry(uid).or_default();
            if *calls < AT_ONCE {
                *calls += 1;
                drop(state);
                return Ok((UnderWay(self.clone(), uid), patience));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(stuck());
            }
            state = self.came_back.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Makes a call on the memory of an object of that user.
    pub fn call<T: Send + 'static>(
        self: &Arc<Self>,
        memory: &Arc<OwnedFd>,
        uid: u32,
        job: impl FnOnce(&OwnedFd) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (key, memory) = (Arc::as_ptr(memory).addr(), memory.clone());
        self.call_on(key, uid, move || job(&memory))
    }

    /// The same on what that number names: memory, or an address space of a client of that user, whose lock is held as easily.
    pub fn call_on<T: Send + 'static>(
        self: &Arc<Self>,
        key: usize,
        uid: u32,
        job: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (under_way, patience) = self.begin(key, uid)?;
        let caller = CALLER.take().map_or_else(Caller::start, Ok)?;
        let (tell, came) = channel();
        let this = self.clone();
        let job = move || {
            let result = job();
            let mut state = this.lock();
            if state.stuck.remove(&key) {
                state.suspects.insert(uid, Instant::now());
            }
            let _ = tell.send(result); // nobody may want to know any more
            drop(state);
            drop(under_way);
        };
        caller
            .jobs
            .send(Box::new(job))
            .map_err(|_| io::Error::other("the thread that makes calls is gone"))?;
        let result = caller.wait(&came, patience).or_else(|| {
            let mut state = self.lock();
            let late = came.try_recv().ok(); // none: the call is still under way
            if late.is_none() {
                state.stuck.insert(key);
                state.suspects.insert(uid, Instant::now());
            }
            late
        });
        match result {
            Some(result) => {
                CALLER.set(Some(caller));
                result
            }
            None => Err(stuck()),
        }
    }
}

fn stuck() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "somebody has been writing to the object's memory by write(2) all the time, or changing what they have mapped: end who \
         does, then try again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonhold_sys::frames;

    #[test]
    fn a_call_is_made_and_its_thread_made_use_of_again() {
        let patience = Arc::new(Patience::default());
        let memory = Arc::new(frames::create("patience", 8192).unwrap());
        for number in 0..3u8 {
            patience
                .call(&memory, 7, move |fd| rustix::io::pwrite(fd, &[number], 0).map_err(Into::into))
                .unwrap();
            let caller = CALLER.with_borrow(|caller| caller.as_ref().map(|caller| caller.number));
            assert!(
                caller.is_some_and(|caller| caller != rustix::thread::gettid().as_raw_nonzero().get() as u32)
            );
        }
        // Slow, but it does not stand still.
        let slow = patience.call(&memory, 7, |_| {
            std::thread::sleep(PATIENCE + 20 * LOOK);
            Ok(5)
        });
        assert_eq!(slow.unwrap(), 5);
        assert!(patience.lock().stuck.is_empty() && patience.lock().suspects.is_empty());
    }

    #[test]
    fn one_user_has_few_calls_under_way() {
        let patience = Arc::new(Patience::default());
        let memories: Vec<_> =
            (0..AT_ONCE).map(|_| Arc::new(frames::create("patience", 4096).unwrap())).collect();
        let end = Arc::new(std::sync::Barrier::new(AT_ONCE + 1));
        let begun: Vec<_> = memories
            .iter()
            .map(|memory| {
                let (patience, memory, end) = (patience.clone(), memory.clone(), end.clone());
                std::thread::spawn(move || {
                    patience.call(&memory, 7, move |_| {
                        end.wait();
                        Ok(())
                    })
                })
            })
            .collect();
        while patience.lock().under_way.get(&7) != Some(&AT_ONCE) {
            std::thread::sleep(LOOK);
        }
        let other = Arc::new(frames::create("patience", 4096).unwrap());
        let why = patience.call(&other, 7, |_| Ok(())).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::TimedOut);
        patience.call(&other, 8, |_| Ok(())).unwrap();
        end.wait();
        begun.into_iter().for_each(|begun| begun.join().unwrap().unwrap());
        patience.call(&other, 7, |_| Ok(())).unwrap();
        while !patience.lock().under_way.is_empty() {
            std::thread::sleep(LOOK);
        }
    }
}
