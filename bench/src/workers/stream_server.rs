//! `stream-server`: the far end of one bare TLS stream: all of its memory goes out, as often as it is asked for.

use crate::failure::{Result, failed};
use crate::worker;
use commonhold_peers::Identity;
use rustls::{ServerConnection, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::path::Path;

/// Serves one connection after the other at an address, with the certificate of a directory, so many bytes each time.
pub fn run(arguments: &[String]) -> Result<()> {
    let [address, identity, bytes] = arguments else {
        return failed("stream-server takes an address, a directory and a number of bytes");
    };
    let listener = TcpListener::bind(address.as_str())?;
    let (_, config) = Identity::load(Path::new(identity))?.tls();
    let memory: Vec<u8> = (0..bytes.parse::<usize>()?).map(|at| (at >> 12) as u8 | 1).collect();
    worker::say("ready")?;
    loop {
        let (socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        let mut stream = StreamOwned::new(ServerConnection::new(config.clone())?, socket);
        let mut wish = [0];
        loop {
            match stream.read(&mut wish) {
                Ok(0) => break,
                Ok(_) => stream.write_all(&memory).and_then(|()| stream.flush())?,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
}
