//! Cutting a process's TCP connections, as a network does that fails: at any byte, for both ends.

use rustix::net::{AddressFamily, Shutdown, getpeername, shutdown};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Cuts all of them; how many. Needs the rights of a debugger.
pub fn cut_connections(pid: u32) -> usize {
    let process = Pid::from_raw(pid as i32).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let Some(process) = process else { return 0 };
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return 0 };
    let sockets = entries.flatten().filter(|entry| {
        std::fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
    });
    let numbers = sockets.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // The process goes on meanwhile: what is under that number now is looked at, not what was.
    let sockets = numbers.filter_map(|number| pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).ok());
    sockets
        .filter(|socket| {
            let peer = getpeername(socket).ok().flatten();
            let is_tcp = peer.is_some_and(|peer| {
                [AddressFamily::INET, AddressFamily::INET6].contains(&peer.address_family())
            });
            is_tcp && shutdown(socket, Shutdown::Both).is_ok()
        })
        .count()
}
