//! In-thread service: the faulting thread serves itself where it need not ask anybody.
//!
//! A mapping that asks for it stands under a userfaultfd whose faults raise SIGBUS. The handler below looks at the
//! page's claim word (`commonhold_sys::claims` tells who may change what) and then
//!
//! * continues a frame that exists, or fills a page with zeros that the host granted: two system calls, nobody woken;
//! * for anything else reads one byte through a second, ordinary mapping of the same pages, which the host serves, and
//!   tries again.
//!
//! A page that cannot be had (the object was shrunk, its pager failed) is the SIGBUS of the program's own access: the
//! read through the second mapping is one that can fail (`touch.rs`), and then the handler that was there before this
//! one is called, with what the kernel said of the access.
//!
//! What it costs: the kernel's own accesses to pages that are not there (`read()` into the mapping) fail with EFAULT
//! instead of waiting, and a SIGBUS handler lives in the program. A handler that was there before is called for all
//! other addresses; one installed later must call this one. A thread that blocks SIGBUS dies of such a fault. Partial
//! unmapping works; a fork child's copy of the mapping is served by the host.

mod handler;
mod touch;

use crate::addresses::Origin;
use crate::link::lock;
use crate::mapping::Mapping;
use crate::{Error, ErrorKind, Result};
use commonhold_sys::claims::Claims;
use commonhold_sys::userfaultfd::Userfaultfd;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard};

/// Mappings of one process that can be served so at once.
const SLOTS: usize = 64;

/// What the handler must know of a mapping. A slot whose `length` is 0 is free.
///
/// Read by handlers at any time, changed by who holds [`CHANGES`]: `version` is odd during a change, and another one
/// after it. A handler that meets a change looks elsewhere: the page it is for lies in no mapping that is being made,
/// and who unmaps a page promises that nobody touches it any more.
struct Slot {
    version: AtomicUsize,
    length: AtomicUsize,
    address: AtomicUsize,
    hidden: AtomicUsize,
    words: AtomicPtr<AtomicU8>,
    uffd: AtomicPtr<Userfaultfd>,
}

/// What a slot says.
#[derive(Clone, Copy)]
struct Entry {
    length: usize,
    address: usize,
    hidden: usize,
    words: *mut AtomicU8,
    uffd: *mut Userfaultfd,
}

static TABLE: [Slot; SLOTS] = [const { Slot::free() }; SLOTS];

impl Slot {
    const fn free() -> Slot {
        Slot {
            version: AtomicUsize::new(0),
            length: AtomicUsize::new(0),
            address: AtomicUsize::new(0),
            hidden: AtomicUsize::new(0),
            words: AtomicPtr::new(std::ptr::null_mut()),
            uffd: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    fn is_free(&self) -> bool {
        self.length.load(Ordering::Relaxed) == 0
    }

    /// By who holds CHANGES.
    fn put(&self, entry: Entry) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.address.store(entry.address, Ordering::Relaxed);
        self.hidden.store(entry.hidden, Ordering::Relaxed);
        self.words.store(entry.words, Ordering::Relaxed);
        self.uffd.store(entry.uffd, Ordering::Relaxed);
        self.length.store(entry.length, Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
    }

    /// By who holds CHANGES.
    fn clear(&self) {
        let (words, uffd) = (std::ptr::null_mut(), std::ptr::null_mut());
        self.put(Entry { length: 0, address: 0, hidden: 0, words, uffd });
    }

    /// What it says, unless it is free or being changed.
    fn read(&self) -> Option<Entry> {
        if self.is_free() {
            return None;
        }
        let version = self.version.load(Ordering::Acquire);
        let entry = Entry {
            length: self.length.load(Ordering::Relaxed),
            address: self.address.load(Ordering::Relaxed),
            hidden: self.hidden.load(Ordering::Relaxed),
            words: self.words.load(Ordering::Relaxed),
            uffd: self.uffd.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        let same = version & 1 == 0 && self.version.load(Ordering::Relaxed) == version;
        (same && entry.length != 0).then_some(entry)
    }
}

/// What is changed by one thread at a time; fork holds it, so that a child finds everything whole.
pub(crate) struct Changes {
    handler_is_installed: bool,
}

static CHANGES: Mutex<Changes> = Mutex::new(Changes { handler_is_installed: false });

/// For the forking thread.
pub(crate) fn lock_changes() -> MutexGuard<'static, Changes> {
    lock(&CHANGES)
}

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
        let changes = lock(&CHANGES);
        let taken = lock(&self.slot).take();
        if let Some((index, hidden)) = &taken {
            // In a fork child the slot may have been given to another mapping.
            let slot = &TABLE[*index];
            if slot.hidden.load(Ordering::Relaxed) == hidden.as_ptr() as usize {
                slot.clear();
            }
        }
        drop(changes);
        drop(taken);
    }
}

impl Drop for Service {
    /// Without this a handler could use the words of a mapping that the program unmapped behind the library's back.
    fn drop(&mut self) {
        self.end();
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
    let mut changes = lock(&CHANGES);
    if !changes.handler_is_installed {
        handler::install()?;
        changes.handler_is_installed = true;
    }
    let Some(index) = TABLE.iter().position(Slot::is_free) else {
        return Err(Error::new(
            ErrorKind::TooMany,
            format!(
                "{SLOTS} mappings of this process have in-thread service, the limit: map this one without it"
            ),
        ));
    };
    TABLE[index].put(Entry {
        length: mapping.len(),
        address: mapping.as_ptr() as usize,
        hidden: hidden.as_ptr() as usize,
        words: service.claims.as_ptr().cast_mut(),
        uffd: std::ptr::from_ref(uffd).cast_mut(),
    });
    *lock(&service.slot) = Some((index, hidden));
    Ok(())
}

/// In a fork child, by who holds CHANGES: its mappings are served by the host, under a userfaultfd of its own.
pub(crate) fn forget_all_after_fork() {
    TABLE.iter().for_each(Slot::clear);
}
