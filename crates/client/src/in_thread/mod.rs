//! In-thread service: the faulting thread serves itself where it need not ask anybody.
//!
//! A mapping that asks for it stands under a userfaultfd whose faults raise SIGBUS. The handler below looks at the
//! page's claim word (`commonhold_sys::claims` tells who may change what) and then
//!
//! * continues a frame that exists, or fills a page with zeros that the host granted: two system calls, nobody woken;
//! * for anything else reads one byte through a second, ordinary mapping of the same pages, which the host serves, and
//!   tries again.
//!
//! What it costs: the kernel's own accesses to pages that are not there (`read()` into the mapping) fail with EFAULT
//! instead of waiting, and a SIGBUS handler lives in the program. A handler that was there before is called for all
//! other addresses; one installed later must call this one. A thread that blocks SIGBUS dies of such a fault. Partial
//! unmapping works; a fork child's copy of the mapping is served by the host.

use crate::addresses::Origin;
use crate::link::lock;
use crate::mapping::Mapping;
use crate::{Error, ErrorKind, Result};
use commonhold_sys::claims::{ASK, CLAIMED, Claims, INSTALLED, ZERO};
use commonhold_sys::userfaultfd::Userfaultfd;
use rustix::io::Errno;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, Once};

const PAGE: usize = 4096;
/// Mappings of one process that can be served so at once.
const SLOTS: usize = 64;

/// What the handler must know of a mapping. A slot whose `length` is 0 is free.
struct Slot {
    length: AtomicUsize,
    address: AtomicUsize,
    hidden: AtomicUsize,
    words: AtomicPtr<AtomicU8>,
    uffd: AtomicPtr<Userfaultfd>,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        length: AtomicUsize::new(0),
        address: AtomicUsize::new(0),
        hidden: AtomicUsize::new(0),
        words: AtomicPtr::new(std::ptr::null_mut()),
        uffd: AtomicPtr::new(std::ptr::null_mut()),
    }
}; SLOTS];

/// Who may change the table, which a fork child inherits with its parent's entries.
static CHANGES: Mutex<()> = Mutex::new(());

static ZEROS: [u8; PAGE] = [0; PAGE];

/// The service of one mapping; it ends with the last piece of it.
#[derive(Debug)]
pub(crate) struct Service {
    claims: Claims,
    slot: Mutex<Option<(usize, Mapping)>>,
}

impl Service {
    /// Takes the claim words that the host gave.
    pub(crate) fn new(fd: OwnedFd, pages: usize) -> Result<Service> {
        let claims = Claims::open(fd, pages).map_err(|e| Error::io("taking the host's claim words", &e))?;
        Ok(Service { claims, slot: Mutex::new(None) })
    }

    /// The claim words, to be shown to another host.
    pub(crate) fn claims_fd(&self) -> &OwnedFd {
        self.claims.fd()
    }
}

impl Service {
    /// Nothing of the mapping is left: the table forgets it, and the mapping behind it goes. To be called without any
    /// lock of the library.
    pub(crate) fn end(&self) {
        let taken = lock(&self.slot).take();
        if let Some((index, hidden)) = taken {
            // In a fork child the slot may have been given to another mapping.
            let slot = &TABLE[index];
            if slot.hidden.load(Ordering::Relaxed) == hidden.as_ptr() as usize {
                slot.length.store(0, Ordering::Release);
            }
            drop(hidden);
        }
    }
}

