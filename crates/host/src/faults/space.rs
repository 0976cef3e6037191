//! The address space of one client, as far as controlled objects are concerned.

use crate::cache::view::{Mapping, Space};
use crate::cache::{Ahead, Cache};
use commonhold_object::{AddressMap, PAGE_SIZE_BYTES};
use commonhold_sys::userfaultfd::{Fault, Userfaultfd};
use std::sync::{Arc, PoisonError, RwLock};

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
}

impl AddressSpace {
    /// Answers a fault that came in through `uffd`.
    pub fn serve(&self, uffd: &Userfaultfd, fault: Fault) -> Option<Ahead> {
        let shown = {
            let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
            map.find(fault.address).map(|region| region.value.clone())
        };
        match shown {
            Some(shown) => shown.cache.fault(&shown.mapping, fault),
            None => {
                // A touch of what was just unmapped, or never was ours: SIGBUS, not a wait without end.
                if uffd.poison(fault.address, PAGE_SIZE_BYTES).stopped_by.is_some() {
                    let _ = uffd.wake(fault.address, PAGE_SIZE_BYTES);
                }
                None
            }
        }
    }
}
