//! A semaphore, a barrier and a counter, each with a name.

use super::shared::{Place, SyncOptions, placed};
use crate::{Host, Result};
use commonhold_primitives::{Kind, Wait, between};
use std::time::{Duration, Instant};

/// How long who arrives at a barrier waits for a newcomer where a process is missing that was there
/// before: as long as a fault waits for another host.
const PATIENCE: Duration = Duration::from_millis(commonhold_object::limits::SHARED_FAULT_DEADLINE_MS as u64);

/// A semaphore with a name: a number that is never below zero. It belongs to nobody: what a process
/// took that ended is not given back.
#[derive(Clone, Debug)]
pub struct Semaphore {
    place: Place,
}

placed!(Semaphore);

impl Semaphore {
    /// Creates one, or as many as the options say, each with that value, of 2^31 - 1 at most.
    pub fn create(host: &Host, name: &str, value: u32, options: &SyncOptions) -> Result<Semaphore> {
        let kind = Kind::Semaphore { value };
        Place::create(host, name, kind, options).map(|place| Semaphore { place })
    }

    /// Opens it.
    pub fn open(host: &Host, name: &str) -> Result<Semaphore> {
        Place::open(host, name, "semaphore").map(|place| Semaphore { place })
    }

    /// Opens it, whatever its value is, or creates it with that value if there is none.
    pub fn open_or_create(host: &Host, name: &str, value: u32, options: &SyncOptions) -> Result<Semaphore> {
        Place::open_or_create(host, name, Kind::Semaphore { value }, options).map(|place| Semaphore { place })
    }

    /// Its value just now.
    pub fn value(&self) -> Result<u32> {
        let memory = &self.place.inner.memory;
        if self.place.is_between_hosts() {
            return self.place.explained(self.between().value(memory, self.place.who()?));
        }
        Ok(self.raw().value(memory))
    }

    /// Takes one from its value; waits until it is above zero, or for the deadline.
    pub fn acquire(&self, deadline: Option<Instant>) -> Result<()> {
        self.acquire_with(deadline.into())
    }

    /// Takes one from its value if it is above zero now; gives whether it was.
    pub fn try_acquire(&self) -> bool {
        self.acquire_with(Wait::No).is_ok()
    }

    #[doc(hidden)] // for bindings, which have no guards
    pub fn acquire_with(&self, wait: Wait) -> Result<()> {
        let memory = &self.place.inner.memory;
        if self.place.is_between_hosts() {
            return self.place.explained(self.between().acquire(memory, self.place.who()?, wait));
        }
        self.place.explained(self.raw().acquire(memory, wait))
    }

    /// Adds to its value, and wakes as many.
    pub fn release(&self, more: u32) -> Result<()> {
        let memory = &self.place.inner.memory;
        if self.place.is_between_hosts() {
            return self.place.explained(self.between().release(memory, self.place.who()?, more));
        }
        self.place.explained(self.raw().release(memory, more))
    }

    fn between(&self) -> between::Semaphore {
        between::Semaphore { at: self.place.at, first: self.place.number() }
    }

    fn raw(&self) -> commonhold_primitives::Semaphore {
        commonhold_primitives::Semaphore { at: self.place.at, first: self.place.number() }
    }
}

/// A barrier with a name: threads wait in it until so many are there.
///
/// The host knows the processes that ever waited in it, sixty at most. When one of them ends, those
/// who wait get [`Broken`](crate::ErrorKind::Broken) at once, and who comes later gets it after a
/// minute, unless a newcomer makes up for it.
#[derive(Clone, Debug)]
pub struct Barrier {
    place: Place,
}

placed!(Barrier);

impl Barrier {
    /// Creates one, or as many as the options say, of so many parties: 1 to 1,048,576.
    pub fn create(host: &Host, name: &str, parties: u32, options: &SyncOptions) -> Result<Barrier> {
        let kind = Kind::Barrier { parties };
        Place::create(host, name, kind, options).map(|place| Barrier { place })
    }

    /// Opens it.
    pub fn open(host: &Host, name: &str) -> Result<Barrier> {
        Place::open(host, name, "barrier").map(|place| Barrier { place })
    }