/// Begins to serve a mapping that the host knows. `hidden` is the ordinary mapping of the same pages.
pub(crate) fn begin(origin: &Origin, mapping: &Mapping, uffd: &Userfaultfd, hidden: Mapping) -> Result<()> {
    let service = origin.service.get().ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            "the host does not offer in-thread service: upgrade it, or map without it",
        )
    })?;
    install_handler()?;
    let _changes = lock(&CHANGES);
    let Some(index) = TABLE.iter().position(|slot| slot.length.load(Ordering::Acquire) == 0) else {
        return Err(Error::new(
            ErrorKind::TooMany,
            format!(
                "{SLOTS} mappings of this process have in-thread service, the limit: map this one without it"
            ),
        ));
    };
    let slot = &TABLE[index];
    slot.address.store(mapping.as_ptr() as usize, Ordering::Relaxed);
    slot.hidden.store(hidden.as_ptr() as usize, Ordering::Relaxed);
    slot.words.store(service.claims.as_ptr().cast_mut(), Ordering::Relaxed);
    slot.uffd.store(std::ptr::from_ref(uffd).cast_mut(), Ordering::Relaxed);
    slot.length.store(mapping.len(), Ordering::Release);
    *lock(&service.slot) = Some((index, hidden));
    Ok(())
}

/// In a fork child: its mappings are served by the host, under a userfaultfd of its own.
pub(crate) fn forget_all_after_fork() {
    TABLE.iter().for_each(|slot| slot.length.store(0, Ordering::Release));
}

/// The handler that was there before, once it is known.
struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written once, before the handler that reads it is installed.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::zeroed()));

fn install_handler() -> Result<()> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| {
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
            result = Err(Error::io("installing a SIGBUS handler", &std::io::Error::last_os_error()));
        }
    });
    result
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: errno is the thread's own; the kernel passes a valid siginfo.
    let (errno, address) = unsafe { (*libc::__errno_location(), (*info).si_addr() as usize) };
    let served = TABLE.iter().find_map(|slot| {
        let length = slot.length.load(Ordering::Acquire);
        let start = slot.address.load(Ordering::Relaxed);
        (length != 0 && address >= start && address - start < length)
            .then(|| serve(slot, address - start, context))
    });
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    if served != Some(true) {
        pass_on(signal, info, context);
    }
}

/// Puts the page in place; false: it cannot be had here.
fn serve(slot: &Slot, offset: usize, context: *mut libc::c_void) -> bool {
    let page = offset / PAGE;
    let address = (slot.address.load(Ordering::Relaxed) + page * PAGE) as u64;
    // SAFETY: words and descriptor live as long as the slot is taken, which the caller saw; the words cover the whole
    // mapping.
    let (word, uffd) =
        unsafe { (&*slot.words.load(Ordering::Relaxed).add(page), &*slot.uffd.load(Ordering::Relaxed)) };
    let protect = !is_write(context);
    loop {
        let before = word.load(Ordering::Acquire);
        if !matches!(before, ASK | INSTALLED | ZERO) {
            // Another thread, or the host, is at it.
            // SAFETY: no memory is touched.
            unsafe { libc::sched_yield() };
            continue;
        }
        if word.compare_exchange(before, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            continue;
        }
        let outcome = install(uffd, address, before == ZERO, protect);
        match outcome {
            None | Some(Errno::EXIST) => {
                word.store(INSTALLED, Ordering::Release);
                return true;
            }
            Some(Errno::FAULT) => {
                word.store(ASK, Ordering::Release);
                let hidden = (slot.hidden.load(Ordering::Relaxed) + page * PAGE) as *const u8;
                // SAFETY: the hidden mapping lives as long as the slot is taken; a page that cannot be had raises
                // SIGBUS there, which is no slot's address.
                unsafe { hidden.read_volatile() };
            }
            Some(_) => {
                word.store(before, Ordering::Release);
                return false;
            }
        }
    }
}

/// One attempt; what stopped it.
fn install(uffd: &Userfaultfd, address: u64, zero: bool, protect: bool) -> Option<Errno> {
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
    // SAFETY: written before the handler was installed, and never again. A handler that was there is called as the kernel
    // would have called it; without one the default action is restored, and the access is tried again.
    unsafe {
        let before = (*BEFORE.0.get()).assume_init_ref();
        match before.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::signal(signal, libc::SIG_DFL);
            }
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}
