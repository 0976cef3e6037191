//! A socket that is waited for until a deadline and no longer: for handshakes.

use crate::socket::{self, Ready};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Reads and writes; past the deadline they fail with `TimedOut`.
pub struct Timed<'a> {
    socket: &'a TcpStream,
    deadline: Instant,
}

impl<'a> Timed<'a> {
    /// Over a socket.
    pub fn new(socket: &'a TcpStream, deadline: Instant) -> Self {
        Timed { socket, deadline }
    }

    fn until<T>(&self, ready: Ready, mut act: impl FnMut(&TcpStream) -> io::Result<T>) -> io::Result<T> {
        loop {
            match act(self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            socket::wait(self.socket, ready, Some(left))?;
        }
    }

    /// Ends a connection so that what was written last is read: a socket closed with bytes unread in it takes back
    /// what the peer has not yet got.
    pub fn linger(self) {
        let patience = Duration::from_millis(500);
        let mut last = Timed::new(self.socket, Instant::now() + patience);
        let mut rest = [0; 4096];
        if self.socket.shutdown(Shutdown::Write).is_ok() {
            while last.read(&mut rest).is_ok_and(|n| n > 0) && Instant::now() < last.deadline {}
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.until(Ready::ToRead, |socket| socket::recv_some(socket, buffer))
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buffer)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.until(Ready::ToWrite, |socket| socket::send_some(socket, slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
