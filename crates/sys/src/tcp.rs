//! What the kernel knows of a TCP connection, and rustix does not ask.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes that were written and that the other end's machine has not acknowledged.
pub fn unacknowledged(socket: impl AsFd) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open while it is borrowed, and the kernel writes one int, which outlives the call.
    let asked = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if asked == 0 { Ok(bytes.max(0) as usize) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn what_nobody_reads_is_acknowledged_while_there_is_room() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        socket.write_all(b"little").unwrap();
        while unacknowledged(&socket).unwrap() > 0 {
            std::thread::yield_now();
        }
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 65536]).is_ok() {}
        assert!(unacknowledged(&socket).unwrap() > 0);
        assert!(unacknowledged(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
