//! A socket whose last close waits until what was sent has arrived, which it never does.

use rustix::net::sockopt;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Some of them.
pub struct Lingering {
    sockets: Vec<OwnedFd>,
    /// The other ends, which read nothing.
    _silent: Vec<TcpStream>,
}

impl Lingering {
    /// Makes so many. Whoever closes one last waits for an hour.
    pub fn new(count: usize) -> Lingering {
        let (sockets, _silent) = (0..count).map(|_| lingering()).unzip();
        Lingering { sockets, _silent }
    }

    /// That many descriptors of them, each as often as the others.
    pub fn descriptors(&self, count: usize) -> Vec<BorrowedFd<'_>> {
        self.sockets.iter().cycle().take(count).map(AsFd::as_fd).collect()
    }

    /// Leaves it to others to close them last.
    pub fn let_go(&mut self) {
        for socket in self.sockets.drain(..) {
            // Should this be the last: it must not wait itself.
            commonhold_sys::closing::close_now(socket);
        }
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        self.let_go();
    }
}

fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    sockopt::set_socket_recv_buffer_size(&listener, 4096).expect("a small buffer");
    let mut stream = TcpStream::connect(listener.local_addr().expect("a port")).expect("connected");
    sockopt::set_socket_send_buffer_size(&stream, 4096).expect("a small buffer");
    let (silent, _) = listener.accept().expect("accepted");
    sockopt::set_socket_linger(&stream, Some(Duration::from_secs(3600))).expect("it lingers");
    stream.set_nonblocking(true).expect("it does not wait");
    while stream.write(&[0; 4096]).is_ok() {}
    (stream.into(), silent)
}
