//! Unix sockets that keep message boundaries and carry descriptors (SOCK_SEQPACKET, SCM_RIGHTS).

use commonhold_points as points;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

/// Most descriptors in one message of ours.
pub const DESCRIPTORS: usize = 16;
/// Most that the kernel lets anybody send in one (SCM_MAX_FD). There is room for all of them: those that it drops it closes
/// in the thread that receives, which would wait for a close that waits.
const ROOM: usize = 253;

/// Who is at the other end of a socket: the kernel's word, taken when the connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process, as seen from here; 0 if it cannot be seen from this process's pid namespace.
    pub pid: u32,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
}

/// Path through which a socket in `directory` is reached however long the directory's name is.
fn address_in(directory: &OwnedFd, name: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))?)
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn new_socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Listens on `directory/name`; a socket file left there is replaced.
pub fn listen(directory: &Path, name: &str, backlog: i32) -> io::Result<OwnedFd> {
    let held = open_directory(directory)?;
    match std::fs::remove_file(directory.join(name)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let socket = new_socket()?;
    rustix::net::bind(&socket, &address_in(&held, name)?)?;
    rustix::net::listen(&socket, backlog)?;
    Ok(socket)
}

/// How long [`connect`] waits where as many wait already as may: for a host that is stopped.
const CONNECTS_WITHIN: Duration = Duration::from_secs(20);

/// Connects to `directory/name`.
pub fn connect(directory: &Path, name: &str) -> io::Result<OwnedFd> {
    let held = open_directory(directory)?;
    let socket = new_socket()?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(CONNECTS_WITHIN))?;
    rustix::net::connect(&socket, &address_in(&held, name)?)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, None)?;
    Ok(socket)
}

/// Takes a connection that waits.
pub fn accept(listener: impl AsFd) -> io::Result<OwnedFd> {
    Ok(rustix::net::accept_with(listener, SocketFlags::CLOEXEC)?)
}

/// Two ends of a new connection.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// The other end's credentials.
pub fn peer(socket: impl AsFd) -> io::Result<Peer> {
    let who = sockopt::socket_peercred(socket)?;
    Ok(Peer {
        pid: u32::try_from(who.pid.as_raw_nonzero().get()).unwrap_or(0),
        uid: who.uid.as_raw(),
        gid: who.gid.as_raw(),
    })
}

/// The other end's supplementary groups, as they were when it connected (SO_PEERGROUPS).
pub fn peer_groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; 128];
    loop {
        let mut bytes = (groups.len() * 4) as libc::socklen_t;
        // SAFETY: the buffer has `bytes` bytes; the kernel writes at most those and says how many it needs.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &mut bytes,
            )
        };
        let count = bytes as usize / 4;
        if result == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() || count > 65_536 {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

/// A descriptor of the process at the other end (SO_PEERPIDFD, Linux 6.5): readable when it has ended.
pub fn peer_pidfd(socket: impl AsFd) -> io::Result<OwnedFd> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut fd: libc::c_int = -1;
    let mut bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes one int, of which `bytes` states the size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &mut bytes,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// How to send and receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until it can be done.
    Yes,
    /// Not at all: [`io::ErrorKind::WouldBlock`].
    No,
}

/// Sends one message with descriptors. The whole message or none of it.
#[cfg_attr(feature = "faults", track_caller)]
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>], wait: Wait) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one message"));
    }
    let mut flags = SendFlags::NOSIGNAL;
    flags.set(SendFlags::DONTWAIT, wait == Wait::No);
    let mut interrupted = None;
    loop {
        let pieces = [IoSlice::new(bytes)];
        match points::send(|| rustix::net::sendmsg(socket.as_fd(), &pieces, &mut control, flags)) {
            Err(rustix::io::Errno::INTR) => check_timeout(&socket, Timeout::Send, &mut interrupted)?,
            Err(errno) => return Err(errno.into()),
            Ok(n) if n == bytes.len() => return Ok(()),
            Ok(_) => return Err(io::Error::new(io::ErrorKind::WriteZero, "message cut short")),
        }
    }
}

