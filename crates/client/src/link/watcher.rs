//! The thread that listens while all others may be asleep in a fault.
//!
//! Only processes with controlled mappings have it. It notices that a new host took over, that a range is to
//! be healed, and that host and keeper are gone: then it returns to the next host with all the process has.

use super::{Shared, lock};
use commonhold_sys::process::readable_within;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// After a message that another thread took: so long it leaves reading to those who wait for answers.
const BACK_OFF_MS: u64 = 20;
/// Between two attempts to find a host.
const RETRY: Duration = Duration::from_millis(250);
const STACK_BYTES: usize = 256 * 1024;

/// Makes the watcher of this eventfd look up.
pub(super) fn wake(wake: &OwnedFd) {
    let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
}

impl Shared {
    /// Starts the watcher unless it is there.
    pub(crate) fn ensure_watcher(&'static self) -> std::io::Result<()> {
        let mut state = lock(&self.state);
        if state.watcher.is_some() {
            return Ok(());
        }
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let own = wake.clone();
        let blocked = BlockedSignals::all();
        let thread = std::thread::Builder::new().name("commonhold".into()).stack_size(STACK_BYTES);
        let result = thread.spawn(move || self.watch(&own));
        drop(blocked);
        result?;
        state.watcher = Some(wake);
        Ok(())
    }

    fn watch(&'static self, wake: &Arc<OwnedFd>) {
        loop {
            let state = lock(&self.state);
            // The starter may not have put the eventfd there yet: then the lock was just released, and it has.
            if !state.watcher.as_ref().is_some_and(|current| Arc::ptr_eq(current, wake)) {
                return;
            }
            let (socket, busy) = (state.socket.clone(), state.recovering);
            drop(state);
            let Some(socket) = socket else {
                if busy || !self.return_once() {
                    std::thread::sleep(RETRY);
                }
                continue;
            };
            if wait_for_either(&socket, wake) && !self.read_if_free() {
                let _ = readable_within(&**wake, BACK_OFF_MS);
            }
        }
    }

    /// Tries once to find a host; gives whether there is a connection now.
    fn return_once(&'static self) -> bool {
        let mut state = lock(&self.state);
        if state.socket.is_some() || state.recovering {
            return true;
        }
        state.recovering = true;
        drop(state);
        self.recover_once().is_ok()
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
