//! The thread that listens while all others may be asleep in a fault.
//!
//! Only processes with controlled mappings have it. It notices that a new host took over, that a range is to
//! be healed, and that host and keeper are gone: then it returns to the next host with all the process has.

use super::failed::Failed;
use super::recovery::HOST_DEADLINE;
use super::{Shared, State, lock};
use crate::{addresses, complain, own};
use commonhold_points as points;
use commonhold_sys::process::readable_within;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// After a message that another thread took: so long it leaves reading to those who wait for answers.
const BACK_OFF_MS: u64 = 20;
/// Between two attempts to find a host, where one is on its way.
const RETRY_MS: u64 = 250;
/// Between two attempts where somebody must do something first.
const RETRY_SELDOM_MS: u64 = 1000;
const STACK_BYTES: usize = 256 * 1024;

/// Makes the watcher of this eventfd look up.
pub(super) fn wake(wake: &OwnedFd) {
    let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
}

impl State {
    /// The host knows of no object of this process that it may move. The watcher says it, who may wait for answers.
    pub(super) fn is_to_say_what_may_move(&mut self) {
        self.says_what_may_move = true;
        self.watcher.iter().for_each(|watcher| wake(watcher));
    }
}

impl Shared {
    /// Makes the watcher look up.
    pub(crate) fn wake_watcher(&self) {
        let watcher = lock(&self.state).watcher.clone();
        watcher.iter().for_each(|watcher| wake(watcher));
    }

    /// Starts the watcher unless it is there.
    pub(crate) fn ensure_watcher(&'static self) -> std::io::Result<()> {
        let mut state = lock(&self.state);
        if state.watcher.is_some() {
            return Ok(());
        }
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        own::note(&*wake);
        let own = wake.clone();
        let blocked = BlockedSignals::all();
        let thread = std::thread::Builder::new().name("commonhold".into()).stack_size(STACK_BYTES);
        let result = points::thread(|| thread.spawn(move || self.watch(&own)));
        drop(blocked);
        result?;
        state.watcher = Some(wake);
        Ok(())
    }

    fn watch(&'static self, wake: &Arc<OwnedFd>) {
        let mut trouble = Trouble::default();
        loop {
            // Whoever wakes this thread has changed something before.
            let _ = rustix::io::read(&**wake, &mut [0u8; 8]);
            let mut state = lock(&self.state);
            // The starter may not have put the eventfd there yet: then the lock was just released, and it has.
            if !state.watcher.as_ref().is_some_and(|current| Arc::ptr_eq(current, wake)) {
                return;
            }
            let (socket, busy) = (state.socket.clone(), state.recovering);
            let says = std::mem::take(&mut state.says_what_may_move);
            drop(state);
            if says {
                self.say_what_may_move();
            }
            self.answer_revokes();
            let Some(socket) = socket else {
                let pause = if busy { RETRY_MS } else { self.return_once(&mut trouble) };
                let _ = readable_within(&**wake, pause);
                continue;
            };
            trouble.is_over(&self.directory);
            if wait_for_either(&socket, wake) && !self.read_if_free() {
                let _ = readable_within(&**wake, BACK_OFF_MS);
            }
        }
    }

    /// Tries once to find a host; gives how long to wait until the next attempt.
    fn return_once(&'static self, trouble: &mut Trouble) -> u64 {
        let mut state = lock(&self.state);
        if state.socket.is_some() || state.recovering {
            return 0;
        }
        state.recovering = true;
        drop(state);
        let Err(failed) = self.recover_once() else { return 0 };
        // Without controlled mappings nobody sleeps in a fault, and whoever calls is told by the call.
        if !addresses::controlled_pieces(self).is_empty() {
            trouble.complain_of(&failed);
        }
        if failed.for_good { RETRY_SELDOM_MS } else { RETRY_MS }
    }
}

/// What was said of a host that is not there, while threads may sleep in faults that it should serve.
#[derive(Default)]
struct Trouble {
    since: Option<Instant>,
    said: Option<String>,
}

impl Trouble {
    /// Says it once; of a host that may be on its way, after a while.
    fn complain_of(&mut self, failed: &Failed) {
        let since = *self.since.get_or_insert_with(Instant::now);
        let message = &failed.error.message;
        let due = failed.for_good || since.elapsed() > HOST_DEADLINE;
        if due && self.said.as_ref() != Some(message) {
            complain(&format!(
                "{message}; until a host takes this process back, its threads wait where they touch pages of \
                 controlled objects that are not in memory"
            ));
            self.said = Some(message.clone());
        }
    }

    /// There is a host again.
    fn is_over(&mut self, directory: &Path) {
        if self.said.take().is_some() {
            complain(&format!("a host in {} has taken this process back", directory.display()));
        }
        self.since = None;
    }
}

/// Waits until the socket is readable, or somebody wakes the watcher. Gives whether the socket is.
fn wait_for_either(socket: &OwnedFd, wake: &OwnedFd) -> bool {
    let mut poll = [PollFd::new(socket, PollFlags::IN), PollFd::new(wake, PollFlags::IN)];
    if rustix::event::poll(&mut poll, None).is_err() {
        return false;
    }
    !poll[0].revents().is_empty()
}

/// All signals blocked in this thread, so that a thread it makes never runs the program's handlers.
struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    fn all() -> Self {
        // SAFETY: a sigset_t is plain data for which all zeroes are valid; the calls fill what they are given.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            BlockedSignals { before }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the mask is the one that was there before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}