    /// Opens it, or creates it if there is none. One of other parties is an error.
    pub fn open_or_create(host: &Host, name: &str, parties: u32, options: &SyncOptions) -> Result<Barrier> {
        let barrier = Place::open_or_create(host, name, Kind::Barrier { parties }, options)
            .map(|place| Barrier { place })?;
        if barrier.parties() != parties {
            let has = barrier.parties();
            return Err(crate::Error::new(
                crate::ErrorKind::Mismatch,
                format!("barrier {name} waits for {has}, not for {parties}: say {has}, or create another"),
            ));
        }
        Ok(barrier)
    }

    /// How many it waits for.
    pub fn parties(&self) -> u32 {
        self.place.number()
    }

    /// Waits until all are there, or for the deadline: then this thread was not. Gives whether this
    /// thread came last, as one of each round does.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<bool> {
        self.wait_with(deadline.into())
    }

    pub(crate) fn wait_with(&self, wait: Wait) -> Result<bool> {
        let (who, memory) = (self.place.who()?, &self.place.inner.memory);
        let arrived = if self.place.is_between_hosts() {
            self.between().wait(memory, who, wait, PATIENCE)
        } else {
            self.raw().wait(memory, who.member, wait, PATIENCE)
        };
        self.place.explained(arrived.map(|arrived| arrived.is_last))
    }

    /// Gives the round up, if somebody waits in it: they get [`Broken`](crate::ErrorKind::Broken).
    pub fn abort(&self) -> Result<()> {
        let memory = &self.place.inner.memory;
        if self.place.is_between_hosts() {
            return self.place.explained(self.between().abort(memory, self.place.who()?));
        }
        self.raw().abort(memory);
        Ok(())
    }

    fn between(&self) -> between::Barrier {
        between::Barrier { at: self.place.at, parties: self.parties() }
    }

    fn raw(&self) -> commonhold_primitives::Barrier {
        commonhold_primitives::Barrier { at: self.place.at, parties: self.parties() }
    }
}

/// A counter with a name: a number of 64 bits. It begins with 0.
#[derive(Clone, Debug)]
pub struct Counter {
    place: Place,
}

placed!(Counter);

impl Counter {
    /// Creates one, or as many as the options say.
    pub fn create(host: &Host, name: &str, options: &SyncOptions) -> Result<Counter> {
        Place::create(host, name, Kind::Counter, options).map(|place| Counter { place })
    }

    /// Opens it.
    pub fn open(host: &Host, name: &str) -> Result<Counter> {
        Place::open(host, name, "counter").map(|place| Counter { place })
    }

    /// Opens it, or creates it if there is none.
    pub fn open_or_create(host: &Host, name: &str, options: &SyncOptions) -> Result<Counter> {
        Place::open_or_create(host, name, Kind::Counter, options).map(|place| Counter { place })
    }

    /// Its value just now.
    pub fn value(&self) -> Result<u64> {
        let memory = &self.place.inner.memory;
        if self.place.is_between_hosts() {
            return self.place.explained(self.between().value(memory, self.place.who()?));
        }
        Ok(self.raw().value(memory))
    }

    /// Adds, modulo 2^64; gives what it was.
    pub fn add(&self, more: u64) -> Result<u64> {
        let memory = &self.place.inner.memory;
        if self.place.is_between_hosts() {
            return self.place.explained(self.between().add(memory, self.place.who()?, more));
        }
        Ok(self.raw().add(memory, more))
    }

    /// Makes it `new` if it is `old`; gives what it was.
    pub fn compare_exchange(&self, old: u64, new: u64) -> Result<u64> {
        let memory = &self.place.inner.memory;
        if self.place.is_between_hosts() {
            return self.place.explained(self.between().exchange(memory, self.place.who()?, old, new));
        }
        Ok(self.raw().exchange(memory, old, new).err().unwrap_or(old))
    }

    /// Waits until it is another than `value`, or for the deadline; gives what it is.
    pub fn wait_while(&self, value: u64, deadline: Option<Instant>) -> Result<u64> {
        self.wait_while_with(value, deadline.into())
    }

    pub(crate) fn wait_while_with(&self, value: u64, wait: Wait) -> Result<u64> {
        let memory = &self.place.inner.memory;
        if self.place.is_between_hosts() {
            let who = self.place.who()?;
            return self.place.explained(self.between().wait_while(memory, who, value, wait));
        }
        self.place.explained(self.raw().wait_while(memory, value, wait))
    }

    fn between(&self) -> between::Counter {
        between::Counter(self.place.at)
    }

    fn raw(&self) -> commonhold_primitives::Counter {
        commonhold_primitives::Counter(self.place.at)
    }
}
