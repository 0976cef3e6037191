//! `fault-server`: a bare userfaultfd server, as little as one can be: a missing page is copied in, a protected one is copied
//! aside and may be written then, no more.

use crate::failure::{Result, failed};
use crate::view::{PAGE, RawMapping};
use crate::worker;
use commonhold_sys::process;
use commonhold_sys::socket::{self, Wait};
use commonhold_sys::userfaultfd::{Fault, Userfaultfd};
use rustix::event::{PollFd, PollFlags};
use std::os::fd::{AsFd, OwnedFd};

/// The first word of the shared control page: how to wait.
pub const SLEEP: u64 = 0;
/// Look again and again without sleeping.
pub const SPIN: u64 = 1;

/// Pages that may be protected.
struct Protected {
    address: u64,
    memory: OwnedFd,
    aside: OwnedFd,
}

impl Protected {
    fn copy_aside(&self, address: u64, page: &mut [u8; PAGE]) -> Result<()> {
        let at = address - self.address;
        if rustix::io::pread(&self.memory, &mut page[..], at)? != PAGE
            || rustix::io::pwrite(&self.aside, page, at)? != PAGE
        {
            return failed("a page could not be copied");
        }
        Ok(())
    }
}

/// Receives a userfaultfd and a control page over its standard input, and (with an address) memory that may be protected and
/// a file for copies of its pages; and serves until that is closed.
pub fn run() -> Result<()> {
    worker::say("ready")?;
    let input = std::io::stdin();
    let mut descriptors = Vec::new();
    let mut address = [0; 8];
    socket::receive(&input, &mut address, &mut descriptors, Wait::Yes)?;
    let protected = (descriptors.len() == 4).then(|| descriptors.pop().zip(descriptors.pop())).flatten();
    let address = u64::from_le_bytes(address);
    let protected = protected.map(|(aside, memory)| Protected { address, memory, aside });
    let (Some(control), Some(uffd)) = (descriptors.pop(), descriptors.pop()) else {
        return failed("fault-server got no descriptors");
    };
    let control = RawMapping::shared(control, PAGE)?;
    let uffd = Userfaultfd::from_fd(uffd);
    let mut page = [0u8; PAGE];
    let mut faults: Vec<Fault> = Vec::new();
    let mut looks = 0u32;
    loop {
        if control.view().read_word(0) == SPIN {
            looks = looks.wrapping_add(1);
            // Spinning must not outlive the row.
            if looks.is_multiple_of(1 << 20) && process::readable_within(&input, 0)? {
                return Ok(());
            }
        } else {
            let mut waits =
                [PollFd::new(&uffd, PollFlags::IN), PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN)];
            rustix::event::poll(&mut waits, None)?;
            if !waits[1].revents().is_empty() {
                return Ok(());
            }
        }
        uffd.read_faults(&mut faults)?;
        for fault in &faults {
            if let (true, Some(protected)) = (fault.protected, &protected) {
                protected.copy_aside(fault.address, &mut page)?;
                uffd.unprotect(fault.address, PAGE as u64)?;
                continue;
            }
            let progress = uffd.copy(fault.address, &page, false);
            if let Some(errno) = progress.stopped_by {
                return failed(format!("UFFDIO_COPY: {errno}"));
            }
        }
    }
}
