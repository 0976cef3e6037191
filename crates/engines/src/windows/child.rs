//! An access by the processor, in a child that dies of it where the pages do not allow it.

use super::addresses::Addresses;
use crate::engine::Kind;
use std::io;

/// Whether a forked child outlives an access.
pub fn lives(addresses: &Addresses, at: usize, kind: Kind) -> io::Result<bool> {
    let address = addresses.address(at);
    // SAFETY: the child calls nothing but what a signal handler may.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => touch(address, kind),
        child => end_of(child),
    }
}

/// The child's whole life.
fn touch(address: *mut u64, kind: Kind) -> ! {
    // SAFETY: settings of this process, which ends in this function. The address is one of a run
    // that only the parent's engine uses; whether it may be accessed is what is asked.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        match kind {
            Kind::Read => drop(address.read_volatile()),
            Kind::Write(word) => address.write_volatile(word),
        }
        libc::_exit(0)
    }
}

/// Whether a child ended by itself, and not of SIGSEGV.
fn end_of(child: libc::pid_t) -> io::Result<bool> {
    let mut status = 0;
    loop {
        // SAFETY: waits for a child of ours; `status` is writable.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } == child {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    if libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV {
        return Ok(false);
    }
    let ended = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
    ended.then_some(true).ok_or_else(|| io::Error::other(format!("a child ended with status {status}")))
}
