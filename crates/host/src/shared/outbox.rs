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
    /// Somebody is sending, to that host, and will look again.
    sending: Option<HostId>,
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
    pub fn send_all(&self, send: impl Fn(HostId, &Said, &mut Vec<u8>)) {
        let mut out = self.lock();
        if out.sending.is_some() {
            return;
        }
        while let Some((to, message, mut bytes)) = out.queue.pop_front() {
            out.sending = Some(to);
            drop(out);
            send(to, &message, &mut bytes);
            out = self.lock();
        }
        out.sending = None;
    }

    /// Waits until all that was to be said has been given to its connection.
    pub fn wait_sent(&self) {
        loop {
            let out = self.lock();
            if out.queue.is_empty() && out.sending.is_none() {
                return;
            }
            drop(out);
            std::thread::yield_now(); // whoever sends does not wait for its peer
        }
    }

    /// That host begins anew with the object: nothing that was meant for it is said after this returns.
    pub fn forget(&self, to: HostId) {
        loop {
            let mut out = self.lock();
            out.queue.retain(|(whose, ..)| *whose != to);
            if out.sending != Some(to) {
                return;
            }
            drop(out);
            std::thread::yield_now();
        }
    }

    /// This host begins anew with the object: nothing of what it meant to say is said after this returns.
    pub fn clear(&self) {
        loop {
            let mut out = self.lock();
            out.queue.clear();
            if out.sending.is_none() {
                return;
            }
            drop(out);
            std::thread::yield_now(); // a message is being given to its connection, which takes no long time
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonhold_coherence::{Access, Span, central};
    use std::sync::mpsc::channel;

    fn grant(page: u32) -> Said {
        let span = Span::one(page);
        Said::Central(central::Message::Grant { span, access: Access::Write, with_data: false })
    }

    #[test]
    fn to_who_begins_anew_nothing_is_sent_any_more() {
        let outbox = Outbox::default();
        for (to, page) in [(1, 0), (1, 1), (2, 2), (1, 3)] {
            outbox.push(HostId(to), grant(page), Vec::new());
        }
        let (begins, begun) = channel();
        let (ends, end) = channel::<()>();
        let sent = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let (outbox, sent) = (&outbox, &sent);
            scope.spawn(move || {
                outbox.send_all(|to, message, _| {
                    if message == &grant(0) {
                        begins.send(()).unwrap();
                        end.recv().unwrap(); // the connection has it only now
                    }
                    sent.lock().unwrap().push((to.0, message.pages()[0]));
                });
            });
            begun.recv().unwrap();
            let forgetting = scope.spawn(|| {
                outbox.forget(HostId(1));
                sent.lock().unwrap().iter().filter(|(to, _)| *to == 1).count()
            });
            // What is being sent is waited for, with as much of what follows as had been begun by then.
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!forgetting.is_finished());
            ends.send(()).unwrap();
            let before = forgetting.join().unwrap();
            outbox.wait_sent();
            let sent = sent.lock().unwrap();
            assert_eq!(sent.iter().filter(|(to, _)| *to == 1).count(), before, "{sent:?}");
            assert!(sent.contains(&(1, 0)) && sent.contains(&(2, 2)), "{sent:?}");
        });
    }
}
