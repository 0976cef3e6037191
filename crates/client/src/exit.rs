//! Orderly exit: a program that ends without unmapping has unmapped.
//!
//! When the last mapping of modified pages goes in an orderly way, they are stored. A process that calls
//! `exit` or returns from `main` counts as orderly: this library's last function, which runs after all of the
//! program's own exit handlers, tells the host. `_exit`, a signal and a crash run no such function: their pages
//! stay in memory unsynced (see `on_last_death`).
//!
//! Other threads may still run at that time. Once the host has looked for the last time, they must neither
//! write nor read, and it would be wrong to kill the program for it: a thread that touches a mapping from then
//! on sleeps until the process is gone, a few milliseconds later.

use crate::addresses::{ADDRESSES, Piece, PieceState, start_of};
use crate::link::{Call, HOSTS, Shared};
use crate::{ErrorKind, Protection};
use commonhold_object::wire::Request;
use commonhold_object::{AddressMap, Region};
use commonhold_sys::memory;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// How long all of it may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// Runs when the program (or the library) is finished: after every function registered with atexit.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

/// Makes sure that the linker keeps the above.
pub(crate) fn link_in() {
    std::hint::black_box(&AT_EXIT);
}

extern "C" fn at_exit() {
    let _ = catch_unwind(leave_in_order);
}

fn leave_in_order() {
    let deadline = Instant::now() + DEADLINE;
    let pieces = {
        let Some(map) = lock_until(&ADDRESSES, deadline) else { return };
        controlled_pieces(&map)
    };
    if pieces.is_empty() {
        return;
    }
    if other_threads() {
        park_who_touches(&pieces);
    }
    for piece in &pieces {
        // SAFETY: the process ends; who touches the range from now on is put to sleep (see above), and this
        // thread runs no more of the program's own code.
        let _ = unsafe { memory::make_inaccessible(start_of(piece.address), piece.length as usize) };
    }
    for shared in lock_until(&HOSTS, deadline).map(|hosts| hosts.clone()).unwrap_or_default() {
        let of_it = pieces.iter().filter(|piece| std::ptr::eq(piece.value.object().shared(), shared));
        // Without a host, what is true of the first is true of all.
        let _ = of_it.map(|piece| tell(shared, piece, deadline)).find(|host_is_there| !host_is_there);
    }
}

/// Gives whether there is a host to be told more.
fn tell(shared: &'static Shared, piece: &Region<Piece>, deadline: Instant) -> bool {
    let request = Request::Unmap { address: piece.address, length: piece.length };
    let Err(error) = shared.call(Call { deadline: Some(deadline), ..Call::new(&request) }) else {
        return true;
    };
    if piece.value.origin.protection == Protection::ReadWrite {
        let name = piece.value.object().label();
        crate::complain(&format!("at exit, the last changes of object {name} were not stored: {error}"));
    }
    error.kind != ErrorKind::Disconnected
}

fn controlled_pieces(map: &AddressMap<Piece>) -> Vec<Region<Piece>> {
    let wanted = |r: &&Region<Piece>| r.value.object().is_controlled() && r.value.state == PieceState::Mapped;
    map.iter().filter(wanted).cloned().collect()
}

/// A thread that was stopped in the middle of something may hold a lock for ever.
fn lock_until<T>(mutex: &Mutex<T>, deadline: Instant) -> Option<MutexGuard<'_, T>> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() > deadline => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn other_threads() -> bool {
    std::fs::read_dir("/proc/self/task").map_or(true, |tasks| tasks.count() > 1)
}

/// The ranges that put a thread to sleep: pairs of first and last address, leaked for the signal handler.
static RANGES: AtomicPtr<(usize, usize)> = AtomicPtr::new(std::ptr::null_mut());
static RANGE_COUNT: AtomicUsize = AtomicUsize::new(0);
/// The thread that ends the process: it must not sleep.
static EXITING_THREAD: AtomicI32 = AtomicI32::new(0);

fn park_who_touches(pieces: &[Region<Piece>]) {
    let ranges: Vec<(usize, usize)> =
        pieces.iter().map(|piece| (piece.address as usize, piece.end() as usize)).collect();
    let ranges = ranges.leak();
    RANGES.store(ranges.as_mut_ptr(), Ordering::SeqCst);
    RANGE_COUNT.store(ranges.len(), Ordering::SeqCst);
    EXITING_THREAD.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::SeqCst);
    // SAFETY: a sigaction is plain data for which all zeroes are valid; the handler is a function of the
    // signature that SA_SIGINFO names, and does only what a signal handler may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
    }
}

extern "C" fn on_fault(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo_t to a SA_SIGINFO handler.
    let address = unsafe { (*info).si_addr() } as usize;
    let (ranges, count) = (RANGES.load(Ordering::SeqCst), RANGE_COUNT.load(Ordering::SeqCst));
    // SAFETY: the two describe a leaked slice that was complete before the handler was installed.
    let ranges = unsafe { std::slice::from_raw_parts(ranges, count) };
    let ours = ranges.iter().any(|(start, end)| (*start..*end).contains(&address));
    let exiting = rustix::thread::gettid().as_raw_nonzero().get() == EXITING_THREAD.load(Ordering::SeqCst);
    if ours && !exiting {
        loop {
            // SAFETY: pause only waits for a signal.
            unsafe { libc::pause() };
        }
    }
    // Somebody else's fault: without a handler it comes again, and ends the process as it should.
    // SAFETY: all zeroes are SIG_DFL; setting it is allowed in a handler.
    unsafe {
        let action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
    }
}
