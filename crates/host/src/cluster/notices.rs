//! Notifications between hosts (`docs/WAIT.md`): who notifies tells the object's home, which tells all others that have the object
//! open. What is sent to whom, and when, `commonhold-watches` decides. Wherever a message may be lost, because a host is or a
//! home begins anew, all watches of the object are woken.

use super::sizes::is_for_now;
use super::wire::{Answer, Call, Message};
use super::{Cluster, PATIENCE, lock};
use crate::shared::Driver;
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_watches::{self as watches, Action, Event, Range, Relay};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two attempts to tell a home that is not found yet.
const AGAIN: Duration = Duration::from_millis(5);

/// Of objects of this home, what is on its way.
pub(super) type Notices = Mutex<HashMap<u128, Relay>>;

impl Cluster {
    /// A process here notifies: its home knows it when this returns.
    pub fn notify(self: &Arc<Self>, object: u128, range: Range) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let home =
                |driver: Arc<Driver>| if driver.is_home() { Some(self.me.host) } else { driver.home() };
            let told = match self.driver(object).and_then(home) {
                Some(home) => self.ask(home, Call::Notify { object, range }, PATIENCE).map(drop),
                None => Err(Error::new(
                    ErrorKind::Disconnected,
                    "the object's home is away, and other hosts cannot be notified: try again later",
                )),
            };
            match told {
                Err(error)
                    if Instant::now() < until
                        && (is_for_now(&error) || error.kind == ErrorKind::NotFound) =>
                {
                    std::thread::sleep(AGAIN);
                }
                other => return other,
            }
        }
    }

    /// At the home: a process of that host notifies, or of this one.
    pub(super) fn notified(&self, from: HostId, object: u128, range: Range) -> Result<Answer> {
        self.check_may_change(from)?;
        self.check_admitted(object, from, true)?;
        self.record_of(object)?;
        if self.lease.is_fenced() {
            return Err(Error::new(ErrorKind::Disconnected, "this host is no home any more"));
        }
        self.wake(object, |other| range.overlaps(other));
        let hosts = {
            let admitted = self.admitted.read().unwrap_or_else(PoisonError::into_inner);
            let uses = admitted.iter().filter(|((used, _), admission)| *used == object && !admission.rests());
            uses.map(|((_, host), _)| *host).filter(|host| ![from, self.me.host].contains(host)).collect()
        };
        let ranges = [range].into_iter().collect();
        self.relay(object, Event::Notified { ranges, hosts });
        Ok(Answer::Done)
    }

    /// A host said something about an object's watches. A home hears in any case that it was heard: else it would wait.
    pub(super) fn watches_said(&self, from: HostId, object: u128, message: watches::Message) -> Result<()> {
        self.check_not_lost(from)?;
        match message {
            watches::Message::Changed { number, ranges } => {
                // Who has not found the home yet wakes all when it has. (A home's own lock is not waited for here.)
                let says = |driver: Arc<Driver>| !driver.is_home() && driver.home() == Some(from);
                if self.driver(object).is_some_and(says) {
                    self.wake(object, |range| ranges.overlap(range));
                }
                let message = watches::Message::Heard { number };
                self.carry(from, Message::Watches { object, message }, &mut Vec::new());
            }
            watches::Message::Heard { number } => self.relay(object, Event::Heard(from, number)),
        }
        Ok(())
    }

    /// At the home: a host begins to speak with it about the object, maybe again.
    pub(super) fn begins_to_hear(&self, object: u128, host: HostId) {
        self.relay(object, Event::Begins(host));
    }

    /// A host is lost, and with it maybe what it had to say, or what was said to it to be passed on.
    pub(super) fn hears_no_more(&self, host: HostId) {
        let under_way: Vec<u128> = lock(&self.notices).keys().copied().collect();
        under_way.into_iter().for_each(|object| self.relay(object, Event::Ends(host)));
        self.drivers().iter().for_each(|driver| self.wake(driver.plan().object, |_| true));
    }

    fn wake(&self, object: u128, touches: impl Fn(Range) -> bool) {
        if let Ok(host) = self.host() {
            host.machine.watches.wake(object, touches);
        }
    }

    fn relay(&self, object: u128, event: Event) {
        let mut actions = Vec::new();
        let mut notices = lock(&self.notices);
        let relay = notices.entry(object).or_default();
        relay.handle(event, &mut actions);
        if relay.is_idle() {
            notices.remove(&object);
        }
        drop(notices);
        for Action::Send(to, message) in actions {
            self.carry(to, Message::Watches { object, message }, &mut Vec::new());
        }
    }
}
