//! Locks by name: `include/commonhold_sync.h`. Calls return 0 or an error number, as pthread's do.

use super::outcome::{guard, noted_errno, text};
use super::{host, null, wait_of};
use crate::{
    Barrier, Condition, Counter, Error, ErrorKind, Mutex, Result, RwLock, Semaphore, SyncOptions, Wait,
};
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

const CREATE: c_int = 1;
const EXCLUSIVE: c_int = 2;
const HOSTS: c_int = 4;
const BARRIER_LAST: c_int = -1;

/// Runs a call: 0, or an error number.
fn number_of(run: impl FnOnce() -> Result<()>) -> c_int {
    let done = guard(Err(libc::EIO), || Ok(run().map_err(|error| noted_errno(&error))));
    done.err().unwrap_or(0)
}

/// What is to be had at once, and is not, is busy, and not late.
fn within<T>(timeout_ms: c_int, take: impl FnOnce(Wait) -> Result<T>) -> Result<T> {
    take(wait_of(timeout_ms)).map_err(|error| match error.kind {
        ErrorKind::TimedOut if timeout_ms == 0 => Error::new(ErrorKind::Busy, error.message),
        _ => error,
    })
}

/// `EOWNERDEAD`, with the lock.
fn owner_died(died: bool) -> Result<()> {
    let what =
        "who had it died, so that what it guards may be half changed: mend that, and call …_consistent()";
    if died { Err(Error::new(ErrorKind::OwnerDied, what)) } else { Ok(()) }
}

/// Opens or creates, by the flags.
fn open_with<T>(
    flags: c_int,
    open: impl FnOnce() -> Result<T>,
    create: impl FnOnce() -> Result<T>,
    either: impl FnOnce() -> Result<T>,
) -> Result<T> {
    match flags {
        0 => open(),
        CREATE => either(),
        flags if flags == CREATE | EXCLUSIVE => create(),
        _ => {
            let what = format!(
                "{flags} are no flags: 0, CH_SYNC_CREATE, or that with CH_SYNC_EXCLUSIVE and CH_SYNC_HOSTS"
            );
            Err(Error::invalid(what))
        }
    }
}

/// The handle of a kind, and what all kinds have.
macro_rules! kind {
    ($handle:ident, $type:ident, $open:ident, $at:ident, $close:ident, ($($more:ident)?)) => {
        #[doc = concat!("`", stringify!($handle), "`.")]
        #[allow(non_camel_case_types)] // the name of the header
        pub struct $handle($type);

        impl $handle {
            /// # Safety
            /// `handle` is null, or was not closed.
            #[inline]
            unsafe fn get<'a>(handle: *const $handle) -> Result<&'a $type> {
                // SAFETY: the caller's promise.
                unsafe { handle.as_ref() }.map(|handle| &handle.0).ok_or_else(|| null("the handle"))
            }
        }

        /// Opens one.
        ///
        /// # Safety
        /// `name` is null or a C string.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $open(
            name: *const c_char,
            flags: c_int,
            mode: u32,
            count: u32,
            $($more: u32,)?
        ) -> *mut $handle {
            guard(null_mut(), || {
                // SAFETY: the caller's promise.
                let name = unsafe { text("name", name) }?;
                let between_hosts = flags & HOSTS != 0;
                let (host, options) = (host()?, SyncOptions { mode, count, between_hosts });
                let opened = open_with(
                    flags & !HOSTS,
                    || $type::open(&host, name),
                    || $type::create(&host, name, $($more,)? &options),
                    || $type::open_or_create(&host, name, $($more,)? &options),
                );
                Ok(Box::into_raw(Box::new($handle(opened?))))
            })
        }

        /// Another one of the object.
        ///
        /// # Safety
        /// `handle` is null, or was not closed.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $at(handle: *const $handle, index: u32) -> *mut $handle {
            guard(null_mut(), || {
                // SAFETY: the caller's promise.
                let other = unsafe { $handle::get(handle) }?.at(index)?;
                Ok(Box::into_raw(Box::new($handle(other))))
            })
        }

        /// Closes a handle.
        ///
        /// # Safety
        /// `handle` is null, or was not closed and is not used any more.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $close(handle: *mut $handle) -> c_int {
            number_of(|| {
                if handle.is_null() {
                    return Err(null("the handle"));
                }
                // SAFETY: handles come from a box, and the caller gives this one up.
                drop(unsafe { Box::from_raw(handle) });
                Ok(())
            })
        }
    };
}

