//! Synchronisation by name: [`Mutex`], [`RwLock`], [`Condition`], [`Semaphore`], [`Barrier`] and
//! [`Counter`]. `docs/PRIMITIVES.md`.
//!
//! Each is an object that holds one of its kind, or as many as it was created with. Clones share
//! it; any number of threads and processes may have it open. No call asks the host, but those that
//! create and open, and the first one after a fork.

mod condition;
mod mutex;
mod rwlock;
mod shared;
mod simple;
mod words;

#[doc(hidden)] // for bindings, which have no guards
pub use commonhold_primitives::Wait;
pub use condition::Condition;
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
pub use shared::SyncOptions;
pub use simple::{Barrier, Counter, Semaphore};
