//! Processes: who they are past the reuse of their numbers, and when they end.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::thread::CapabilitySet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// A process, told from a later one of the same number by its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Process number.
    pub pid: u32,
    /// Start time in clock ticks since boot (/proc/PID/stat, field 22).
    pub start_ticks: u64,
}

/// The identity of the living process `pid`; an error if there is none.
pub fn identity(pid: u32) -> io::Result<Identity> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "unexpected /proc/PID/stat");
    // The second field is the program's name in brackets, and may hold anything: count from the last bracket.
    let rest = stat.rsplit_once(')').ok_or_else(bad)?.1;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next().ok_or_else(bad)?;
    if matches!(state, "Z" | "X") {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the process has ended"));
    }
    let start = fields.nth(18).ok_or_else(bad)?;
    Ok(Identity { pid, start_ticks: start.parse().map_err(|_| bad())? })
}

/// Whether that very process still lives. Where that cannot be found out (no descriptor is left, say) it does.
pub fn is_alive(who: Identity) -> bool {
    match identity(who.pid) {
        Ok(now) => now == who,
        Err(error) => error.kind() != io::ErrorKind::NotFound && error.raw_os_error() != Some(libc::ESRCH),
    }
}

/// The real user of the process `pid`.
pub fn user(pid: u32) -> io::Result<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next());
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "unexpected /proc/PID/status");
    uid.and_then(|uid| uid.parse().ok()).ok_or_else(bad)
}

/// Memory of the process that is pinned for I/O for long (io_uring buffers, RDMA); 0 where that cannot be seen.
pub fn pinned_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmPin:")?.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// The largest file that a process may make (RLIMIT_FSIZE), bytes. /proc is asked, as prlimit(2) needs a right for that which
/// would also exempt who has it.
pub fn file_size_limit(who: Identity) -> io::Result<u64> {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", who.pid))?;
    if !is_alive(who) {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the process has ended"));
    }
    let line = limits.lines().find_map(|line| line.strip_prefix("Max file size"));
    let word = line.and_then(|rest| rest.split_whitespace().next());
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "unexpected /proc/PID/limits");
    match word.ok_or_else(bad)? {
        "unlimited" => Ok(u64::MAX),
        number => number.parse().map_err(|_| bad()),
    }
}

/// Gives up, for this thread and those that it starts, rights that root has over limits: space that a disk keeps for root, disk
/// quotas, and the setuid bit of a file that is written to.
pub fn give_up_rights_over_limits() -> io::Result<()> {
    let unwanted = CapabilitySet::SYS_RESOURCE | CapabilitySet::FSETID;
    let mut rights = rustix::thread::capabilities(None)?;
    rights.effective -= unwanted;
    rights.permitted -= unwanted;
    rights.inheritable -= unwanted;
    Ok(rustix::thread::set_capabilities(None, rights)?)
}

/// A descriptor of the process `pid`.
pub fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a process number"))?;
    Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
}

/// Whether the process of a pidfd has ended.
pub fn has_ended(pidfd: impl AsFd) -> bool {
    readable_within(pidfd, 0).unwrap_or(true)
}

/// Waits until `fd` is readable (or its other end gone), at most `timeout_ms`.
pub fn readable_within(fd: impl AsFd, timeout_ms: u64) -> io::Result<bool> {
    let mut poll = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
    let timeout =
        Timespec { tv_sec: (timeout_ms / 1000) as i64, tv_nsec: ((timeout_ms % 1000) * 1_000_000) as i64 };
    match rustix::event::poll(&mut poll, Some(&timeout)) {
        Ok(n) => Ok(n > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Milliseconds since boot, sleep included (CLOCK_BOOTTIME): no change of the wall clock moves it.
pub fn boottime_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// The kernel's name for this boot.
pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_file_that_a_process_may_make() {
        let me = identity(std::process::id()).unwrap();
        let known = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        assert_eq!(file_size_limit(me).unwrap(), known.unwrap_or(u64::MAX));
        let other = Identity { start_ticks: me.start_ticks + 1, ..me };
        file_size_limit(other).unwrap_err();
    }

    #[test]
    fn rights_over_limits_are_given_up_by_a_thread() {
        let thread = std::thread::spawn(|| {
            give_up_rights_over_limits().unwrap();
            rustix::thread::capabilities(None).unwrap()
        });
        let left = thread.join().unwrap();
        let unwanted = CapabilitySet::SYS_RESOURCE | CapabilitySet::FSETID;
        assert!(!left.effective.intersects(unwanted) && !left.permitted.intersects(unwanted));
    }
}
