//! A lock to read or to write, with a name.

use super::shared::{Place, SyncOptions, placed};
use crate::{ErrorKind, Host, Result};
use commonhold_primitives::{Kind, Refused, Wait, between};
use std::marker::PhantomData;
use std::time::Instant;

/// A lock with a name that one thread has to write, or several have to read. Who waits to write
/// goes before readers that come later; so who reads does not begin to read once more.
///
/// Sixty processes may read at once. When a writer's process ends, others get
/// [`ErrorKind::OwnerDied`] until one takes it by [`write_and_mend`](Self::write_and_mend); readers
/// that end leave nothing to mend.
#[derive(Clone, Debug)]
pub struct RwLock {
    place: Place,
}

/// This thread reads until this is dropped.
#[derive(Debug)]
pub struct ReadGuard<'l> {
    lock: &'l RwLock,
    _of_this_thread: PhantomData<*const ()>,
}

/// This thread writes until this is dropped.
#[derive(Debug)]
pub struct WriteGuard<'l> {
    lock: &'l RwLock,
    _of_this_thread: PhantomData<*const ()>,
}

placed!(RwLock);

impl RwLock {
    /// Creates one, or as many as the options say, free.
    pub fn create(host: &Host, name: &str, options: &SyncOptions) -> Result<RwLock> {
        Place::create(host, name, Kind::RwLock, options).map(|place| RwLock { place })
    }

    /// Opens it.
    pub fn open(host: &Host, name: &str) -> Result<RwLock> {
        Place::open(host, name, "rwlock").map(|place| RwLock { place })
    }

    /// Opens it, or creates it if there is none.
    pub fn open_or_create(host: &Host, name: &str, options: &SyncOptions) -> Result<RwLock> {
        Place::open_or_create(host, name, Kind::RwLock, options).map(|place| RwLock { place })
    }

    /// Takes it to read; waits until nobody writes, or for the deadline.
    pub fn read(&self, deadline: Option<Instant>) -> Result<ReadGuard<'_>> {
        self.acquire_read(deadline.into()).map(|()| ReadGuard { lock: self, _of_this_thread: PhantomData })
    }

    /// Takes it to write; waits until nobody reads or writes, or for the deadline.
    pub fn write(&self, deadline: Option<Instant>) -> Result<WriteGuard<'_>> {
        self.acquire_write(deadline.into())?;
        Ok(WriteGuard { lock: self, _of_this_thread: PhantomData })
    }

    /// Takes it to read if nobody writes now.
    pub fn try_read(&self) -> Result<Option<ReadGuard<'_>>> {
        now(self.acquire_read(Wait::No), || ReadGuard { lock: self, _of_this_thread: PhantomData })
    }

    /// Takes it to write if nobody reads or writes now.
    pub fn try_write(&self) -> Result<Option<WriteGuard<'_>>> {
        now(self.acquire_write(Wait::No), || WriteGuard { lock: self, _of_this_thread: PhantomData })
    }

    /// Takes it to write, also after its writer died: then the second is true. From the guard's
    /// drop on it is as any other; so mend what it guards before.
    pub fn write_and_mend(&self, deadline: Option<Instant>) -> Result<(WriteGuard<'_>, bool)> {
        let died = self.acquire_write_marked(deadline.into())?;
        let guard = WriteGuard { lock: self, _of_this_thread: PhantomData };
        if died {
            self.consistent()?;
        }
        Ok((guard, died))
    }

    /// Takes it to read.
    #[doc(hidden)]
    pub fn acquire_read(&self, wait: Wait) -> Result<()> {
        let who = self.place.who()?;
        let memory = &self.place.inner.memory;
        self.place.explained(match self.between() {
            Some(lock) => lock.read(memory, who, wait),
            None => self.raw().read(memory, who, wait),
        })
    }

    /// Takes it to write, unless its writer died.
    #[doc(hidden)]
    pub fn acquire_write(&self, wait: Wait) -> Result<()> {
        if self.acquire_write_marked(wait)? {
            self.release_write()?;
            return Err(self.place.explain(Refused::OwnerDied));
        }
        Ok(())
    }

    /// Takes it to write; gives whether its writer died, which stays so until it is said to be consistent.
    #[doc(hidden)]
    pub fn acquire_write_marked(&self, wait: Wait) -> Result<bool> {
        let who = self.place.who()?;
        let memory = &self.place.inner.memory;
        self.place.explained(match self.between() {
            Some(lock) => lock.write(memory, who, wait),
            None => self.raw().write(memory, who, wait),
        })
    }

    /// What it guards is whole.
    #[doc(hidden)]
    pub fn consistent(&self) -> Result<()> {
        let who = self.place.who()?;
        let memory = &self.place.inner.memory;
        self.place.explained(match self.between() {
            Some(lock) => lock.mend(memory, who),
            None => self.raw().mend(memory, who),
        })
    }

    /// Lets it go that was taken to read.
    #[doc(hidden)]
    pub fn release_read(&self) -> Result<()> {
        let who = self.place.who()?;
        let memory = &self.place.inner.memory;
        self.place.explained(match self.between() {
            Some(lock) => lock.end_read(memory, who),
            None => self.raw().end_read(memory, who),
        })
    }

    /// Lets it go that was taken to write.
    #[doc(hidden)]
    pub fn release_write(&self) -> Result<()> {
        let who = self.place.who()?;
        let memory = &self.place.inner.memory;
        self.place.explained(match self.between() {
            Some(lock) => lock.end_write(memory, who),
            None => self.raw().end_write(memory, who),
        })
    }

    /// Lets it go, however this thread has it.
    #[doc(hidden)]
    pub fn release(&self) -> Result<()> {
        match self.release_write() {
            Err(error) if error.kind == ErrorKind::NotOwner => self.release_read(),
            done => done,
        }
    }

    fn between(&self) -> Option<between::RwLock> {
        self.place.is_between_hosts().then_some(between::RwLock(self.place.at))
    }

    fn raw(&self) -> commonhold_primitives::RwLock {
        commonhold_primitives::RwLock(self.place.at)
    }
}

fn now<G>(taken: Result<()>, guard: impl FnOnce() -> G) -> Result<Option<G>> {
    match taken {
        Ok(()) => Ok(Some(guard())),
        Err(error) if error.kind == ErrorKind::TimedOut => Ok(None),
        Err(error) => Err(error),
    }
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        // Refused: a program that may write it changed it, or a fork child drops its parent's guard.
        let _ = self.lock.release_read();
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        // As above.
        let _ = self.lock.release_write();
    }
}
