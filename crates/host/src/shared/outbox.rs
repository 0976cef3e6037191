//! Messages on their way to other hosts: filled under the lock of the state, so in the scheduler's order, and sent without
//! it. Whoever brings the answer must not wait for who is still within the system call that sent the question. What waits for
//! one host, many pages and invalidations, goes as one message.

use super::part::{MOST_TOGETHER, Said};
use commonhold_coherence::HostId;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// More bytes of pages go together with nothing else.
pub(super) const MOST_BYTES: usize = 1 << 20;

#[derive(Default)]
pub(super) struct Outbox(Mutex<Out>);

/// Messages with the bytes of their pages, in order; some together, with the bytes of all of them.
type Queue = VecDeque<(Vec<Said>, Vec<u8>)>;

#[derive(Default)]
struct Out {
    /// For each host, what it is to be told; who has waited longest comes first.
    queues: VecDeque<(HostId, Queue)>,
    /// Somebody is sending, to that host, and will look again.
    sending: Option<HostId>,
}

impl Out {
    fn push(&mut self, to: HostId, messages: Vec<Said>, bytes: Vec<u8>) {
        match self.queues.iter_mut().find(|(whose, _)| *whose == to) {
            Some((_, queue)) => queue.push_back((messages, bytes)),
            None => self.queues.push_back((to, Queue::from([(messages, bytes)]))),
        }
    }

    /// What goes next: what that host is to be told first, and what may go along.
    fn next(&mut self) -> Option<(HostId, Vec<Said>, Vec<u8>)> {
        let (to, mut queue) = self.queues.pop_front()?;
        let (mut together, mut bytes) = queue.pop_front()?;
        let is_short = |messages: &[Said]| messages.iter().all(Said::is_short);
        let first_is_short = is_short(&together);
        while let Some((messages, more)) = queue.front()
            && first_is_short
            && is_short(messages)
            && together.len() + messages.len() <= MOST_TOGETHER
            && bytes.len() + more.len() <= MOST_BYTES
        {
            bytes.extend_from_slice(more);
            together.extend(queue.pop_front().into_iter().flat_map(|(messages, _)| messages));
        }
        if !queue.is_empty() {
            self.queues.push_back((to, queue));
        }
        Some((to, together, bytes))
    }
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Out> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be sent next, together: at most [`MOST_TOGETHER`].
    pub fn push(&self, to: HostId, messages: Vec<Said>, bytes: Vec<u8>) {
        self.lock().push(to, messages, bytes);
    }

    /// Sends what waits, unless somebody does: to each host in its order.
    pub fn send_all(&self, send: impl Fn(HostId, Vec<Said>, &mut Vec<u8>)) {
        let mut out = self.lock();
        if out.sending.is_some() {
            return;
        }
        while let Some((to, messages, mut bytes)) = out.next() {
            out.sending = Some(to);
            drop(out);
            send(to, messages, &mut bytes);
            out = self.lock();
        }
        out.sending = None;
    }

    /// Waits until all that was to be said has been given to its connection.
    pub fn wait_sent(&self) {
        loop {
            let out = self.lock();
            if out.queues.is_empty() && out.sending.is_none() {
                return;
            }
            drop(out);
            std::thread::yield_now(); // whoever sends does not wait for its peer
        }
    }

    /// The same of what was to be said to one host.
    pub fn wait_sent_to(&self, to: HostId) {
        loop {
            let out = self.lock();
            if out.sending != Some(to) && out.queues.iter().all(|(whose, _)| *whose != to) {
                return;
            }
            drop(out);
            std::thread::yield_now();
        }
    }

    /// That host begins anew with the object: nothing that was meant for it is said after this returns.
    pub fn forget(&self, to: HostId) {
        loop {
            let mut out = self.lock();
            out.queues.retain(|(whose, _)| *whose != to);
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
            out.queues.clear();
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
    use commonhold_coherence::{Access, Span, central, explicit};
    use std::sync::mpsc::channel;

    fn grant(page: u32) -> Said {
        let span = Span::one(page);
        Said::Central(central::Message::Grant { span, access: Access::Write, with_data: false })
    }

    #[test]
    fn to_who_begins_anew_nothing_is_sent_any_more() {
        let outbox = Outbox::default();
        for (to, page) in [(1, 0), (1, 1), (2, 2), (1, 3)] {
            outbox.push(HostId(to), vec![grant(page)], Vec::new());
        }
        let (begins, begun) = channel();
        let (ends, end) = channel::<()>();
        let sent = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let (outbox, sent) = (&outbox, &sent);
            scope.spawn(move || {
                outbox.send_all(|to, messages, _| {
                    if messages[0] == grant(0) {
                        begins.send(()).unwrap();
                        end.recv().unwrap(); // the connection has it only now
                    }
                    let pages = messages.iter().map(|message| (to.0, message.pages()[0]));
                    sent.lock().unwrap().extend(pages);
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

    #[test]
    fn what_waits_for_one_host_goes_as_one_message_in_its_order() {
        let outbox = Outbox::default();
        let page = |page: u32| {
            let message = central::Message::PageOut { page, answers: true, keeps: Access::None };
            (Said::Central(message), vec![page as u8; 4096])
        };
        for number in 0..4 {
            outbox.push(HostId(1), vec![grant(number)], Vec::new());
            let (message, bytes) = page(number);
            outbox.push(HostId(2), vec![message], bytes);
        }
        let sent = Mutex::new(Vec::new());
        let send_all = || {
            outbox.send_all(|to, messages, bytes| {
                let pages: Vec<u32> = messages.iter().map(|message| message.pages()[0]).collect();
                sent.lock().unwrap().push((to.0, pages, bytes.len()));
                let in_order = bytes.chunks(4096).enumerate().all(|(at, page)| page[0] == at as u8);
                assert!(in_order || bytes.len() >= MOST_BYTES);
            });
            std::mem::take(&mut *sent.lock().unwrap())
        };
        let all = vec![0, 1, 2, 3];
        assert_eq!(send_all(), [(1, all.clone(), 0), (2, all, 4 * 4096)]);
        // No more than a connection's message may have; and what is long goes alone, in its turn.
        let many = MOST_TOGETHER as u32 + 1;
        (0..many).for_each(|page| outbox.push(HostId(1), vec![grant(page)], Vec::new()));
        let long = Said::Explicit(explicit::Message::Changed { pages: vec![9] });
        outbox.push(HostId(1), vec![long], Vec::new());
        outbox.push(HostId(1), vec![grant(0)], Vec::new());
        let counts: Vec<usize> = send_all().iter().map(|(_, pages, _)| pages.len()).collect();
        assert_eq!(counts, [MOST_TOGETHER, 1, 1, 1]);
        (0..2).for_each(|_| outbox.push(HostId(2), vec![page(0).0], vec![0; MOST_BYTES]));
        assert_eq!(send_all().len(), 2);
        // What was said together stays together.
        outbox.push(HostId(1), (0..many - 2).map(grant).collect(), Vec::new());
        outbox.push(HostId(1), (0..2).map(grant).collect(), Vec::new());
        let counts: Vec<usize> = send_all().iter().map(|(_, pages, _)| pages.len()).collect();
        assert_eq!(counts, [MOST_TOGETHER - 1, 2]);
    }
}