/// Calls of a kind: their name, the arguments beside the handle, and what they do.
macro_rules! calls {
    ($handle:ident: $($name:ident($($argument:ident: $type:ty),*) |$it:ident| $body:expr;)*) => {$(
        #[doc = concat!("See the header: `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// `handle` is null, or was not closed.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: *const $handle $(, $argument: $type)*) -> c_int {
            number_of(|| {
                // SAFETY: the caller's promise.
                let $it = unsafe { $handle::get(handle) }?;
                $body
            })
        }
    )*};
}

kind!(ch_mutex, Mutex, ch_mutex_open, ch_mutex_at, ch_mutex_close, ());
kind!(ch_cond, Condition, ch_cond_open, ch_cond_at, ch_cond_close, ());
kind!(ch_rwlock, RwLock, ch_rwlock_open, ch_rwlock_at, ch_rwlock_close, ());
kind!(ch_counter, Counter, ch_counter_open, ch_counter_at, ch_counter_close, ());
kind!(ch_sem, Semaphore, ch_sem_open, ch_sem_at, ch_sem_close, (value));
kind!(ch_barrier, Barrier, ch_barrier_open, ch_barrier_at, ch_barrier_close, (parties));

calls!(ch_mutex:
    ch_mutex_trylock() |mutex| within(0, |wait| mutex.acquire_marked(wait)).and_then(owner_died);
    ch_mutex_timedlock(timeout_ms: c_int) |mutex| {
        within(timeout_ms, |wait| mutex.acquire_marked(wait)).and_then(owner_died)
    };
    ch_mutex_consistent() |mutex| mutex.consistent();
);

calls!(ch_rwlock:
    ch_rwlock_rdlock() |lock| lock.acquire_read(Wait::Forever);
    ch_rwlock_tryrdlock() |lock| within(0, |wait| lock.acquire_read(wait));
    ch_rwlock_timedrdlock(timeout_ms: c_int) |lock| within(timeout_ms, |wait| lock.acquire_read(wait));
    ch_rwlock_wrlock() |lock| lock.acquire_write_marked(Wait::Forever).and_then(owner_died);
    ch_rwlock_trywrlock() |lock| within(0, |wait| lock.acquire_write_marked(wait)).and_then(owner_died);
    ch_rwlock_timedwrlock(timeout_ms: c_int) |lock| {
        within(timeout_ms, |wait| lock.acquire_write_marked(wait)).and_then(owner_died)
    };
    ch_rwlock_unlock() |lock| lock.release();
    ch_rwlock_consistent() |lock| lock.consistent();
);

calls!(ch_sem:
    ch_sem_wait() |semaphore| semaphore.acquire(None);
    ch_sem_trywait() |semaphore| within(0, |wait| semaphore.acquire_with(wait));
    ch_sem_timedwait(timeout_ms: c_int) |semaphore| within(timeout_ms, |wait| semaphore.acquire_with(wait));
    ch_sem_post(more: u32) |semaphore| semaphore.release(more);
);

calls!(ch_cond:
    ch_cond_signal() |cond| cond.signal();
    ch_cond_broadcast() |cond| cond.broadcast();
);

calls!(ch_barrier:
    ch_barrier_abort() |barrier| barrier.abort();
);

/// See the header. What costs more than the lock itself (a handler of panics, a change of the thread's cancellation) is for
/// those alone who have to wait, or are told something.
///
/// # Safety
/// `handle` is null, or was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_mutex_lock(handle: *const ch_mutex) -> c_int {
    // SAFETY: the caller's promise.
    let mutex = unsafe { handle.as_ref() };
    if mutex.is_some_and(|mutex| mutex.0.lock_free()) {
        return 0;
    }
    number_of(|| {
        let mutex = mutex.ok_or_else(|| null("the handle"))?;
        mutex.0.acquire_marked(Wait::Forever).and_then(owner_died)
    })
}

