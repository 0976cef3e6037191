//! The words of primitives: memory of this host's processes, and, of mutexes that hosts share, what the host is told of them.

use crate::object::Core;
use commonhold_object::wire::Request;
use commonhold_primitives::{Kind, Mapped, Memory};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Words that primitives lie in.
#[derive(Debug)]
pub(crate) struct Words {
    mapped: Mapped,
    /// Of mutexes that hosts share.
    between: Option<Between>,
}

/// Who is told that a mutex is wanted which another host has, and on which connection the words were given.
#[derive(Debug)]
struct Between {
    core: Arc<Core>,
    given_at: u64,
}

impl Words {
    /// Those of one host's processes.
    pub(super) fn of_host(mapped: Mapped) -> Words {
        Words { mapped, between: None }
    }

    /// Those of mutexes that hosts share.
    pub(super) fn between_hosts(mapped: Mapped, core: &Arc<Core>) -> Words {
        Words { mapped, between: Some(Between { core: core.clone(), given_at: core.opened_at() }) }
    }

    /// Whether another process of the host gives other words by now: the one that gave these has died with its keeper.
    #[inline]
    pub(super) fn are_lost(&self) -> bool {
        self.between.as_ref().is_some_and(|between| between.core.opened_at() != between.given_at)
    }

    fn tell(&self, at: usize, wanted: bool) {
        if let Some(Between { core, .. }) = &self.between {
            let index = (at / Kind::Mutex.bytes()) as u32;
            core.shared().note_now(&Request::Token { object: core.id(), index, wanted });
        }
    }
}

impl Memory for Words {
    const SPINS: u32 = Mapped::SPINS;

    #[inline]
    fn load(&self, at: usize) -> u64 {
        self.mapped.load(at)
    }

    #[inline]
    fn exchange(&self, at: usize, old: u64, new: u64) -> Result<(), u64> {
        self.mapped.exchange(at, old, new)
    }

    #[inline]
    fn add(&self, at: usize, more: u64) -> u64 {
        self.mapped.add(at, more)
    }

    fn sleep(&self, at: usize, value: u32, at_most: Duration) {
        Memory::sleep(&self.mapped, at, value, at_most);
    }

    fn wake(&self, at: usize, most: u32) -> u32 {
        Memory::wake(&self.mapped, at, most)
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wanted(&self, at: usize) {
        self.tell(at, true);
    }

    fn released(&self, at: usize) {
        self.tell(at, false);
    }
}
