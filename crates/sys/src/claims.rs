//! Claim words: how a client that serves its own faults and a host that evicts keep out of each other's way.
//!
//! One byte a page of a mapping with in-thread service, in memory that host and client share (a memfd of fixed,
//! sealed size). Who writes: both, by compare-and-swap alone.
//!
//! ```text
//!          client               client (done)
//!  ASK  ─────────►  CLAIMED  ───────────────►  INSTALLED
//!  ZERO ─────────►     │  (no frame: back to ASK, then ask the host)
//!   ▲                  │
//!   │ host (done)      │ host finds CLAIMED: leaves the page alone
//!   └── BUSY ◄── host ─┴── from ASK, ZERO, INSTALLED
//! ```
//!
//! * A client installs a page only between its swap to CLAIMED and its store of INSTALLED (or back).
//! * The host drops or changes a frame only after it swapped the word to BUSY in every such mapping.
//! * ZERO is a grant: no frame exists, none was ever written, and its room in the budget is taken.
//!
//! A client that dies in CLAIMED is seen by its process's end, which takes the mapping. A hostile client may
//! write anything here: it then loses pages it wrote, or keeps pages in memory that its own budget pays for; the
//! host takes unknown values for CLAIMED and never waits for one.

use crate::{memory, plain};
use commonhold_points as points;
use rustix::fs::{MemfdFlags, Mode, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

/// Nothing is known: continue a frame if there is one, else ask the host.
pub const ASK: u8 = 0;
/// The page was never written and may be filled with zeros.
pub const ZERO: u8 = 1;
/// The client is installing it.
pub const CLAIMED: u8 = 2;
/// The client has installed it.
pub const INSTALLED: u8 = 3;
/// The host is at work on it.
pub const BUSY: u8 = 4;

/// What the memory is called.
const NAME: &str = "commonhold-claims";
/// With these it keeps its size, and nobody may forbid writing to it.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The claim words of one mapping.
#[derive(Debug)]
pub struct Claims {
    fd: OwnedFd,
    words: NonNull<AtomicU8>,
    pages: usize,
}

// SAFETY: the mapping lives as long as the value, and is reached only through atomic operations.
unsafe impl Send for Claims {}
// SAFETY: as above.
unsafe impl Sync for Claims {}

impl Claims {
    /// Words for `pages` pages, all ASK.
    pub fn create(pages: usize) -> io::Result<Claims> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(NAME, flags)?;
        rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::ftruncate(&fd, pages.next_multiple_of(4096) as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SEALS)?;
        Self::open(fd, pages)
    }

    /// The words that another process made. Refused when a touch of them could fail: only memory in small pages, whose
    /// size is sealed, always has a page for one.
    pub fn open(fd: OwnedFd, pages: usize) -> io::Result<Claims> {
        let refused = || io::Error::new(io::ErrorKind::InvalidInput, "not the claim words of such a mapping");
        let seals = plain::seals(&fd)?;
        if pages == 0 || pages > isize::MAX as usize - 4096 || seals.bits() & SEALS.bits() != SEALS.bits() {
            return Err(refused());
        }
        let bytes = u64::try_from(rustix::fs::fstat(&fd)?.st_size).unwrap_or(0);
        if bytes < pages.next_multiple_of(4096) as u64 {
            return Err(refused());
        }
        // SAFETY: a fresh mapping at an address the kernel chooses, of a file that cannot shrink.
        let map = || unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                pages.next_multiple_of(4096),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &fd,
                0,
            )
        };
        let address = points::mmap(map)?;
        let words = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at null"))?;
        Ok(Claims { fd, words, pages })
    }

    /// The words that a host of that user made: what a client brings to the next host.
    pub fn of_a_host(fd: OwnedFd, pages: usize, host_uid: u32) -> io::Result<Claims> {
        if !plain::is_made_by(&fd, host_uid, NAME)? {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "no host of this user made them"));
        }
        Self::open(fd, pages)
    }

    /// The descriptor, for the other side.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// The first word, for code that must not call anything (a signal handler).
    pub fn as_ptr(&self) -> *const AtomicU8 {
        self.words.as_ptr()
    }

    /// The word of a page of the mapping.
    pub fn word(&self, index: usize) -> &AtomicU8 {
        assert!(index < self.pages, "page outside the mapping");
        // SAFETY: the index was checked against the mapping's length, which is sealed; all access is atomic.
        unsafe { self.words.add(index).as_ref() }
    }

    /// Takes the page for the host; what the word was before, or `None` when the client is at it.
    pub fn take(&self, index: usize) -> Option<u8> {
        let word = self.word(index);
        [ASK, INSTALLED, ZERO]
            .into_iter()
            .find(|before| word.compare_exchange(*before, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok())
    }

    /// Whether the host has the page.
    pub fn is_taken(&self, index: usize) -> bool {
        self.word(index).load(Ordering::Acquire) == BUSY
    }

    /// Gives the page back: the client starts from nothing.
    pub fn release(&self, index: usize) {
        self.word(index).store(ASK, Ordering::Release);
    }

    /// Lets the client fill the page with zeros, unless it knows more already, or is at it; whether it may now.
    pub fn grant_zero(&self, index: usize) -> bool {
        self.word(index).compare_exchange(ASK, ZERO, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// For a host that does not know what its predecessor did: all grants are taken back, and a page that it was at
    /// counts as installed, which is the careful guess.
    pub fn take_over(&self) -> io::Result<()> {
        self.take_over_part(0..self.pages.next_multiple_of(4096))
    }

    /// Memory that nobody used is passed over. Looking for the rest by lseek would wait for whoever
    /// writes to the memory by write(2), for as long as that likes.
    fn take_over_part(&self, part: Range<usize>) -> io::Result<()> {
        let state = crate::frames::cache_state(&self.fd, part.start as u64, part.len() as u64)?;
        if state.cached + state.evicted == 0 {
            return Ok(());
        }
        if part.len() > 4096 {
            let middle = part.start + (part.len() / 2).next_multiple_of(4096);
            self.take_over_part(part.start..middle)?;
            return self.take_over_part(middle..part.end);
        }
        for index in part.start..part.end.min(self.pages) {
            let word = self.word(index);
            // A word that says something else stays as it is.
            let _ = word.compare_exchange(ZERO, ASK, Ordering::AcqRel, Ordering::Relaxed);
            let _ = word.compare_exchange(BUSY, INSTALLED, Ordering::AcqRel, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether the client may have put the page into its page table.
    pub fn may_be_installed(&self, index: usize) -> bool {
        !matches!(self.word(index).load(Ordering::Acquire), ASK | ZERO | BUSY)
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        // SAFETY: mapped in `open` with this length; references do not outlive self.
        let _ = unsafe { memory::unmap(self.words.cast(), self.pages.next_multiple_of(4096)) };
    }
}

impl AsFd for Claims {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_client_exclude_each_other() {
        let host = Claims::create(5000).unwrap();
        let client = Claims::open(host.fd().try_clone().unwrap(), 5000).unwrap();
        client.word(7).store(CLAIMED, Ordering::Release);
        assert_eq!(host.take(7), None);
        client.word(7).store(INSTALLED, Ordering::Release);
        assert!(host.may_be_installed(7));
        assert_eq!(host.take(7), Some(INSTALLED));
        let claimed = client.word(7).compare_exchange(ASK, CLAIMED, Ordering::AcqRel, Ordering::Relaxed);
        assert_eq!(claimed, Err(BUSY));
        host.release(7);
        assert!(host.grant_zero(7));
        assert!(!host.grant_zero(7));
        assert_eq!(client.word(7).load(Ordering::Acquire), ZERO);
        client.word(9).store(77, Ordering::Release);
        assert_eq!(host.take(9), None, "garbage is left alone");
    }

    #[test]
    fn grants_are_taken_back_wherever_they_are() {
        let claims = Claims::create(1 << 20).unwrap();
        let at = [0, 4095, 4096, 12_288, 777_777, (1 << 20) - 1];
        at.iter().for_each(|index| claims.word(*index).store(ZERO, Ordering::Release));
        claims.word(5).store(BUSY, Ordering::Release);
        claims.take_over().unwrap();
        assert!(at.iter().all(|index| claims.word(*index).load(Ordering::Acquire) == ASK));
        assert_eq!(claims.word(5).load(Ordering::Acquire), INSTALLED);
        let taken = crate::frames::cache_state(claims.fd(), 0, 1 << 20).unwrap();
        assert!(taken.cached <= 5, "what nobody used takes memory now: {taken:?}");
    }

    #[test]
    fn words_that_could_vanish_are_refused() {
        let loose = crate::frames::create("loose", 4096).unwrap();
        assert!(Claims::open(loose, 100).is_err());
        let host = Claims::create(100).unwrap();
        assert!(Claims::open(host.fd().try_clone().unwrap(), 5000).is_err());
        assert!(rustix::fs::ftruncate(host.fd(), 0).is_err());
        // Sealed as words are, and made by somebody else.
        let me = rustix::process::geteuid().as_raw();
        Claims::of_a_host(host.fd().try_clone().unwrap(), 100, me).unwrap();
        assert!(Claims::of_a_host(host.fd().try_clone().unwrap(), 100, me + 1).is_err());
    }

    #[test]
    fn memory_that_may_have_no_page_for_a_touch_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        // A kernel without huge pages makes none.
        let Ok(huge) = rustix::fs::memfd_create(NAME, flags) else { return };
        rustix::fs::ftruncate(&huge, 2 << 20).unwrap();
        rustix::fs::fcntl_add_seals(&huge, SEALS).unwrap();
        assert!(Claims::open(huge, 100).is_err());
    }
}
