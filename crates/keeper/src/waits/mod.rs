//! Fault deadlines while no host serves: whoever waits longer than the object allows gets SIGBUS from the keeper.
//!
//! The work is done by a thread of its own ([`watch`]), because to answer a fault takes the memory lock of the client that
//! has it: one that holds its lock must not keep the keeper from starting the next host. The keeper tells the thread
//! what there is, and takes from it what it did. Neither waits for the other.
//!
//! From the death of a host until the next says that it serves, the thread reads the messages of the userfaultfds
//! concerned. What it reads and does not answer is not lost: when it stops, everybody who waits there is woken, faults
//! again, and is answered by the host.

mod source;
mod watch;

use crate::deadline::{DEADLINE_PART, ENDED_PART, EndedFaults, FaultDeadline};
use crate::kept::Key;
use crate::log::StateLog;
use crate::store::{Store, Thing};
use source::{Promise, Promises};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use watch::Watch;

/// Threads that were told to stop and have not yet, because a client holds them up. With more of them no other begins.
const LEAVING: usize = 16;

/// The deadlines of a state directory, as its keeper sees them.
#[derive(Debug)]
pub(crate) struct Waits {
    log: StateLog,
    active: Option<Watch>,
    leaving: Vec<Watch>,
}

impl Waits {
    pub fn new(log: StateLog) -> Waits {
        Waits { log, active: None, leaving: Vec::new() }
    }

    /// A host ended, and with it what it had read: whoever waits for it is heard anew, by the keeper.
    pub fn no_host(&mut self, store: &Store) {
        let promises = promises_of(store);
        if let Some(watch) = &self.active {
            watch.renew(promises);
        } else if !promises.is_empty() {
            if self.leaving.len() >= LEAVING {
                self.log.say("fault deadlines are not kept until the next host serves: clients hold the keeper's threads up");
                return;
            }
            match Watch::start(promises, self.log.clone()) {
                Ok(watch) => self.active = Some(watch),
                Err(error) => {
                    self.log
                        .say(&format!("fault deadlines are not kept until the next host serves: {error}"));
                }
            }
        }
    }

    /// A host serves.
    pub fn host_serves(&mut self) {
        if let Some(watch) = self.active.take() {
            watch.stop();
            self.leaving.push(watch);
        }
    }

    /// What becomes readable when a thread that was told to stop has stopped.
    pub fn leaving(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.leaving.iter().map(Watch::as_fd)
    }

    /// Forgets threads that have stopped; what they did is kept in `store`. Whether there was one.
    pub fn sweep(&mut self, store: &mut Store) -> bool {
        let (gone, left): (Vec<_>, Vec<_>) = self.leaving.drain(..).partition(Watch::has_ended);
        self.leaving = left;
        gone.iter().for_each(|watch| keep_ended(watch, store, &self.log));
        !gone.is_empty()
    }

    /// Keeps in `store` what was done up to now. Not while a host lives that may be about to forget what it was told of
    /// the same pages before.
    pub fn keep_all(&mut self, store: &mut Store) {
        self.leaving.iter().chain(&self.active).for_each(|watch| keep_ended(watch, store, &self.log));
    }
}

/// Keys of what the host has to heal.
pub(crate) fn ended_keys(store: &Store) -> Vec<Key> {
    store.keys().filter(|key| key.0.contains(ENDED_PART)).cloned().collect()
}

fn keep_ended(watch: &Watch, store: &mut Store, log: &StateLog) {
    for (key, mut ended) in watch.take_ended() {
        if let Some(before) = store.get(&key).and_then(|kept| EndedFaults::from_blob(&kept.blob)) {
            ended.add_all(&before);
        }
        let blob = ended.to_blob();
        match store.check_put(&key, blob.len(), false) {
            Ok(()) => drop(store.put(key, Thing { blob, fd: None })),
            Err(error) => log.say(&format!("pages that were given SIGBUS stay so: {error}")),
        }
    }
}

/// All deadlines, by the userfaultfd through which they are kept.
fn promises_of(store: &Store) -> BTreeMap<Key, Promises> {
    let mut all: BTreeMap<Key, Promises> = BTreeMap::new();
    for key in store.keys().filter(|key| key.0.contains(DEADLINE_PART)) {
        let Some(found) = store.get(key).and_then(|thing| FaultDeadline::from_blob(&thing.blob)) else {
            continue;
        };
        let uffd_key = Key::new(found.userfaultfd.clone());
        // It comes before the mappings; where it is not there the keeper was not yet filled.
        let Some(fd) = store.get(&uffd_key).and_then(|thing| thing.fd.clone()) else { continue };
        let ended_key = Key::new(key.0.replacen(DEADLINE_PART, ENDED_PART, 1));
        let promises = all.entry(uffd_key).or_insert_with(|| Promises { fd, all: Vec::new() });
        promises.all.push(Promise::new(&found, ended_key));
    }
    all.values_mut().for_each(Promises::sort);
    all
}
