//! The SIGBUS handler. Everything here runs in a signal handler: no lock, no allocation, no call that may not be made
//! there, and little stack, which may be an alternate one of a few KiB.

use super::{Entry, TABLE, touch};
use crate::{Error, Result};
use commonhold_sys::claims::{ASK, CLAIMED, INSTALLED, ZERO};
use commonhold_sys::userfaultfd::Userfaultfd;
use rustix::io::Errno;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU8, Ordering};

const PAGE: usize = 4096;

static ZEROS: [u8; PAGE] = [0; PAGE];

/// So often a thread looks again at a page that another is at before it begins to sleep in between.
const EAGER_ROUNDS: u32 = 1000;
/// What it then sleeps: who is at the page may be a host that was stopped in the middle of it.
const PAUSE_NS: i64 = 1_000_000;

/// The handler that was there before, once it is known.
struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written once, before the handler that reads it is installed.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::zeroed()));

/// Puts the handler in place. To be called once, unless it fails.
pub(super) fn install() -> Result<()> {
    // SAFETY: a zeroed sigaction is a valid one; the handler has the signature that SA_SIGINFO asks for, does only
    // what may be done in a handler, and BEFORE is written before the handler can run.
    let failed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGBUS, std::ptr::null(), BEFORE.0.get().cast());
        action.sa_sigaction = on_sigbus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut())
    };
    if failed != 0 {
        return Err(Error::io("installing a SIGBUS handler", &std::io::Error::last_os_error()));
    }
    Ok(())
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: errno is the thread's own; the kernel passes a valid siginfo.
    let (errno, code) = unsafe { (*libc::__errno_location(), (*info).si_code) };
    if code > 0 && touch::failed(context) {
        return;
    }
    // Of a signal that a process sent, the address means nothing; a page that is poisoned is there already.
    let served = code == libc::BUS_ADRERR && {
        // SAFETY: as above.
        let address = unsafe { (*info).si_addr() } as usize;
        let hit = |entry: &Entry| address >= entry.address && address - entry.address < entry.length;
        let entry = TABLE.iter().find_map(|slot| slot.read().filter(hit));
        entry.is_some_and(|entry| serve(&entry, address - entry.address, context))
    };
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    if !served {
        pass_on(signal, info, context);
    }
}

/// Puts the page in place; false: it cannot be had.
fn serve(entry: &Entry, offset: usize, context: *mut libc::c_void) -> bool {
    let page = offset / PAGE;
    let address = (entry.address + page * PAGE) as u64;
    // SAFETY: words and descriptor live as long as the slot is taken, which the caller saw; the words cover the whole
    // mapping.
    let (word, uffd) = unsafe { (&*entry.words.add(page), &*entry.uffd) };
    let protect = !is_write(context);
    let mut rounds = 0;
    loop {
        let before = claim(word, &mut rounds);
        match install_page(uffd, address, before == ZERO, protect) {
            None | Some(Errno::EXIST) => {
                word.store(INSTALLED, Ordering::Release);
                return true;
            }
            Some(Errno::FAULT) => {
                word.store(ASK, Ordering::Release);
                if !touch::read((entry.hidden + page * PAGE) as *const u8) {
                    return false;
                }
            }
            Some(Errno::AGAIN) => {
                word.store(before, Ordering::Release);
                pause(&mut rounds);
            }
            Some(_) => {
                word.store(before, Ordering::Release);
                return false;
            }
        }
    }
}

/// Takes the page for this thread, as soon as no other and not the host is at it; gives what its word was.
fn claim(word: &AtomicU8, rounds: &mut u32) -> u8 {
    loop {
        let before = word.load(Ordering::Acquire);
        if !matches!(before, ASK | INSTALLED | ZERO) {
            pause(rounds);
            continue;
        }
        if word.compare_exchange(before, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return before;
        }
    }
}

/// Lets others run.
fn pause(rounds: &mut u32) {
    *rounds = rounds.saturating_add(1);
    if *rounds < EAGER_ROUNDS {
        rustix::thread::sched_yield();
    } else {
        let _ = rustix::thread::nanosleep(&rustix::thread::Timespec { tv_sec: 0, tv_nsec: PAUSE_NS });
    }
}

/// One attempt; what stopped it.
fn install_page(uffd: &Userfaultfd, address: u64, zero: bool, protect: bool) -> Option<Errno> {
    if zero {
        match uffd.copy(address, &ZEROS, protect).stopped_by {
            Some(Errno::EXIST) => {}
            other => return other,
        }
    }
    uffd.continue_(address, PAGE as u64, protect).stopped_by
}

#[cfg(target_arch = "x86_64")]
fn is_write(context: *mut libc::c_void) -> bool {
    const WRITE: i64 = 2;
    // SAFETY: the kernel passes the thread's ucontext; on x86-64 it holds the page fault's error code.
    let error = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_ERR as usize] };
    error & WRITE != 0
}

/// Elsewhere the page is installed protected, and the kernel notes the write: one more trap, nothing else.
#[cfg(not(target_arch = "x86_64"))]
fn is_write(_context: *mut libc::c_void) -> bool {
    false
}

/// What was there before this library, or the end of the process.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: written before the handler was installed, and never again.
    let before = unsafe { (*BEFORE.0.get()).assume_init_ref() };
    // SAFETY: the kernel passes a valid siginfo.
    let sent = unsafe { (*info).si_code } <= 0;
    match before.sa_sigaction {
        libc::SIG_IGN if sent => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: the default action is restored, and then the access is tried again, or the signal sent again:
            // either ends the process, as it should.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                if sent {
                    libc::raise(signal);
                }
            }
        }
        handler => call(before, handler, signal, info, context),
    }
}

/// Calls a handler as the kernel would have called it.
fn call(
    action: &libc::sigaction,
    handler: libc::sighandler_t,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the mask is the action's own, and a copy of it is changed; what was blocked before is blocked again when
    // this library's handler returns. The address is that of a handler with the signature that its flags name.
    unsafe {
        let mut mask = action.sa_mask;
        if action.sa_flags & libc::SA_NODEFER == 0 {
            libc::sigaddset(&mut mask, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &mask, std::ptr::null_mut());
        if action.sa_flags & libc::SA_SIGINFO != 0 {
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(handler);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
            handler(signal);
        }
    }
}
