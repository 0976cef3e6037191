//! Messages about shared objects. Hosts that forward requests speak with each other without having met: the first message
//! makes the connection, and what comes after it waits its turn.

use super::losses::APART;
use super::wire::Message;
use super::{Cluster, lock};
use crate::shared::{Carrier, Said};
use commonhold_coherence::{HostId, Kind};
use commonhold_object::{ErrorKind, PageRange, SessionId};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Between two attempts to reach a host that was never spoken with.
const PAUSE: Duration = Duration::from_millis(200);

/// For each host that is being connected, what is to be sent to it, in order.
pub(super) type Waiting = Mutex<HashMap<HostId, VecDeque<(Message, Vec<u8>)>>>;

impl Carrier for Cluster {
    fn send(&self, to: HostId, object: u128, message: &Said, pages: &mut Vec<u8>) {
        if message.kind() == Kind::Request {
            self.idle_poll.expect();
        }
        let message = Message::Coherence { object, message: message.clone() };
        // Of one object one thread sends at a time, so its messages stay in order without the lock.
        if let Some(queue) = lock(&self.waiting).get_mut(&to) {
            queue.push_back((message, std::mem::take(pages)));
            return;
        }
        let Err(error) = Cluster::send(self, to, &message, pages) else { return };
        if error.kind == ErrorKind::Disconnected
            && let Ok(host) = self.host()
            && let Some(this) = host.cluster.get().cloned()
        {
            let mut waiting = lock(&self.waiting);
            if let Some(queue) = waiting.get_mut(&to) {
                queue.push_back((message, std::mem::take(pages))); // another object's was first
                return;
            }
            waiting.insert(to, VecDeque::from([(message, std::mem::take(pages))]));
            drop(waiting);
            self.pools.short.run(move || this.connect_and_send(to));
            return;
        }
        self.report(format_args!("to {}: {error}", self.called(to)));
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

    fn on_the_way(&self, host: HostId) -> usize {
        self.transport().map_or(0, |transport| transport.on_the_way(host))
    }

    fn is_away(&self, host: HostId) -> bool {
        self.is_unreachable(host)
    }
}

impl Cluster {
    /// What was to be sent to that host about the object is of a time before one of the two gave everything up.
    pub(super) fn do_not_send(&self, to: HostId, object: u128) {
        if let Some(queue) = lock(&self.waiting).get_mut(&to) {
            queue.retain(|(message, _)| {
                !matches!(message, Message::Coherence { object: about, .. } if *about == object)
            });
        }
    }

    fn connect_and_send(self: &Arc<Self>, to: HostId) {
        let began = Instant::now();
        let mut outcome = self.reach(to);
        while outcome.is_err()
            && began.elapsed() < APART
            && self.member(to).is_some()
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
            let next = waiting.get_mut(&to).filter(|_| outcome.is_ok()).and_then(VecDeque::pop_front);
            let Some((message, mut pages)) = next else {
                waiting.remove(&to);
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
