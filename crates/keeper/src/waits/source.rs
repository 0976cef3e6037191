//! One client's userfaultfd while no host serves it: what was read from it, and which faults are late.

use crate::deadline::FaultDeadline;
use crate::kept::Key;
use commonhold_sys::userfaultfd::{FAULTS_AT_ONCE, Fault, Userfaultfd};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PAGE_BYTES: u64 = 4096;
/// Pages of one userfaultfd that are remembered. Where more are waited for, the messages stay in the kernel until some
/// of these are late: a client that touches many has many waiting threads, or does it on purpose.
const PENDING: usize = 1024;
/// Reads at one look, so that a client which makes messages faster than they are read holds nobody up.
const READS: usize = 16;

/// A region with a deadline.
#[derive(Debug)]
pub(super) struct Promise {
    start: u64,
    end: u64,
    deadline: Duration,
    synchronous: bool,
    /// Where it is kept which pages were given SIGBUS.
    pub ended_key: Key,
    pub whose: String,
}

impl Promise {
    pub fn new(found: &FaultDeadline, ended_key: Key) -> Promise {
        Promise {
            start: found.address,
            end: found.address.saturating_add(found.length),
            deadline: Duration::from_millis(found.deadline_ms.into()),
            synchronous: found.synchronous,
            ended_key,
            whose: found.whose.clone(),
        }
    }
}

/// All regions of one userfaultfd that have a deadline.
#[derive(Debug)]
pub(super) struct Promises {
    pub fd: Arc<OwnedFd>,
    /// By address.
    pub all: Vec<Promise>,
}

impl Promises {
    pub fn sort(&mut self) {
        self.all.sort_unstable_by_key(|promise| promise.start);
    }

    fn at(&self, address: u64) -> Option<&Promise> {
        let after = self.all.partition_point(|promise| promise.start <= address);
        self.all[..after].last().filter(|promise| address < promise.end)
    }
}

/// A userfaultfd that the keeper reads from. When it is dropped, everybody who waits there faults again.
pub(super) struct Source {
    uffd: Userfaultfd,
    promises: Promises,
    /// Pages that somebody waits for, and since when that is known.
    pending: BTreeMap<u64, Instant>,
}

/// What came of the attempt to end a wait.
enum Outcome {
    Ended,
    /// Nobody can be waiting there any more.
    Nothing,
    /// It cannot be ended.
    Stays,
    /// The kernel was busy with the address space: later.
    Again,
}

impl Source {
    pub fn new(promises: Promises) -> io::Result<Source> {
        let uffd = Userfaultfd::from_fd(promises.fd.try_clone()?);
        Ok(Source { uffd, promises, pending: BTreeMap::new() })
    }

    /// What is promised may have changed; gives the promises back if they are of another userfaultfd.
    pub fn renew(&mut self, promises: Promises) -> Option<Promises> {
        if !Arc::ptr_eq(&promises.fd, &self.promises.fd) {
            return Some(promises);
        }
        self.promises = promises;
        self.pending.retain(|address, _| self.promises.at(*address).is_some());
        None
    }

    /// Whoever waits in a region with a deadline faults again: a host that ended may have read his message.
    pub fn ask_again(&self) {
        if let (Some(first), Some(last)) = (self.promises.all.first(), self.promises.all.last()) {
            let _ = self.uffd.wake(first.start, last.end - first.start);
        }
    }

    /// Takes the messages that are there, and remembers those of regions with a deadline.
    pub fn read(&mut self, now: Instant) -> Result<(), Errno> {
        let mut faults: Vec<Fault> = Vec::with_capacity(FAULTS_AT_ONCE);
        for _ in 0..READS {
            if self.pending.len() + FAULTS_AT_ONCE > PENDING {
                break;
            }
            self.uffd.read_faults_surely(&mut faults)?;
            if faults.is_empty() {
                break;
            }
            // A protected page is there: nothing but an unnoticed write could end such a wait.
            for fault in faults.iter().filter(|fault| !fault.protected) {
                if self.promises.at(fault.address).is_some() {
                    self.pending.entry(fault.address).or_insert(now);
                }
            }
        }
        Ok(())
    }

    /// Ends what is late. `begin` is told of each page before anything is done to it, so that none is forgotten, and says
    /// whether it shall be done at all. Gives how many were ended.
    pub fn end_late(&mut self, now: Instant, mut begin: impl FnMut(&Promise, u64) -> bool) -> u64 {
        let late: Vec<u64> = self
            .pending
            .iter()
            .filter(|(address, since)| {
                self.promises
                    .at(**address)
                    .is_none_or(|p| now.saturating_duration_since(**since) > p.deadline)
            })
            .map(|(address, _)| *address)
            .collect();
        let mut ended = 0;
        for address in late {
            let Some(promise) = self.promises.at(address) else {
                self.pending.remove(&address);
                continue;
            };
            if !begin(promise, address) {
                break;
            }
            match self.end(promise, address) {
                Outcome::Again => continue,
                Outcome::Ended => ended += 1,
                Outcome::Stays => {}
                Outcome::Nothing => drop(self.uffd.wake(address, PAGE_BYTES)),
            }
            self.pending.remove(&address);
        }
        ended
    }

    fn end(&self, promise: &Promise, address: u64) -> Outcome {
        let mut stopped_by = self.uffd.poison(address, PAGE_BYTES).stopped_by;
        if stopped_by == Some(Errno::EXIST) {
            // The page, or the marker that protection left of one. Where protection is all that tells of writes, dropping
            // it could hide one from a page that somebody put there just now. Elsewhere the page only counts as written.
            if promise.synchronous {
                return Outcome::Stays;
            }
            let _ = self.uffd.drop_markers(address, PAGE_BYTES);
            stopped_by = self.uffd.poison(address, PAGE_BYTES).stopped_by;
        }
        match stopped_by {
            None => Outcome::Ended,
            Some(Errno::AGAIN | Errno::NOMEM) => Outcome::Again,
            Some(_) => Outcome::Nothing,
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let _ = self.uffd.wake_all();
    }
}
