//! `sync.local_lock_ratio`: a lock by name that nobody else wants, beside the C library's.

use crate::context::Context;
use crate::failure::{Result, failed};
use crate::measure::{alternate_best, some};
use crate::row::{Bar, Measured, Row, rounded};
use commonhold::c_api::{ch_connect, ch_mutex_close, ch_mutex_lock, ch_mutex_open, ch_mutex_unlock};
use commonhold::{Host, Mutex};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use serde_json::json;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

/// The row.
pub struct LocalLockRatio;

/// Of each side of a pair the best of so many runs counts. A run takes milliseconds, so that some
/// are not interrupted by other programs.
const TRIES: usize = 9;

impl Row for LocalLockRatio {
    fn id(&self) -> &'static str {
        "sync.local_lock_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(0.8))
    }

    fn about(&self) -> &'static str {
        "taking a mutex by name and letting it go, from C, while nobody else wants it ÷ the same with a robust pthread mutex \
         that processes share; with the guards of Rust in detail"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let rounds = context.pick(1 << 20, 1 << 16);
        let (by_name, pthread) = (ByName::new(&host)?, Pthread::new()?);
        let pairs = alternate_best(
            context.pick(21, 3),
            TRIES,
            |_| timed(rounds, || by_name.once()),
            |_| timed(rounds, || pthread.once()),
        )?;
        let rust = Mutex::open(&host, "/bench/mutex")?;
        let guards = alternate_best(
            context.pick(21, 3),
            TRIES,
            |_| timed(rounds, || rust.lock(None).is_ok()),
            |_| timed(rounds, || pthread.once()),
        )?;
        some(pairs.ratio(), "ratio")?;
        let detail = json!({
            "unit_of_times": "ns for taking it and letting it go",
            "times": pairs.summary(1e9 / f64::from(rounds)),
            "with_guards_of_rust": rounded(guards.ratio()),
            "rounds": rounds,
        });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

/// Seconds for so many times.
fn timed(rounds: u32, mut once: impl FnMut() -> bool) -> Result<f64> {
    let begun = Instant::now();
    let done = (0..rounds).filter(|_| once()).count();
    let seconds = begun.elapsed().as_secs_f64();
    if done == rounds as usize { Ok(seconds) } else { failed("a mutex that nobody has was not free") }
}

/// The mutex of a host, as C programs have it.
struct ByName(*mut commonhold::c_api::ch_mutex);

impl ByName {
    fn new(host: &Host) -> Result<ByName> {
        let state = CString::new(host.state_directory().as_os_str().as_bytes()).unwrap_or_default();
        // SAFETY: C strings, which live as long as the calls.
        let handle = unsafe {
            ch_connect(state.as_ptr());
            ch_mutex_open(c"/bench/mutex".as_ptr(), 1, 0o600, 1)
        };
        if handle.is_null() { failed("the mutex cannot be opened") } else { Ok(ByName(handle)) }
    }

    fn once(&self) -> bool {
        // SAFETY: a handle that is open.
        unsafe { ch_mutex_lock(self.0) == 0 && ch_mutex_unlock(self.0) == 0 }
    }
}

impl Drop for ByName {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        unsafe { ch_mutex_close(self.0) };
    }
}

/// A robust mutex of the C library, in memory that children would share.
struct Pthread(*mut libc::pthread_mutex_t);

impl Pthread {
    fn new() -> Result<Pthread> {
        let (bytes, protection) = (size_of::<libc::pthread_mutex_t>(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: fresh memory at an address that the kernel chooses; it stays until the process ends.
        let memory = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED) };
        let Ok(memory) = memory else { return failed("no memory for a mutex") };
        let mutex: *mut libc::pthread_mutex_t = memory.cast();
        let mut attributes = std::mem::MaybeUninit::uninit();
        // SAFETY: the attributes are initialised before they are used, and the memory is the mutex's own.
        let refused = unsafe {
            libc::pthread_mutexattr_init(attributes.as_mut_ptr())
                | libc::pthread_mutexattr_setpshared(attributes.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED)
                | libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST)
                | libc::pthread_mutex_init(mutex, attributes.as_ptr())
        };
        if refused == 0 { Ok(Pthread(mutex)) } else { failed("the C library makes no robust mutex") }
    }

    fn once(&self) -> bool {
        // SAFETY: initialised, and never moved.
        unsafe { libc::pthread_mutex_lock(self.0) == 0 && libc::pthread_mutex_unlock(self.0) == 0 }
    }
}
