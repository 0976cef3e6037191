//! `fault-server`: a bare userfaultfd server, as little as one can be: a missing page is copied in, no more.

use crate::failure::{Result, failed};
use crate::view::{PAGE, RawMapping};
use crate::worker;
use commonhold_sys::process;
use commonhold_sys::socket::{self, Wait};
use commonhold_sys::userfaultfd::{Fault, Userfaultfd};
use rustix::event::{PollFd, PollFlags};
use std::os::fd::AsFd;

/// The first word of the shared control page: how to wait.
pub const SLEEP: u64 = 0;
/// Look again and again without sleeping.
pub const SPIN: u64 = 1;

/// Receives a userfaultfd and a control page over its standard input, and serves until that is closed.
pub fn run() -> Result<()> {
    worker::say("ready")?;
    let input = std::io::stdin();
    let mut descriptors = Vec::new();
    socket::receive(&input, &mut [0; 16], &mut descriptors, Wait::Yes)?;
    let (Some(control), Some(uffd)) = (descriptors.pop(), descriptors.pop()) else {
        return failed("fault-server got no descriptors");
    };
    let control = RawMapping::shared(control, PAGE)?;
    let uffd = Userfaultfd::from_fd(uffd);
    let page = [0u8; PAGE];
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
            let progress = uffd.copy(fault.address, &page, false);
            if let Some(errno) = progress.stopped_by {
                return failed(format!("UFFDIO_COPY: {errno}"));
            }
        }
    }
}
