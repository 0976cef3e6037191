//! The host's machine type, and what it has translated for it (`docs/TYPES.md`).

use crate::seeing::Seen;
use commonhold_tags::{Machine, Translated};
use std::sync::{Mutex, OnceLock, PoisonError};

/// What the bytes in this host's memory mean.
#[derive(Default)]
pub struct HostTypes {
    machine: OnceLock<Machine>,
    counts: Mutex<[Translated; 2]>,
}

/// Where bytes of another format come from, or go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From another host.
    Received,
    /// From or to where the object is stored.
    Stored,
}

impl HostTypes {
    /// Said once, at the start: of which type this host is.
    pub fn is_of(&self, machine: Machine) {
        let _ = self.machine.set(machine);
    }

    /// Of which type this host is.
    pub fn here(&self) -> Machine {
        self.machine.get().copied().unwrap_or(Machine::HERE)
    }

    /// Something of the object with these numbers was translated.
    pub fn translated(&self, seen: &Seen, way: Way, done: Translated) {
        if done == Translated::default() {
            return;
        }
        seen.translated(way, done);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let of_way = &mut counts[way as usize];
        *of_way = of_way.and(done);
    }

    /// What was translated since this process began.
    pub fn count(&self, way: Way) -> Translated {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)[way as usize]
    }
}