/// Receives one message into `buffer` and its descriptors into `fds` (emptied first). Gives its length; 0: the
/// other end is gone. A message longer than the buffer, or with more than [`DESCRIPTORS`], is an error.
#[cfg_attr(feature = "faults", track_caller)]
pub fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    wait: Wait,
) -> io::Result<usize> {
    let received = receive_message(socket, buffer, fds, wait);
    if let Ok((length, true)) = received
        && fds.len() <= DESCRIPTORS
    {
        return Ok(length);
    }
    fds.clear();
    Err(received.err().unwrap_or_else(too_much))
}

/// As [`receive`], of whoever may send anything: all descriptors that came are given, also those of a message that is an
/// error. A message whose descriptors did not all arrive (this process may have no room for them) is no error; says whether
/// they did.
#[cfg_attr(feature = "faults", track_caller)]
pub fn receive_and_tell(
    socket: impl AsFd,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    wait: Wait,
) -> io::Result<(usize, bool)> {
    receive_message(socket, buffer, fds, wait)
}

/// As [`receive`], but a message whose descriptors did not all arrive (this process may have no room for them) is
/// given without any.
#[cfg_attr(feature = "faults", track_caller)]
pub fn receive_what_fits(
    socket: impl AsFd,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    wait: Wait,
) -> io::Result<usize> {
    let received = receive_message(socket, buffer, fds, wait);
    if !matches!(received, Ok((_, true))) {
        fds.clear();
    }
    Ok(received?.0)
}

#[cfg_attr(feature = "faults", track_caller)]
fn receive_message(
    socket: impl AsFd,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    wait: Wait,
) -> io::Result<(usize, bool)> {
    fds.clear();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ROOM))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut flags = RecvFlags::CMSG_CLOEXEC;
    flags.set(RecvFlags::DONTWAIT, wait == Wait::No);
    let mut interrupted = None;
    let message = loop {
        let mut pieces = [IoSliceMut::new(buffer)];
        match points::receive(|| rustix::net::recvmsg(socket.as_fd(), &mut pieces, &mut control, flags)) {
            Err(rustix::io::Errno::INTR) => check_timeout(&socket, Timeout::Recv, &mut interrupted)?,
            other => break other?,
        }
    };
    for ancillary in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = ancillary {
            fds.extend(received);
        }
    }
    if message.flags.contains(ReturnFlags::TRUNC) {
        return Err(too_much());
    }
    Ok((message.bytes, !message.flags.contains(ReturnFlags::CTRUNC)))
}

fn too_much() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a message too long, or with too many descriptors")
}

/// A call that a signal interrupted begins its timeout anew, and signals may come faster than it passes (a profiler's
/// do): ends the wait when it has passed since the first of them.
fn check_timeout(socket: impl AsFd, timeout: Timeout, since: &mut Option<Instant>) -> io::Result<()> {
    let since = *since.get_or_insert_with(Instant::now);
    match sockopt::socket_timeout(socket, timeout) {
        Ok(Some(limit)) if since.elapsed() >= limit => Err(rustix::io::Errno::AGAIN.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    extern "C" fn nothing(_: libc::c_int) {}

    #[test]
    fn signals_do_not_prolong_a_timeout() {
        // SAFETY: a zeroed sigaction with a handler that does nothing; nobody else here uses the signal.
        let me = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()), 0);
            libc::pthread_self()
        };
        let (ours, _theirs) = pair().unwrap();
        sockopt::set_socket_timeout(&ours, Timeout::Recv, Some(Duration::from_millis(200))).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    // SAFETY: the thread waits below until this one has ended.
                    unsafe { libc::pthread_kill(me, libc::SIGUSR2) };
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
            let received = receive(&ours, &mut [0; 16], &mut Vec::new(), Wait::Yes);
            over.store(true, Ordering::Relaxed);
            assert_eq!(received.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        });
    }
}
