//! Messages about shared objects. Hosts that forward requests speak with each other without having met: the first message
//! makes the connection, and what comes after it waits its turn.

use super::losses::APART;
use super::wire::Message;
use super::{Cluster, lock};
use crate::shared::{About, Carrier, Said};
use commonhold_coherence::{HostId, Kind};
use commonhold_object::{Error, ErrorKind, PageRange, SessionId};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Between two attempts to reach a host that was never spoken with.
const PAUSE: Duration = Duration::from_millis(200);

/// More bytes of pages do not wait for one host, as in a session (`commonhold_peers`); nor do more messages.
const MOST_BYTES: usize = 64 << 20;
const MOST_MESSAGES: usize = 1 << 20;

/// For each host that is being connected, what is to be sent to it.
pub(super) type Waiting = Mutex<HashMap<HostId, Queue>>;

/// What is to be sent to one host, in order.
#[derive(Default)]
pub(super) struct Queue {
    messages: VecDeque<(Message, Vec<u8>)>,
    bytes: usize,
    /// More came than may wait: nothing is sent, because something would be missing.
    is_lost: bool,
}

impl Queue {
    /// It comes last, and takes the pages. False from the first message on for which there is no room.
    fn push(&mut self, message: Message, pages: &mut Vec<u8>) -> bool {
        self.is_lost |= self.bytes + pages.len() > MOST_BYTES || self.messages.len() >= MOST_MESSAGES;
        if self.is_lost {
            (self.messages, self.bytes) = (VecDeque::new(), 0);
            pages.clear();
            return false;
        }
        self.bytes += pages.len();
        self.messages.push_back((message, std::mem::take(pages)));
        true
    }

    fn pop(&mut self) -> Option<(Message, Vec<u8>)> {
        let next = self.messages.pop_front()?;
        self.bytes -= next.1.len();
        Some(next)
    }

    /// Nothing about the object is sent.
    fn forget(&mut self, object: u128) {
        self.messages.retain(
            |(message, _)| !matches!(message, Message::Coherence { object: about, .. } if *about == object),
        );
        self.bytes = self.messages.iter().map(|(_, pages)| pages.len()).sum();
    }
}

impl Carrier for Cluster {
    fn send(&self, to: HostId, about: About, messages: Vec<Said>, pages: &mut Vec<u8>) {
        let About { object, home } = about;
        if messages.iter().any(|message| message.kind() == Kind::Request) {
            self.idle_poll.expect();
        }
        self.carry(to, Message::Coherence { object, home, messages }, pages);
    }

    fn machine_of(&self, host: HostId) -> Option<commonhold_tags::Machine> {
        self.machine_type(host)
    }

    fn begin_again(&self, object: u128) {
        if let Ok(host) = self.host()
            && let Some(this) = host.cluster.get().cloned()
        {
            // The caller has the scheduler's lock.
            self.pools.short.run(move || this.give_up_unasked(object));
        }
    }

    fn unlocked(&self, object: u128, session: SessionId, pages: PageRange) {
        self.say_unlocked(object, session, pages);
    }

    fn ask_what_has_come(&self) {
        if let Ok(host) = self.host()
            && let Some(this) = host.cluster.get().cloned()
        {
            this.look_what_has_come();
        }
    }

    fn is_away(&self, host: HostId) -> bool {
        self.is_unreachable(host)
    }
}

impl Cluster {
    /// Of one object one thread sends at a time, so its messages stay in order without the lock of what waits.
    pub(super) fn carry(&self, to: HostId, message: Message, pages: &mut Vec<u8>) {
        if let Some(queue) = lock(&self.waiting).get_mut(&to) {
            queue.push(message, pages);
            return;
        }
        let Err(error) = Cluster::send(self, to, &message, pages) else { return };
        if error.kind == ErrorKind::Disconnected
            && let Ok(host) = self.host()
            && let Some(this) = host.cluster.get().cloned()
        {
            let mut waiting = lock(&self.waiting);
            if let Some(queue) = waiting.get_mut(&to) {
                queue.push(message, pages); // another object's was first
                return;
            }
            waiting.entry(to).or_default().push(message, pages);
            drop(waiting);
            self.pools.connecting.run(move || this.connect_and_send(to));
            return;
        }
        self.report(format_args!("to {}: {error}", self.called(to)));
    }

    /// What was to be sent to that host about the object is of a time before one of the two gave everything up.
    pub(super) fn do_not_send(&self, to: HostId, object: u128) {
        if let Some(queue) = lock(&self.waiting).get_mut(&to) {
            queue.forget(object);
        }
    }

    /// The other host is there, but not all that it was to be sent: both begin with another session.
    fn too_much_waited(self: &Arc<Self>, to: HostId) -> Error {
        let why =
            format!("more than {} MiB waited for it while it was away: they are given up", MOST_BYTES >> 20);
        if let Ok(transport) = self.transport() {
            transport.disconnect(to, &why);
        }
        self.messages_are_lost(to);
        Error::new(ErrorKind::Disconnected, why)
    }

    fn connect_and_send(self: &Arc<Self>, to: HostId) {
        let began = Instant::now();
        let mut outcome = self.reach(to);
        // Another host may have told of one that has just joined before the registry did.
        while outcome.is_err()
            && began.elapsed() < APART
            && self.check_not_lost(to).is_ok()
            && !self.lease.is_fenced()
        {
            std::thread::sleep(PAUSE);
            outcome = self.reach(to);
        }
        if outcome.is_err() && self.member(to).is_some() {
            self.messages_are_lost(to);
        }
        loop {
            let mut waiting = lock(&self.waiting);
            // Of whoever is lost that is said apart.
            let next = waiting.get_mut(&to).filter(|_| outcome.is_ok()).and_then(Queue::pop);
            let Some((message, mut pages)) = next else {
                let lost = waiting.remove(&to).is_some_and(|queue| queue.is_lost);
                drop(waiting);
                if lost && outcome.is_ok() {
                    outcome = Err(self.too_much_waited(to));
                }
                break;
            };
            // Under the lock, so that what is dropped below was not sent: sending does not wait.
            outcome = Cluster::send(self, to, &message, &mut pages);
        }
        if let Err(error) = outcome {
            self.report(format_args!("to {}: {error}", self.called(to)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonhold_coherence::central;

    fn about(object: u128) -> Message {
        let messages = vec![Said::Central(central::Message::Done { page: 0 })];
        Message::Coherence { object, home: None, messages }
    }

    #[test]
    fn what_waits_for_one_host_is_bounded_and_all_or_nothing() {
        let mut queue = Queue::default();
        let half = || vec![0; MOST_BYTES / 2];
        assert!(queue.push(about(1), &mut half()) && queue.push(about(2), &mut half()));
        assert!(queue.push(about(1), &mut Vec::new()), "that takes no room");
        queue.forget(1);
        assert_eq!((queue.messages.len(), queue.bytes), (1, MOST_BYTES / 2));
        assert!(queue.push(about(3), &mut half()));
        let next = queue.pop();
        assert!(matches!(next, Some((Message::Coherence { object: 2, .. }, pages)) if pages == half()));
        assert!(queue.push(about(4), &mut half()) && !queue.push(about(5), &mut vec![0]));
        assert!(queue.is_lost && queue.pop().is_none(), "nothing is sent without what was before it");
        assert!(!queue.push(about(6), &mut Vec::new()));
    }
}
