//! Homes say what they have dealt with of the pages that hosts send them: at a home that waits for replicas a page may lie in a
//! queue for long after it has arrived. Who sends pages asks when some are on their way, and sends no more than it can keep.

use super::losses::forwards;
use super::wire::{Answer, Call};
use super::{Cluster, PATIENCE, busy, lock, unexpected};
use crate::shared::Driver;
use commonhold_coherence::HostId;
use commonhold_object::{Error, ErrorKind, Result};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Between two questions to a home that is away, or while others have to answer.
const PAUSE: Duration = Duration::from_millis(5);

/// How long a host is waited for that may not have heard something yet.
const HEARD: Duration = Duration::from_secs(2);

/// Whom this host asks.
#[derive(Default)]
pub(super) struct Asking {
    homes: Mutex<HashSet<HostId>>,
    /// Somebody looks who is to be asked, and has not begun.
    looks: AtomicBool,
}

impl Cluster {
    /// Asks all homes to which anything is on its way, unless they are asked. Does not wait: the caller may read a connection,
    /// or have a scheduler's lock.
    pub(super) fn look_what_has_come(self: &Arc<Self>) {
        if self.asking_homes.looks.swap(true, Ordering::SeqCst) {
            return;
        }
        let this = self.clone();
        self.pools.connecting.run(move || {
            this.asking_homes.looks.store(false, Ordering::SeqCst);
            let homes: HashSet<HostId> = this.senders().iter().filter_map(|driver| driver.home()).collect();
            for home in homes {
                if lock(&this.asking_homes.homes).insert(home) {
                    let this = this.clone();
                    this.pools.connecting.clone().run(move || this.ask_what_has_come_to(home));
                }
            }
        });
    }

    /// Objects of which pages are on their way, or something is held back.
    fn senders(&self) -> Vec<Arc<Driver>> {
        let waiting = self.host().map(|host| host.machine.on_way.waiting()).unwrap_or_default();
        let sends = |driver: &Arc<Driver>| {
            !driver.is_home() && (waiting.contains(&driver.plan().object) || driver.holds_back())
        };
        self.drivers().into_iter().filter(sends).collect()
    }

    /// Until there is room, or nothing is on its way to that home.
    fn ask_what_has_come_to(self: &Arc<Self>, home: HostId) {
        loop {
            let asked = self.ask_once_what_has_come(home);
            self.drivers().iter().filter(|driver| !driver.is_home()).for_each(|driver| driver.take_up());
            if self.is_enough(home) {
                lock(&self.asking_homes.homes).remove(&home);
                // Whoever began to wait just now saw that somebody was at it.
                if self.is_enough(home) || !lock(&self.asking_homes.homes).insert(home) {
                    return;
                }
            }
            if !asked.is_ok_and(|asked| asked) {
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn is_enough(&self, home: HostId) -> bool {
        let is_filling = self.host().is_ok_and(|host| host.machine.on_way.is_filling());
        let of_home = |driver: &Arc<Driver>| driver.home() == Some(home);
        let senders: Vec<Arc<Driver>> = self.senders().into_iter().filter(of_home).collect();
        let goes_on = is_filling && !senders.is_empty() || senders.iter().any(|driver| driver.holds_back());
        !goes_on || self.lease.is_fenced()
    }

    /// Whether there was anything to ask for.
    fn ask_once_what_has_come(self: &Arc<Self>, home: HostId) -> Result<bool> {
        let sent = |driver: Arc<Driver>| driver.sent_so_far().map(|sent| (driver, sent));
        let sent: Vec<_> =
            self.senders().into_iter().filter_map(sent).filter(|(_, sent)| sent.home == home).collect();
        if lock(&self.waiting).contains_key(&home) {
            return Err(busy("it is being connected to, and what is to be sent then comes first"));
        }
        let ask = |driver: &Arc<Driver>| {
            let call = Call::HasCome { object: driver.plan().object };
            self.begin_to_ask(home, call, &[])
        };
        let asked: Vec<_> = sent.iter().map(|(driver, _)| ask(driver)).collect();
        let mut failed = None;
        // One object whose home is slow, or does not know it any more, keeps nothing of the others.
        for (asked, (driver, sent)) in asked.into_iter().zip(&sent) {
            match self.answer_to(asked, PATIENCE) {
                Ok((Answer::Done, _)) => driver.has_come(sent),
                Ok(_) => failed = Some(unexpected()),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(!sent.is_empty()), Err)
    }

    /// At the home: a host asks whether what it said has been dealt with.
    pub(super) fn deal_with(&self, from: HostId, object: u128) -> Result<Answer> {
        let nobody = || Error::new(ErrorKind::NotFound, "this host does not schedule that object (any more)");
        if !self.is_admitted(object, from) {
            return Err(Error::new(ErrorKind::Permission, "the object is not in use there"));
        }
        let driver = self.driver(object).filter(|driver| driver.is_home()).ok_or_else(nobody)?;
        driver.catch_up();
        // Without a scheduler what came was dealt with by nobody.
        driver.home().map(|_| Answer::Done).ok_or_else(nobody)
    }

    /// At the home, of forwarding: returns when all hosts that can be reached have heard what was said of the object so far. A
    /// host hears what is said in its order, whatever it answers to the question. (Else nobody but the home knows anything.)
    pub fn wait_heard(self: &Arc<Self>, driver: &Driver) {
        if !forwards(driver) {
            return;
        }
        for host in self.users(driver).into_iter().filter(|host| !self.is_unreachable(*host)) {
            let _ = self.ask(host, Call::HasCome { object: driver.plan().object }, HEARD);
        }
    }
}
