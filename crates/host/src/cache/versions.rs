//! Versions of pages that are kept in case the newest is lost with its owner (objects that are scheduled by forwarding):
//! bytes beside the frames, and counted as frames are, against the object's budget and the host's.

use super::Cache;
use crate::machine::Machine;
use commonhold_object::PAGE_SIZE_BYTES;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// The room that one takes (its bytes are in `crate::handovers`).
pub struct Version {
    frames: u64,
    machine: Arc<Machine>,
    /// The object's own budget lives as long as anybody here uses the object.
    cache: Weak<Cache>,
}

impl Cache {
    /// The host's memory, which versions count against.
    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }
}

impl Version {
    /// Takes room for a version until it is dropped. It cannot be evicted: where room is short, frames go instead.
    pub fn keep(bytes: u64, machine: &Arc<Machine>, cache: Option<&Arc<Cache>>) -> Version {
        let frames = bytes / PAGE_SIZE_BYTES;
        machine.budget.take_anyway(frames);
        if let Some(cache) = cache {
            cache.versions.fetch_add(frames, Ordering::Relaxed);
            cache.budget.take_anyway(frames);
        }
        Version { frames, machine: machine.clone(), cache: cache.map_or_else(Weak::new, Arc::downgrade) }
    }
}

impl Drop for Version {
    fn drop(&mut self) {
        let frames = self.frames;
        if let Some(cache) = self.cache.upgrade() {
            cache.versions.fetch_sub(frames, Ordering::Relaxed);
            cache.budget.give(frames);
        }
        self.machine.budget.give(frames);
    }
}
