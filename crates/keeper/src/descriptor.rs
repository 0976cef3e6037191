//! Descriptors handed to a program that is started, by their numbers on its command line. All unsafe code of this
//! crate is here.

use rustix::fd::BorrowedFd;
use rustix::io::FdFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Lets the program that `command` starts inherit the descriptors, under the numbers they have here.
pub(crate) fn inherit(command: &mut Command, fds: Vec<OwnedFd>) {
    let clear = move || {
        for fd in &fds {
            rustix::io::fcntl_setfd(fd, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec only fcntl is called, which is async-signal-safe; nothing is allocated, and an
    // io::Error made of an errno allocates nothing either. The closure owns the descriptors, so they are open.
    unsafe { command.pre_exec(clear) };
}

/// Takes the inherited descriptor of that number: `--keeper-fd`, `--lock-fd`. A number that is not open, or whose
/// descriptor this program opened itself, is refused, so one can be taken only once.
pub fn adopt_descriptor(number: i32) -> io::Result<OwnedFd> {
    let refuse =
        |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("descriptor {number} {why}"));
    if number < 3 {
        return Err(refuse("is not one that a keeper or host hands on"));
    }
    // SAFETY: used at once, for a call that fails if the number is not open, and changes nothing.
    let probe = unsafe { BorrowedFd::borrow_raw(number) };
    let flags = rustix::io::fcntl_getfd(probe).map_err(|_| refuse("is not open"))?;
    if flags.contains(FdFlags::CLOEXEC) {
        return Err(refuse("was not inherited"));
    }
    // SAFETY: the descriptor is open and lacks CLOEXEC. Everything that std and this project open has CLOEXEC from the
    // start, so it was inherited, and nobody in this process owns it; with CLOEXEC set below it is not taken again.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(fd.as_fd(), FdFlags::CLOEXEC)?;
    debug_assert_eq!(fd.as_raw_fd(), number);
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_inherited_descriptors_are_adopted() {
        let own = commonhold_sys::frames::create("own", 0).unwrap();
        assert!(adopt_descriptor(own.as_raw_fd()).is_err());
        assert!(adopt_descriptor(1).is_err());
        assert!(adopt_descriptor(1_000_000).is_err());
    }
}
