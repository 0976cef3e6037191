//! Memory pinned for I/O, as a program with registered buffers has it.

use super::{Agent, Done, number, wrong};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const REGISTER_BUFFERS: libc::c_long = 0;

impl Agent {
    /// `pin M first count` pins pages of a mapping for as long as the process lives, or until `unpin`.
    pub(super) fn on_pinned(&mut self, words: &[&str]) -> Done {
        match words {
            ["pin", mapping, first, count] => {
                let start =
                    self.mapping(mapping)?.as_ptr().wrapping_add(number(first)? as usize * crate::PAGE);
                let length = number(count)? as usize * crate::PAGE;
                self.pinned.push(pin(start, length)?);
                Ok(String::new())
            }
            ["unpin"] => {
                self.pinned.clear();
                Ok(String::new())
            }
            _ => Err(wrong(format!("{words:?}?"))),
        }
    }
}

fn pin(start: *mut u8, length: usize) -> std::io::Result<OwnedFd> {
    let failed = |result: libc::c_long| match result {
        0.. => Ok(result),
        _ => Err(std::io::Error::last_os_error()),
    };
    let mut parameters = [0u32; 30];
    // SAFETY: `parameters` is as long as the kernel's struct io_uring_params (120 bytes), zeroed, and outlives the call.
    let ring = failed(unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) })?;
    // SAFETY: the descriptor was just made, and nobody else has it.
    let ring = unsafe { OwnedFd::from_raw_fd(ring as i32) };
    let buffer = libc::iovec { iov_base: start.cast(), iov_len: length };
    // SAFETY: one buffer, which the kernel checks; nothing is ever written to it through the ring.
    failed(unsafe {
        libc::syscall(libc::SYS_io_uring_register, ring.as_raw_fd(), REGISTER_BUFFERS, &raw const buffer, 1)
    })?;
    Ok(ring)
}
