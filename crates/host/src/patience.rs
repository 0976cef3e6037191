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
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long anybody waits for what a client can make wait.
pub const PATIENCE: Duration = Duration::from_millis(500);
/// The same where a client of that user made it take longer.
pub const LITTLE: Duration = Duration::from_millis(2);
/// For how long that.
const SUSPECT_FOR: Duration = Duration::from_secs(60);
/// Between two looks at the thread; and how often it must stand still.
const LOOK: Duration = Duration::from_millis(1);
const LOOKS: u32 = 3;

type Job = Box<dyn FnOnce() + Send>;

/// Who makes calls wait.
#[derive(Debug, Default)]
pub struct Patience(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Memory of which a call has not come back.
    stuck: HashSet<usize>,
    /// Users with whose objects that happened, and when.
    suspects: HashMap<u32, Instant>,
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long to wait for a call on that memory. An error: one has not come back.
    fn with(&self, memory: usize, uid: u32) -> io::Result<Duration> {
        let state = self.lock();
        if state.stuck.contains(&memory) {
            return Err(stuck());
        }
        let is_suspect = state.suspects.get(&uid).is_some_and(|since| since.elapsed() < SUSPECT_FOR);
        Ok(if is_suspect { LITTLE } else { PATIENCE })
    }

    /// Makes a call on the memory of an object of that user.
    pub fn call<T: Send + 'static>(
        self: &Arc<Self>,
        memory: &Arc<OwnedFd>,
        uid: u32,
        job: impl FnOnce(&OwnedFd) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let key = Arc::as_ptr(memory).addr();
        let patience = self.with(key, uid)?;
        let caller = CALLER.take().map_or_else(Caller::start, Ok)?;
        let (tell, came) = channel();
        let (this, memory) = (self.clone(), memory.clone());
        let job = move || {
            let result = job(&memory);
            let mut state = this.lock();
            if state.stuck.remove(&key) {
                state.suspects.insert(uid, Instant::now());
            }
            let _ = tell.send(result); // nobody may want to know any more
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
        "somebody has been writing to the object's memory by write(2) all the time: end who does, then try again",
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
}
