//! A mutex with a name.

use super::shared::{Place, SyncOptions, placed};
use crate::{Error, ErrorKind, Host, Result};
use commonhold_primitives::{Kind, Refused, Wait};
use std::marker::PhantomData;
use std::time::Instant;

/// A mutex with a name: one thread has it, of all processes that have it open.
///
/// ```no_run
/// use commonhold::{Host, Mutex, SyncOptions};
///
/// let host = Host::connect()?;
/// let turn = Mutex::open_or_create(&host, "/lab/turn", &SyncOptions::default())?;
/// let guard = turn.lock(None)?;
/// // What `/lab/turn` guards is this thread's until `guard` goes.
/// drop(guard);
/// # Ok::<(), commonhold::Error>(())
/// ```
///
/// When the process of its owner ends, the next one gets [`ErrorKind::OwnerDied`] until one of them
/// takes it by [`lock_and_mend`](Self::lock_and_mend). A thread that ends while it has it keeps it
/// as long as its process lives.
#[derive(Clone, Debug)]
pub struct Mutex {
    pub(super) place: Place,
}

/// The mutex is this thread's until this is dropped.
#[derive(Debug)]
pub struct MutexGuard<'m> {
    pub(super) mutex: &'m Mutex,
    /// A thread lets go what it took.
    _of_this_thread: PhantomData<*const ()>,
}

placed!(Mutex);

impl Mutex {
    /// Creates one, or as many as the options say, free.
    pub fn create(host: &Host, name: &str, options: &SyncOptions) -> Result<Mutex> {
        Place::create(host, name, Kind::Mutex, options).map(|place| Mutex { place })
    }

    /// Opens it.
    pub fn open(host: &Host, name: &str) -> Result<Mutex> {
        Place::open(host, name, "mutex").map(|place| Mutex { place })
    }

    /// Opens it, or creates it if there is none.
    pub fn open_or_create(host: &Host, name: &str, options: &SyncOptions) -> Result<Mutex> {
        Place::open_or_create(host, name, Kind::Mutex, options).map(|place| Mutex { place })
    }

    /// Takes it; waits until it is free, or for the deadline ([`ErrorKind::TimedOut`]; `None`: for
    /// ever). This thread having it already is [`ErrorKind::Deadlock`].
    pub fn lock(&self, deadline: Option<Instant>) -> Result<MutexGuard<'_>> {
        self.acquire(deadline.into()).map(|()| self.guard())
    }

    /// Takes it if it is free now.
    pub fn try_lock(&self) -> Result<Option<MutexGuard<'_>>> {
        match self.acquire(Wait::No) {
            Ok(()) => Ok(Some(self.guard())),
            Err(error) if error.kind == ErrorKind::TimedOut => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes it, also after its owner died: then the second is true. From the guard's drop on it is
    /// as any other; so mend what it guards before.
    pub fn lock_and_mend(&self, deadline: Option<Instant>) -> Result<(MutexGuard<'_>, bool)> {
        let died = self.acquire_marked(deadline.into())?;
        let guard = self.guard();
        if died {
            self.consistent()?;
        }
        Ok((guard, died))
    }

    fn guard(&self) -> MutexGuard<'_> {
        MutexGuard { mutex: self, _of_this_thread: PhantomData }
    }

    /// Takes it, unless its owner died.
    #[doc(hidden)]
    pub fn acquire(&self, wait: Wait) -> Result<()> {
        if self.acquire_marked(wait)? {
            self.release()?;
            return Err(self.explain(Refused::OwnerDied));
        }
        Ok(())
    }

    /// Takes it; gives whether its owner died, which stays so until it is said to be consistent.
    #[doc(hidden)]
    #[inline]
    pub fn acquire_marked(&self, wait: Wait) -> Result<bool> {
        let who = self.place.who()?;
        self.raw().lock(&self.place.inner.memory, who, wait).map_err(|refused| self.explain(refused))
    }

    /// What it guards is whole.
    #[doc(hidden)]
    pub fn consistent(&self) -> Result<()> {
        let who = self.place.who()?;
        self.raw().mend(&self.place.inner.memory, who).map_err(|refused| self.explain(refused))
    }

    /// Lets it go.
    #[doc(hidden)]
    #[inline]
    pub fn release(&self) -> Result<()> {
        let who = self.place.who()?;
        self.raw().unlock(&self.place.inner.memory, who).map_err(|refused| self.explain(refused))
    }

    /// Takes it if no more than that is to be done: nothing in it fails, panics or waits.
    #[inline]
    pub(crate) fn lock_free(&self) -> bool {
        self.place.who_is_known().is_some_and(|who| self.raw().lock_free(&self.place.inner.memory, who))
    }

    /// Lets it go if no more than that is to be done.
    #[inline]
    pub(crate) fn unlock_unwanted(&self) -> bool {
        self.place.who_is_known().is_some_and(|who| self.raw().unlock_unwanted(&self.place.inner.memory, who))
    }

    #[inline]
    pub(super) fn raw(&self) -> commonhold_primitives::Mutex {
        commonhold_primitives::Mutex(self.place.at)
    }

    fn explain(&self, refused: Refused) -> Error {
        self.place.explain(refused)
    }
}

impl Drop for MutexGuard<'_> {
    fn drop(&mut self) {
        // Refused: a program that may write it took it from this thread, and has it now. Or a fork child drops its parent's
        // guard.
        let _ = self.mutex.release();
    }
}
