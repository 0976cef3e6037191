//! Who sees a write, and when.

use serde::{Deserialize, Serialize};

/// What serves a page of a shared object whose newest version was lost with a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnLoss {
    /// Nothing: touching it is an error (SIGBUS), until somebody reverts it.
    #[default]
    Error,
    /// The newest version that its home has (Forin et al., section 5).
    Revert,
}

/// Who sees a write, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Coherence {
    /// The processes of this host, at once. Other hosts cannot map it.
    #[default]
    Local,
    /// Everybody, at once: a page has one writer or many readers, wherever they are (Forin et al., sections 2 to 4).
    Strict {
        /// Who schedules it.
        scheduler: Scheduler,
        /// What serves pages that were lost.
        on_loss: OnLoss,
        /// How long a page stays where it was granted, microseconds, so that the instruction that faulted retires.
        hold_us: u32,
    },
    /// The processes of this host, at once; those of others after a sync (Shirriff, Sprite's limited consistency).
    Explicit,
}

/// Who schedules the pages of a strict object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scheduler {
    /// Its home (Forin et al., section 3).
    Central {
        /// How many writers may overtake readers that wait; 0: any number.
        reader_bound: u32,
    },
    /// All hosts that have it: requests go from host to host (section 4).
    Forwarding,
}

/// A page stays for so long where it was granted, unless somebody says otherwise.
const HOLD_US: u32 = 200;

impl Scheduler {
    /// By the home; readers wait for 16 writers at most.
    pub const CENTRAL: Scheduler = Scheduler::Central { reader_bound: 16 };
}

impl Coherence {
    /// The words for it.
    pub fn word(self) -> &'static str {
        match self {
            Coherence::Local => "local",
            Coherence::Strict { scheduler: Scheduler::Central { .. }, .. } => "strict, central",
            Coherence::Strict { scheduler: Scheduler::Forwarding, .. } => "strict, forwarding",
            Coherence::Explicit => "explicit",
        }
    }

    /// Strict, scheduled by all hosts that have the object; a page stays for 200 µs.
    pub fn strict(on_loss: OnLoss) -> Coherence {
        Coherence::Strict { scheduler: Scheduler::Forwarding, on_loss, hold_us: HOLD_US }
    }

    /// Strict, scheduled by the object's home: readers wait for 16 writers at most, and a page stays for 200 µs. What needs
    /// one host that sees everything needs this: `freezable`, and hosts that were admitted for reading.
    pub fn central(on_loss: OnLoss) -> Coherence {
        Coherence::Strict { scheduler: Scheduler::CENTRAL, on_loss, hold_us: HOLD_US }
    }

    /// With another minimum hold, if it is strict.
    pub fn with_hold(mut self, microseconds: u32) -> Coherence {
        if let Coherence::Strict { hold_us, .. } = &mut self {
            *hold_us = microseconds;
        }
        self
    }

    /// Whether all hosts that have the object schedule it.
    pub fn is_forwarded(&self) -> bool {
        matches!(self, Coherence::Strict { scheduler: Scheduler::Forwarding, .. })
    }

    /// Whether a page has one writer or many readers.
    pub fn is_strict(&self) -> bool {
        matches!(self, Coherence::Strict { .. })
    }
}
