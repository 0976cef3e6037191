//! A connection's socket: its options, and reading, writing and waiting that never block unasked.

use commonhold_object::Result;
use commonhold_object::error::Doing;
use commonhold_points as points;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg, sockopt};
use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::time::Duration;

/// A peer that acknowledges nothing for so long, or stops in the middle of a message, is lost.
pub const SILENCE: Duration = Duration::from_secs(10);
/// Most slices that the kernel takes at once.
pub const MAX_SLICES: usize = 1024;

/// Readies a socket: nothing waits to be joined with later bytes, and a peer that died silently is noticed, whether
/// something is on its way to it or not.
pub fn prepare(socket: &TcpStream) -> Result<()> {
    let what = "setting options of a connection";
    socket.set_read_timeout(Some(SILENCE)).doing(what)?;
    sockopt::set_tcp_nodelay(socket, true).doing(what)?;
    sockopt::set_socket_keepalive(socket, true).doing(what)?;
    sockopt::set_tcp_keepidle(socket, SILENCE / 2).doing(what)?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(1)).doing(what)?;
    sockopt::set_tcp_keepcnt(socket, 5).doing(what)?;
    sockopt::set_tcp_user_timeout(socket, SILENCE.as_millis() as u32).doing(what)
}

/// Writes what the socket takes at once.
#[cfg_attr(feature = "faults", track_caller)]
pub fn send_some(socket: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let slices = &slices[..slices.len().min(MAX_SLICES)];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        let mut none = SendAncillaryBuffer::default();
        match points::send_far(|| sendmsg(socket, slices, &mut none, flags)) {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

/// Reads what is there; 0 is the end.
#[cfg_attr(feature = "faults", track_caller)]
pub fn recv_some(socket: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    receive(socket, buffer, RecvFlags::DONTWAIT)
}

/// Waits for something to read: for [`SILENCE`], then it fails with `WouldBlock`.
#[cfg_attr(feature = "faults", track_caller)]
pub fn recv_wait(socket: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    receive(socket, buffer, RecvFlags::empty())
}

#[cfg_attr(feature = "faults", track_caller)]
fn receive(socket: &TcpStream, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    loop {
        match points::receive_far(|| recv(socket, &mut *buffer, flags)) {
            Err(Errno::INTR) => {}
            done => return Ok(done?.1),
        }
    }
}

/// Which way to wait for.
#[derive(Clone, Copy, Debug)]
pub enum Ready {
    /// There is something to read, or the end.
    ToRead,
    /// There is room to write.
    ToWrite,
}

/// Waits until the socket is ready or broken; false if the time is up.
pub fn wait(socket: &TcpStream, ready: Ready, longest: Option<Duration>) -> io::Result<bool> {
    let flags = match ready {
        Ready::ToRead => PollFlags::IN,
        Ready::ToWrite => PollFlags::OUT,
    };
    let longest = longest.map(|time| Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 }));
    match poll(&mut [PollFd::new(socket, flags)], longest.as_ref()) {
        // The caller looks at its clock and comes again.
        Err(Errno::INTR) => Ok(true),
        done => Ok(done? > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_peer_that_dies_silently_is_noticed_within_the_silence() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        prepare(&socket).unwrap();
        assert!(sockopt::tcp_nodelay(&socket).unwrap());
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        let probes = sockopt::tcp_keepintvl(&socket).unwrap() * sockopt::tcp_keepcnt(&socket).unwrap();
        assert!(sockopt::tcp_keepidle(&socket).unwrap() + probes <= SILENCE);
        assert_eq!(u128::from(sockopt::tcp_user_timeout(&socket).unwrap()), SILENCE.as_millis());
    }
}
