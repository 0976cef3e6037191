//! A small controlled mapping in this very process: the checks try on it what a host does to its clients.

use commonhold_object::PAGE_SIZE_BYTES;
use commonhold_sys::memory::{self, Wish};
use commonhold_sys::userfaultfd::{Kind, Modes, Userfaultfd};
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

/// Bytes in a page, as a length.
pub const PAGE: usize = PAGE_SIZE_BYTES as usize;

/// A memfd of a few pages, mapped and registered for everything.
pub struct Probe {
    /// The descriptor that answers faults.
    pub userfaultfd: Userfaultfd,
    address: NonNull<u8>,
    pages: usize,
}

impl Probe {
    /// Makes one. Nobody answers its faults: only pages that were installed may be touched.
    pub fn new(pages: usize) -> io::Result<Self> {
        let device = Userfaultfd::open_device().ok();
        let device = device.as_ref().map(std::os::fd::AsFd::as_fd);
        let (userfaultfd, _) = Userfaultfd::create(Kind::Asynchronous, device)?;
        let frames = commonhold_sys::frames::create("commonhold-doctor", (pages * PAGE) as u64)?;
        let wish = Wish {
            hint: std::ptr::null_mut(),
            fixed: false,
            write: true,
            private: false,
            not_inherited: true,
            controlled: true,
        };
        let address = memory::map(&frames, 0, pages * PAGE, wish)?;
        let probe = Probe { userfaultfd, address, pages };
        let modes = Modes { missing: true, minor: true, write_protect: true };
        probe.userfaultfd.register(probe.at(0), (pages * PAGE) as u64, modes)?;
        Ok(probe)
    }

    /// Address of a page.
    pub fn at(&self, page: usize) -> u64 {
        (self.address.as_ptr() as usize + page * PAGE) as u64
    }

    /// Installs pages full of `byte`, protected against unnoticed writes.
    pub fn install(&self, page: usize, count: usize, byte: u8) -> io::Result<()> {
        let progress = self.userfaultfd.copy(self.at(page), &vec![byte; count * PAGE], true);
        progress.stopped_by.map_or(Ok(()), |errno| Err(errno.into()))
    }

    /// Writes one byte to a page that was installed, as a program does.
    pub fn write(&self, page: usize, byte: u8) {
        assert!(page < self.pages);
        // SAFETY: the address lies in the mapping, which lives as long as `self` and is known to nobody else;
        // the page was installed, so that no fault has to be answered.
        unsafe { self.address.add(page * PAGE).as_ptr().write_volatile(byte) }
    }

    /// Lets the kernel read a page for us: a failure is an error and not a signal.
    pub fn read_by_kernel(&self, page: usize) -> io::Result<u8> {
        let mut byte = [0];
        std::fs::File::open("/proc/self/mem")?.read_exact_at(&mut byte, self.at(page))?;
        Ok(byte[0])
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // SAFETY: the mapping is this probe's alone, and no reference into it was ever given out.
        let _ = unsafe { memory::unmap(self.address, self.pages * PAGE) };
    }
}
