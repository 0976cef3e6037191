//! A condition with a name.

use super::Mutex;
use super::mutex::MutexGuard;
use super::shared::{Place, SyncOptions, placed};
use crate::{Host, Result};
use commonhold_primitives::{Kind, Wait, between};
use std::time::Instant;

/// A condition with a name: threads wait until another signals. What they wait for is the
/// program's, and guarded by a [`Mutex`], of the same host or of as many.
///
/// ```no_run
/// # use commonhold::{Condition, Host, Mutex, SyncOptions};
/// # let host = Host::connect()?;
/// # let is_ready = || true;
/// let turn = Mutex::open(&host, "/lab/turn")?;
/// let ready = Condition::open(&host, "/lab/ready")?;
/// let guard = turn.lock(None)?;
/// while !is_ready() {
///     ready.wait(&guard, None)?;
/// }
/// # Ok::<(), commonhold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Condition {
    place: Place,
}

placed!(Condition);

impl Condition {
    /// Creates one, or as many as the options say.
    pub fn create(host: &Host, name: &str, options: &SyncOptions) -> Result<Condition> {
        Place::create(host, name, Kind::Condition, options).map(|place| Condition { place })
    }

    /// Opens it.
    pub fn open(host: &Host, name: &str) -> Result<Condition> {
        Place::open(host, name, "condition").map(|place| Condition { place })
    }

    /// Opens it, or creates it if there is none.
    pub fn open_or_create(host: &Host, name: &str, options: &SyncOptions) -> Result<Condition> {
        Place::open_or_create(host, name, Kind::Condition, options).map(|place| Condition { place })
    }

    /// Lets the mutex go, waits for a signal, and takes the mutex again, however long that takes. It
    /// may return without a signal. After [`TimedOut`](crate::ErrorKind::TimedOut) and
    /// [`OwnerDied`](crate::ErrorKind::OwnerDied) (of the mutex, meanwhile) the guard holds, too.
    pub fn wait(&self, guard: &MutexGuard<'_>, deadline: Option<Instant>) -> Result<()> {
        self.wait_with(guard.mutex, deadline.into())
    }

    /// [`wait`](Self::wait), of a thread that has the mutex without a guard.
    #[doc(hidden)]
    pub fn wait_with(&self, mutex: &Mutex, wait: Wait) -> Result<()> {
        use commonhold_primitives::Refused;
        let who = mutex.place.who()?;
        let its = (mutex.raw(), &mutex.place.inner.memory);
        let memory = &self.place.inner.memory;
        let waited = if self.place.is_between_hosts() {
            self.place.who()?; // its words may be gone, though the mutex's are not
            self.between().wait(memory, its, who, wait)
        } else {
            self.raw().wait(memory, its, who, wait)
        };
        match waited {
            Ok(false) => Ok(()),
            Ok(true) => Err(mutex.place.explain(Refused::OwnerDied)),
            Err(refused @ Refused::TimedOut) => Err(self.place.explain(refused)),
            Err(refused) => Err(mutex.place.explain(refused)),
        }
    }

    /// Wakes one of those who wait; of one that hosts share, all.
    pub fn signal(&self) -> Result<()> {
        if self.place.is_between_hosts() {
            return self.broadcast();
        }
        self.raw().signal(&self.place.inner.memory);
        Ok(())
    }

    /// Wakes all who wait.
    pub fn broadcast(&self) -> Result<()> {
        let memory = &self.place.inner.memory;
        if self.place.is_between_hosts() {
            return self.place.explained(self.between().signal(memory, self.place.who()?));
        }
        self.raw().broadcast(memory);
        Ok(())
    }

    /// A number that each signal changes which somebody may wait for, as far as this host knows.
    #[doc(hidden)] // for bindings, whose waits are several
    pub fn number(&self) -> u64 {
        let memory = &self.place.inner.memory;
        if self.place.is_between_hosts() { self.between().number(memory) } else { self.raw().number(memory) }
    }

    fn between(&self) -> between::Condition {
        between::Condition(self.place.at)
    }

    fn raw(&self) -> commonhold_primitives::Condition {
        commonhold_primitives::Condition(self.place.at)
    }
}
