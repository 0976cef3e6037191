//! The address space of one client, as far as controlled objects are concerned.

use crate::cache::view::{Mapping, Space};
use crate::cache::{Ahead, Answer, Cache};
use commonhold_object::{AddressMap, PAGE_SIZE_BYTES};
use commonhold_sys::userfaultfd::{Fault, Userfaultfd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// What a region of the address map shows.
#[derive(Clone)]
pub struct Shown {
    /// The object's cache.
    pub cache: Arc<Cache>,
    /// The mapping, whole as it was made.
    pub mapping: Arc<Mapping>,
}

/// Address map and descriptors of one client.
#[derive(Default)]
pub struct AddressSpace {
    /// Which addresses show what.
    pub map: RwLock<AddressMap<Shown>>,
    /// Through which faults come in and dirty bits are read.
    pub descriptors: Space,
    /// Faults at addresses that are not known (yet).
    parked: Mutex<Vec<Parked>>,
    /// Nothing will be mapped here any more.
    ended: AtomicBool,
}

/// A fault where nothing is known to be mapped: a touch of what was just unmapped, or of what a returning client is
/// about to name.
struct Parked {
    uffd: Arc<Userfaultfd>,
    address: u64,
    since: Instant,
}

/// How long a mapping may take to become known before a touch of it is an error.
const PATIENCE: Duration = Duration::from_secs(5);

/// So many faults may wait for that at once. A process can wake its threads itself, and each comes again.
const MOST_PARKED: usize = 4096;

/// What came of a fault.
pub enum Served {
    /// It was answered, or somebody will.
    Done,
    /// It was, and more of the same stream is wanted.
    Ahead(Ahead),
    /// Another host was asked, and whoever waits goes on when that answers.
    Elsewhere,
    /// Nothing is known at its address: it waits until there is, or it is certain that there is not.
    Parked,
}

impl AddressSpace {
    /// Answers a fault that came in through `uffd`.
    pub fn serve(&self, uffd: &Arc<Userfaultfd>, fault: Fault) -> Served {
        match self.find(fault.address) {
            Some(shown) => match shown.cache.fault(&shown.mapping, fault) {
                Answer::Done => Served::Done,
                Answer::Ahead(ahead) => Served::Ahead(ahead),
                Answer::Elsewhere => Served::Elsewhere,
            },
            None if self.ended.load(Ordering::SeqCst) => {
                // Of a process that goes on in another session: asked for again there.
                let _ = uffd.wake(fault.address, PAGE_SIZE_BYTES);
                Served::Done
            }
            None => {
                let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
                if parked.len() < MOST_PARKED {
                    let since = Instant::now();
                    parked.push(Parked { uffd: uffd.clone(), address: fault.address, since });
                } else {
                    let _ = uffd.wake(fault.address, PAGE_SIZE_BYTES); // it asks again
                }
                Served::Parked
            }
        }
    }

    /// Forgets everything; gives what was mapped.
    pub fn end(&self) -> AddressMap<Shown> {
        self.ended.store(true, Ordering::SeqCst);
        std::mem::take(&mut *self.map.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn find(&self, address: u64) -> Option<Shown> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        map.find(address).map(|region| region.value.clone())
    }

    /// Whether any fault is parked.
    pub fn has_parked(&self) -> bool {
        self.parked.try_lock().map_or(true, |parked| !parked.is_empty())
    }

    /// Lets parked faults try again whose address is known by now, and ends those that waited too long with SIGBUS: not
    /// a wait without end. Whether any are left.
    pub fn look_at_parked(&self) -> bool {
        let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        parked.retain(|p| {
            if self.find(p.address).is_some() {
                let _ = p.uffd.wake(p.address, PAGE_SIZE_BYTES);
                return false;
            }
            if p.since.elapsed() < PATIENCE {
                return true;
            }
            if p.uffd.poison(p.address, PAGE_SIZE_BYTES).stopped_by.is_some() {
                let _ = p.uffd.wake(p.address, PAGE_SIZE_BYTES);
            }
            false
        });
        !parked.is_empty()
    }
}