/// See the header; as `ch_mutex_lock`.
///
/// # Safety
/// `handle` is null, or was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_mutex_unlock(handle: *const ch_mutex) -> c_int {
    // SAFETY: the caller's promise.
    let mutex = unsafe { handle.as_ref() };
    if mutex.is_some_and(|mutex| mutex.0.unlock_unwanted()) {
        return 0;
    }
    number_of(|| mutex.ok_or_else(|| null("the handle"))?.0.release())
}

/// See the header.
///
/// # Safety
/// The handles are null, or were not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_cond_wait(cond: *const ch_cond, mutex: *const ch_mutex) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { ch_cond_timedwait(cond, mutex, -1) }
}

/// See the header.
///
/// # Safety
/// The handles are null, or were not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_cond_timedwait(
    cond: *const ch_cond,
    mutex: *const ch_mutex,
    timeout_ms: c_int,
) -> c_int {
    number_of(|| {
        // SAFETY: the caller's promise.
        let (cond, mutex) = unsafe { (ch_cond::get(cond)?, ch_mutex::get(mutex)?) };
        cond.wait_with(mutex, wait_of(timeout_ms))
    })
}

/// See the header.
///
/// # Safety
/// The handle is null, or was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_barrier_wait(barrier: *const ch_barrier) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { ch_barrier_timedwait(barrier, -1) }
}

/// See the header.
///
/// # Safety
/// The handle is null, or was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_barrier_timedwait(barrier: *const ch_barrier, timeout_ms: c_int) -> c_int {
    let mut is_last = false;
    let failed = number_of(|| {
        // SAFETY: the caller's promise.
        let barrier = unsafe { ch_barrier::get(barrier) }?;
        is_last = barrier.wait_with(wait_of(timeout_ms))?;
        Ok(())
    });
    if is_last { BARRIER_LAST } else { failed }
}

/// See the header.
///
/// # Safety
/// The handle is null, or was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_sem_value(semaphore: *const ch_sem) -> u32 {
    // SAFETY: the caller's promise.
    guard(0, || unsafe { ch_sem::get(semaphore) }?.value())
}

/// See the header.
///
/// # Safety
/// The handle is null, or was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_counter_value(counter: *const ch_counter) -> u64 {
    // SAFETY: the caller's promise.
    guard(0, || unsafe { ch_counter::get(counter) }?.value())
}

/// See the header.
///
/// # Safety
/// The handle is null, or was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_counter_add(counter: *const ch_counter, more: u64) -> u64 {
    // SAFETY: the caller's promise.
    guard(0, || unsafe { ch_counter::get(counter) }?.add(more))
}

/// See the header.
///
/// # Safety
/// The handle is null, or was not closed; `expected` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_counter_exchange(
    counter: *const ch_counter,
    expected: *mut u64,
    wanted: u64,
) -> c_int {
    let mut is_another = false;
    let failed = number_of(|| {
        // SAFETY: the caller's promise.
        let (counter, expected) = unsafe { (ch_counter::get(counter)?, expected.as_mut()) };
        let expected = expected.ok_or_else(|| null("expected"))?;
        let seen = counter.compare_exchange(*expected, wanted)?;
        (is_another, *expected) = (seen != *expected, seen);
        Ok(())
    });
    if is_another { libc::EAGAIN } else { failed }
}

/// See the header.
///
/// # Safety
/// The handle is null, or was not closed; `value` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_counter_wait(
    counter: *const ch_counter,
    value: *mut u64,
    timeout_ms: c_int,
) -> c_int {
    number_of(|| {
        // SAFETY: the caller's promise.
        let (counter, value) = unsafe { (ch_counter::get(counter)?, value.as_mut()) };
        let value = value.ok_or_else(|| null("value"))?;
        *value = within(timeout_ms, |wait| counter.wait_while_with(*value, wait))?;
        Ok(())
    })
}
