//! What is between a connection's bytes and its socket: nothing, or TLS.

use rustls::Connection;
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One connection's encryption. Reading and writing share one TLS state: its lock is taken for a record or a few at a
/// time, and never while a socket is waited for. Who writes takes the lock of the connection's outgoing queue first.
pub enum Channel {
    /// None.
    Plain,
    /// TLS, its handshake done.
    Tls(Box<Mutex<Connection>>),
}

impl Channel {
    /// Over a TLS connection.
    pub fn tls(connection: Connection) -> Channel {
        Channel::Tls(Box::new(Mutex::new(connection)))
    }
}

/// A lock whose holder died in a panic is as good as any here: the connection is ended by who notices.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Socket and encryption together, as the handshake leaves them.
pub struct Stream {
    /// The socket. Who writes never waits for it.
    pub socket: TcpStream,
    /// The encryption.
    pub channel: Channel,
}
