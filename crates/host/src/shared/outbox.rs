//! Messages on their way to other hosts: filled under the lock of the state, so in the scheduler's order, and sent without
//! it. Whoever brings the answer must not wait for who is still within the system call that sent the question.

use super::part::Said;
use commonhold_coherence::HostId;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(super) struct Outbox(Mutex<Out>);

#[derive(Default)]
struct Out {
    queue: VecDeque<(HostId, Said, Vec<u8>)>,
    /// Somebody is sending, and will look again.
    sending: bool,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Out> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be sent next.
    pub fn push(&self, to: HostId, message: Said, bytes: Vec<u8>) {
        self.lock().queue.push_back((to, message, bytes));
    }

    /// Sends what waits, unless somebody does.
    pub fn send_all(&self, send: impl Fn(HostId, &Said, &[u8])) {
        let mut out = self.lock();
        if out.sending {
            return;
        }
        while let Some((to, message, bytes)) = out.queue.pop_front() {
            out.sending = true;
            drop(out);
            send(to, &message, &bytes);
            out = self.lock();
        }
        out.sending = false;
    }

    /// This host begins anew with the object: nothing of what it meant to say is said after this returns.
    pub fn clear(&self) {
        loop {
            let mut out = self.lock();
            out.queue.clear();
            if !out.sending {
                return;
            }
            drop(out);
            std::thread::yield_now(); // a message is being given to its connection, which takes no long time
        }
    }
}
