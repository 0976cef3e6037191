//! Lanes: what each user asked, and the threads that work on it. One user's requests wait for each other, and for nobody else's:
//! what hangs for one, since a pager of his does not answer, is his.
//!
//! Names have a lane apart: while the kernel asks about a name it holds the lock of the directory, for which others wait. So
//! nothing slow is before them, and only so many wait. What ends something is never refused.

use crate::lock;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Threads of one user at most.
const THREADS: usize = 32;
/// Bytes of requests of one user that wait at most; what comes then is refused.
const WAITING_BYTES: usize = 64 << 20;
/// Threads of one user that stay although they have nothing to do.
const SPARE: usize = 2;
/// A thread that had nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(10);

/// Requests about names of one user that wait at most.
const WAITING_NAMES: usize = 256;

/// One request, as it came.
pub type Message = Vec<u8>;

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum About {
    /// Names in a directory.
    Names,
    /// What is in files, and the rest.
    Content,
    /// The end of something: a file that is closed.
    Ends,
}

/// Whose lane, and for what.
type Key = (u32, About);

#[derive(Default)]
struct Lane {
    waiting: VecDeque<Message>,
    bytes: usize,
    threads: usize,
    idle: usize,
}

/// All users' lanes.
pub struct Lanes {
    lanes: Mutex<HashMap<Key, Lane>>,
    more: Condvar,
    work: Box<dyn Fn(Message) + Send + Sync>,
}

impl Lanes {
    /// Lanes whose threads do `work`.
    pub fn new(work: impl Fn(Message) + Send + Sync + 'static) -> Arc<Lanes> {
        Arc::new(Lanes { lanes: Mutex::default(), more: Condvar::new(), work: Box::new(work) })
    }

    /// Has a user's request worked on. Gives it back if too much of his waits.
    pub fn put(self: &Arc<Self>, uid: u32, about: About, message: Message) -> Result<(), Message> {
        let mut lanes = self.lock();
        let lane = lanes.entry((uid, about)).or_default();
        let is_full = match about {
            About::Names => lane.waiting.len() >= WAITING_NAMES,
            About::Content => lane.bytes + message.len() > WAITING_BYTES,
            About::Ends => false,
        };
        if is_full {
            return Err(message);
        }
        lane.bytes += message.len();
        lane.waiting.push_back(message);
        if lane.idle >= lane.waiting.len() {
            drop(lanes);
            self.more.notify_all();
            return Ok(());
        }
        if lane.threads < THREADS {
            lane.threads += 1;
            drop(lanes);
            let this = self.clone();
            let begun =
                std::thread::Builder::new().name(format!("user-{uid}")).spawn(move || this.run((uid, about)));
            if begun.is_err() {
                return self.no_thread((uid, about));
            }
        }
        Ok(())
    }

    /// There is none more to be had: the others of that user do it, if he has any.
    fn no_thread(&self, key: Key) -> Result<(), Message> {
        let mut lanes = self.lock();
        let Some(lane) = lanes.get_mut(&key) else { return Ok(()) };
        lane.threads -= 1;
        if lane.threads > 0 {
            return Ok(());
        }
        let message = lane.waiting.pop_back();
        lane.bytes -= message.as_ref().map_or(0, Vec::len);
        message.map_or(Ok(()), Err)
    }

    fn run(&self, key: Key) {
        while let Some(message) = self.next(key) {
            (self.work)(message);
        }
    }

    fn next(&self, key: Key) -> Option<Message> {
        let mut lanes = self.lock();
        let mut was_idle = false;
        loop {
            let lane = lanes.get_mut(&key)?;
            if let Some(message) = lane.waiting.pop_front() {
                lane.bytes -= message.len();
                return Some(message);
            }
            if was_idle || lane.idle >= SPARE {
                lane.threads -= 1;
                if lane.threads == 0 {
                    lanes.remove(&key);
                }
                return None;
            }
            lane.idle += 1;
            let (after, timeout) = self
                .more
                .wait_timeout_while(lanes, IDLE, |lanes| {
                    lanes.get(&key).is_some_and(|lane| lane.waiting.is_empty())
                })
                .unwrap_or_else(PoisonError::into_inner);
            lanes = after;
            was_idle = timeout.timed_out();
            lanes.get_mut(&key)?.idle -= 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Lane>> {
        lock(&self.lanes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn nobody_waits_for_another_user() {
        let (tell, told) = channel();
        let (let_go, goes) = channel::<()>();
        let goes = Mutex::new(goes);
        let lanes = Lanes::new(move |message: Message| {
            if message[0] == 1 {
                let _ = goes.lock().unwrap().recv(); // an error: all are let go
            }
            tell.send(message[0]).unwrap();
        });
        for _ in 0..THREADS + 5 {
            lanes.put(1, About::Content, vec![1]).unwrap();
        }
        lanes.put(2, About::Content, vec![2]).unwrap();
        assert_eq!(told.recv().unwrap(), 2);
        drop(let_go);
        assert!((0..THREADS + 5).all(|_| told.recv().unwrap() == 1));
    }

    #[test]
    fn what_waits_has_a_limit() {
        let (let_go, goes) = channel::<()>();
        let goes = Mutex::new(goes);
        let lanes = Lanes::new(move |_| {
            let _ = goes.lock().unwrap().recv(); // an error: all are let go
        });
        let large = || vec![0; WAITING_BYTES / 4];
        for _ in 0..THREADS {
            lanes.put(1, About::Content, vec![1]).unwrap();
        }
        let refused = (0..40).filter(|_| lanes.put(1, About::Content, large()).is_err()).count();
        assert!(refused >= 36 - THREADS, "{refused}");
        lanes.put(2, About::Content, large()).unwrap();
        lanes.put(1, About::Ends, large()).unwrap();
        drop(let_go);
    }
}
