//! Who uses a heap, and who of them lives.

use commonhold_sys::process::{self, Identity};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;

/// The processes that use a heap. A process is a number that is not 0, among those of its host; so is
/// a host.
pub trait People: Send + Sync + std::fmt::Debug {
    /// This host.
    fn host(&self) -> u64;

    /// This process.
    fn me(&self) -> u64;

    /// Whether a process of this host has ended. In doubt it has not.
    fn has_ended(&self, process: u64) -> bool;

    /// Whether all processes of a host that is not this one have ended. In doubt they have not.
    fn host_has_ended(&self, host: u64) -> bool;
}

/// Processes as `/proc` shows them.
#[derive(Clone, Debug)]
pub struct Known {
    host: u64,
    me: u64,
    is_local: bool,
}

/// Bits of a process's number in its word; the others are its start time.
const PID_BITS: u32 = 22;
/// No such process.
const ESRCH: i32 = 3;

impl Known {
    /// This process, a client of the daemon that is called so. `is_local`: no other machine has the
    /// heap, so that whoever used it before this machine was started has ended.
    pub fn here(is_local: bool, daemon: &Path) -> io::Result<Known> {
        let me = process::identity(std::process::id())?;
        let (mut boot, mut space) = (DefaultHasher::new(), DefaultHasher::new());
        process::boot_id()?.hash(&mut boot);
        (inode("/proc/self/ns/pid")?, daemon).hash(&mut space);
        let host = boot.finish() << 32 | space.finish() & 0xffff_ffff;
        // One whose number is 0 would be nobody.
        Ok(Known { host: host | 1 << 63, me: word(me), is_local })
    }
}

fn inode(path: &str) -> io::Result<u64> {
    use std::os::linux::fs::MetadataExt;
    Ok(std::fs::metadata(path)?.st_ino())
}

fn word(who: Identity) -> u64 {
    who.start_ticks << PID_BITS | u64::from(who.pid)
}

impl People for Known {
    fn host(&self) -> u64 {
        self.host
    }

    fn me(&self) -> u64 {
        self.me
    }

    fn has_ended(&self, process: u64) -> bool {
        if process == self.me {
            return false;
        }
        let pid = (process & ((1 << PID_BITS) - 1)) as u32;
        let is_gone = |error: &io::Error| {
            error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH)
        };
        match process::identity(pid) {
            Ok(now) => word(now) != process,
            // Of a zombie other threads may run on; the kernel's descriptor tells.
            Err(error) if is_gone(&error) => match process::pidfd(pid) {
                Ok(descriptor) => process::readable_within(descriptor, 0).unwrap_or(false),
                Err(error) => is_gone(&error) || error.kind() == io::ErrorKind::InvalidInput,
            },
            Err(_) => false,
        }
    }

    fn host_has_ended(&self, host: u64) -> bool {
        // Another PID name space, or daemon, of this boot cannot be seen from here.
        self.is_local && host >> 32 != self.host >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ended_is_known_and_who_lives_too() {
        let here = Known::here(true, Path::new("/a")).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let its = word(process::identity(child.id()).unwrap());
        assert!(!here.has_ended(here.me()) && !here.has_ended(its));
        // One that started at another time had the number before.
        assert!(here.has_ended(its + (1 << PID_BITS)));
        child.kill().unwrap();
        // Killed, and not waited for.
        let descriptor = process::pidfd(child.id()).unwrap();
        assert!(process::readable_within(descriptor, 60_000).unwrap() && here.has_ended(its));
        child.wait().unwrap();
        assert!(here.has_ended(its));
        let (other_boot, other_space) = (here.host() ^ 1 << 40, here.host() ^ 1);
        assert!(here.host_has_ended(other_boot) && !here.host_has_ended(other_space));
        assert!(!Known::here(false, Path::new("/a")).unwrap().host_has_ended(other_boot));
    }
}
