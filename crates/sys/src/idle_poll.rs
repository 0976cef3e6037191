//! Idle polling: a processor that has nothing to do does not halt while something is near that it has to do.
//!
//! What halts has to be woken: some microseconds on a machine, some tens in a virtual one, in the middle of every question to
//! another host. So while an answer is awaited a thread looks at the clock where the thread that will be woken ran last, and
//! stops when the answer is there, when it takes long, or when the clock jumps: then somebody else had the processor, who
//! needs it more. It has the policy SCHED_IDLE; but between sessions and control groups the kernel shares by group, and knows
//! nothing of that. Kernels have the same for virtual machines as a whole (haltpoll); this is for those who wait for pages.

use commonhold_points as points;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Pauses between two looks at the clock.
const AT_ONCE: u32 = 16;
/// Between two looks that are so far apart somebody else had the processor.
const OTHERS_NANOSECONDS: u64 = 20_000;

/// The thread, from the first time that something is near.
#[derive(Debug)]
pub struct IdlePoll {
    shared: Arc<Shared>,
    thread: OnceLock<Option<Thread>>,
    longest: Duration,
}

#[derive(Debug)]
struct Shared {
    began: Instant,
    /// Nanoseconds since then: so long nobody halts.
    until: AtomicU64,
    /// Where answers come.
    processor: AtomicUsize,
    sleeps: AtomicBool,
    ends: AtomicBool,
}

impl Shared {
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn is_near(&self) -> bool {
        self.now() < self.until.load(Ordering::SeqCst) && !self.ends.load(Ordering::Relaxed)
    }

    /// The thread.
    fn run(&self) {
        let mut at = usize::MAX;
        while !self.ends.load(Ordering::Relaxed) {
            let wanted = self.processor.load(Ordering::Relaxed);
            if self.is_near() && wanted != at {
                at = wanted;
                go_to(at);
            }
            let mut looked = self.now();
            while self.is_near() {
                (0..AT_ONCE).for_each(|_| std::hint::spin_loop());
                let now = self.now();
                if now - looked > OTHERS_NANOSECONDS {
                    self.until.store(0, Ordering::SeqCst);
                }
                looked = now;
            }
            self.sleeps.store(true, Ordering::SeqCst);
            if !self.is_near() && !self.ends.load(Ordering::SeqCst) {
                std::thread::park();
            }
            self.sleeps.store(false, Ordering::SeqCst);
        }
    }
}

/// Where it may not run it does not go.
fn go_to(processor: usize) {
    let mut set = rustix::thread::CpuSet::new();
    if processor < rustix::thread::CpuSet::MAX_CPU {
        set.set(processor);
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

/// This thread runs only where nobody else wants to.
fn ask_for_idle_time_only() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure is whole, and outlives the call.
    let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl IdlePoll {
    /// One that polls for so long after each time that something was near; never, if that is nothing.
    pub fn new(longest: Duration) -> IdlePoll {
        let shared = Shared {
            began: Instant::now(),
            until: AtomicU64::new(0),
            processor: AtomicUsize::new(usize::MAX), // wherever it is
            sleeps: AtomicBool::new(false),
            ends: AtomicBool::new(false),
        };
        IdlePoll { shared: Arc::new(shared), thread: OnceLock::new(), longest }
    }

    /// An answer is awaited from now on.
    pub fn expect(&self) {
        if self.longest.is_zero() {
            return;
        }
        let shared = &self.shared;
        shared.until.store(shared.now() + self.longest.as_nanos() as u64, Ordering::SeqCst);
        if let Some(thread) = self.thread.get_or_init(|| start(shared))
            && shared.sleeps.load(Ordering::SeqCst)
        {
            thread.unpark();
        }
    }

    /// Something was heard, by this thread.
    pub fn heard(&self) {
        if self.thread.get().is_some() {
            self.shared.until.store(0, Ordering::SeqCst);
            self.shared.processor.store(rustix::thread::sched_getcpu(), Ordering::Relaxed);
        }
    }
}

/// None if there is no such thread to be had: then processors halt as ever.
fn start(shared: &Arc<Shared>) -> Option<Thread> {
    let shared = shared.clone();
    let polling = move || {
        if ask_for_idle_time_only().is_ok() {
            shared.run();
        }
    };
    let started = points::thread(|| std::thread::Builder::new().name("idle-poll".into()).spawn(polling));
    started.ok().map(|handle| handle.thread().clone())
}

impl Drop for IdlePoll {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        if let Some(Some(thread)) = self.thread.get() {
            thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeps(poll: &IdlePoll) -> bool {
        poll.shared.sleeps.load(Ordering::SeqCst)
    }

    fn wait_until(what: impl Fn() -> bool) {
        while !what() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn it_runs_until_something_is_heard_and_no_longer() {
        let poll = IdlePoll::new(Duration::from_secs(3600));
        poll.heard();
        assert!(poll.thread.get().is_none(), "nothing was expected yet");
        poll.expect();
        // Whoever else is at work here ends it too.
        wait_until(|| !sleeps(&poll) || !poll.shared.is_near());
        poll.heard();
        wait_until(|| sleeps(&poll));
        let shared = poll.shared.clone();
        drop(poll);
        wait_until(|| Arc::strong_count(&shared) == 1);
    }

    #[test]
    fn it_ends_by_itself_and_who_was_told_not_to_starts_nothing() {
        let short = IdlePoll::new(Duration::from_micros(1));
        short.expect();
        wait_until(|| sleeps(&short));
        let never = IdlePoll::new(Duration::ZERO);
        never.expect();
        assert!(never.thread.get().is_none());
    }
}
