//! What the kernel knows of a TCP connection, and rustix does not ask.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Whether the other end's machine has said nothing for so long, though something is on its way to it. A process there that does
/// not read is not the machine's silence: it acknowledges all the same.
pub fn is_silent(socket: impl AsFd, for_so_long: Duration) -> io::Result<bool> {
    // SAFETY: zeroed is a valid tcp_info (plain numbers).
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open while it is borrowed, and the kernel fills at most `bytes` of what outlives the call.
    let asked = unsafe {
        libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut bytes)
    };
    if asked != 0 {
        return Err(io::Error::last_os_error());
    }
    let silence = Duration::from_millis(info.tcpi_last_ack_recv.into());
    Ok(info.tcpi_unacked > 0 && silence >= for_so_long)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_machine_whose_process_does_not_read_is_not_silent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!is_silent(&socket, Duration::ZERO).unwrap(), "nothing is on its way");
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 65536]).is_ok() {}
        std::thread::sleep(Duration::from_millis(50));
        assert!(
            !is_silent(&socket, Duration::from_millis(40)).unwrap(),
            "all that there was room for is there"
        );
        assert!(is_silent(std::fs::File::open("/dev/null").unwrap(), Duration::ZERO).is_err());
    }
}
